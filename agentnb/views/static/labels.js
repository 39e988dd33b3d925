// Names for what ipywidgets leaves without one: the handle of its slider. A slider may be made after
// the tree, so the panel around is watched while the tree is there.

const HANDLES = ".noUi-handle:not([aria-label])";
const NAME = "Budget in tokens";

/** Names the handles of the panel that `element` stands in, now and later, until `signal` aborts. */
export function nameHandles(element, signal) {
  const panel = element.closest(".agentnb-panel");
  if (!panel) return false;
  const name = () => {
    for (const handle of panel.querySelectorAll(HANDLES)) handle.setAttribute("aria-label", NAME);
  };
  name();
  const watcher = new MutationObserver((records) => {
    if (records.some(({ target }) => !element.contains(target))) name();
  });
  watcher.observe(panel, { childList: true, subtree: true });
  signal.addEventListener("abort", () => watcher.disconnect());
  return true;
}
