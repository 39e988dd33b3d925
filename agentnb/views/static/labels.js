// What ipywidgets' slider lacks: a name for its handle, and an End key that knows a new end. A slider may
// be made after the tree, so the panel around is watched while the tree is there.

const UNNAMED = ".noUi-handle:not([aria-label])";
const NAME = "Budget in tokens";

/**
 * Looks after the sliders of the panel that `element` stands in, now and later, until `signal` aborts;
 * without a panel, names those of a dashboard and returns false. `onEnd(total)` hears that a person
 * wants the most that a slider has: its own End key goes to where the slider ended at first.
 */
export function mendSliders(element, signal, onEnd) {
  const panel = element.closest(".agentnb-panel");
  if (!panel) {
    nameHandles(document.querySelectorAll(`.agentnb-budget-slider ${UNNAMED}`));
    return false;
  }
  const name = () => nameHandles(panel.querySelectorAll(UNNAMED));
  name();
  const watcher = new MutationObserver((records) => {
    if (records.some(({ target }) => !element.contains(target))) name();
  });
  watcher.observe(panel, { childList: true, subtree: true });
  signal.addEventListener("abort", () => watcher.disconnect());
  const keyed = (event) => {
    const slider = event.target.closest(".agentnb-budget-slider .noUi-target");
    if (event.key !== "End" || !slider || slider.hasAttribute("disabled")) return;
    const end = slider.noUiSlider?.options?.range?.max;
    event.preventDefault();
    event.stopPropagation();
    if (Number.isFinite(end)) onEnd(end);
  };
  panel.addEventListener("keydown", keyed, { capture: true, signal });
  return true;
}

function nameHandles(handles) {
  for (const handle of handles) handle.setAttribute("aria-label", NAME);
}
