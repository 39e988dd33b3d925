// What ipywidgets' slider lacks: a name for its handle, and an End key that knows a new end. A slider may
// be made after the tree, so the page around is watched while the tree is there.

const NAME = "Budget in tokens";

/** Names the handles of the budget sliders in `root`, now and later; what it returns ends that. */
export function nameSliders(root) {
  // Kept up to date by the browser, so that looking at every change of a page costs nothing.
  const handles = root.getElementsByClassName("noUi-handle");
  const name = () => {
    for (const handle of handles) {
      const isOurs = handle.closest(".agentnb-budget-slider, .agentnb-panel");
      if (isOurs && !handle.hasAttribute("aria-label")) handle.setAttribute("aria-label", NAME);
    }
  };
  name();
  const watcher = new MutationObserver(name);
  watcher.observe(root, { childList: true, subtree: true });
  return () => watcher.disconnect();
}

/**
 * Has the End key of the sliders of `panel` go to where they end: their own goes to where they ended at
 * first. `onEnd(total)` hears that a person wants the most that a slider has, until `signal` aborts.
 */
export function hearEndKey(panel, signal, onEnd) {
  const keyed = (event) => {
    const slider = event.target.closest(".agentnb-budget-slider .noUi-target");
    if (event.key !== "End" || !slider || slider.hasAttribute("disabled")) return;
    const end = slider.noUiSlider?.options?.range?.max;
    event.preventDefault();
    event.stopPropagation();
    if (Number.isFinite(end)) onEnd(end);
  };
  panel.addEventListener("keydown", keyed, { capture: true, signal });
}
