// Adds what the controls of ipywidgets lack: a name for a slider's handle, its value in dollars, an
// End key that goes to the present end, a place for the focus after an answer. A slider may be made
// after the tree, so an observer watches the page while the tree is in it.

import { setAttribute } from "./dom.js";
import { dollars } from "./format.js";

const NAME = "Budget in tokens";
const NAME_IN_DOLLARS = "Budget in dollars";

/**
 * Names the handles of the budget sliders in `root`, now and later, and gives the value of those
 * that count micro-dollars in dollars. Returns a function that stops this.
 */
export function nameSliders(root) {
  // A live collection, so that a check after each change of the page is cheap.
  const handles = root.getElementsByClassName("noUi-handle");
  const name = () => {
    for (const handle of handles) {
      if (handle.closest(".agentnb-in-dollars")) tellInDollars(handle);
      else if (handle.closest(".agentnb-budget-slider, .agentnb-panel")) {
        if (!handle.hasAttribute("aria-label")) handle.setAttribute("aria-label", NAME);
      }
    }
  };
  name();
  const watcher = new MutationObserver(name);
  // noUiSlider writes the bare number with each step of the handle.
  const attributeFilter = ["aria-valuetext"];
  watcher.observe(root, { childList: true, subtree: true, attributes: true, attributeFilter });
  return () => watcher.disconnect();
}

function tellInDollars(handle) {
  setAttribute(handle, "aria-label", NAME_IN_DOLLARS);
  setAttribute(handle, "aria-valuetext", dollars(Number(handle.getAttribute("aria-valuenow"))));
}

/**
 * Calls `onAnswered()` when the user has answered the budget's question in `panel`, until `signal`
 * aborts. The question's buttons are then removed, so the keyboard focus needs another place.
 */
export function hearAnswer(panel, signal, onAnswered) {
  const clicked = (event) => {
    if (event.target.closest(".agentnb-budget-question button")) onAnswered();
  };
  panel.addEventListener("click", clicked, { signal });
}

/**
 * Makes the End key of the sliders in `panel` go to their present end: ipywidgets keeps the first
 * end. Calls `onEnd(total)` when the user presses the key, until `signal` aborts.
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
