// The toolbar above the tree: filter by text and status, expand or collapse all branches, zoom. The
// status buttons show counts and are also the legend of the shapes.

import { make, makeButton, setAttribute, setText } from "./dom.js";
import { isFiltering } from "./filter.js";
import { wholeNumber } from "./format.js";
import { makeMark, statusCounts } from "./status.js";

const FIT = "Fit the tree into its window";

export class Toolbar {
  #actions;
  #statuses = new Set();
  #chips = new Map();
  #search = make("input", "agentnb-search", {
    type: "search",
    placeholder: "Filter by path or task",
    "aria-label": "Filter agents by path or task",
    spellcheck: "false",
    autocomplete: "off",
  });
  #chipBox = make("div", "agentnb-chips", { role: "group", "aria-label": "Filter by status" });
  #found = document.createTextNode("");
  #foundBox = make("span", "agentnb-found", { role: "status" }, this.#found);
  #clear = makeButton("agentnb-clear", "Clear", { "aria-label": "Clear the filter", hidden: "" });
  #percent = makeButton("agentnb-percent", "", { title: "Zoom to 100 %" });
  #fit = makeButton("", "Fit", {
    "data-action": "fit",
    "aria-label": FIT,
    "aria-pressed": "true",
    title: FIT,
  });

  /** `actions` has `filter`, `collapseAll`, `expandAll`, `zoomBy`, `naturalSize`, `fit`. */
  constructor(actions, signal) {
    this.#actions = actions;
    this.element = make(
      "div",
      "agentnb-toolbar",
      {},
      this.#search,
      this.#chipBox,
      this.#foundBox,
      this.#clear,
      this.#views(),
    );
    this.zoom(1, true);
    const listen = (element, name, handler) => element.addEventListener(name, handler, { signal });
    listen(this.#search, "input", () => this.#changed());
    listen(this.#search, "keydown", (event) => {
      if (event.key === "Escape" && isFiltering(this.#filter)) this.#reset();
    });
    listen(this.#clear, "click", () => this.#reset());
    listen(this.#chipBox, "click", (event) => this.#toggle(event.target.closest("[data-status]")));
    listen(this.element, "click", (event) => {
      const name = event.target.closest("[data-action]")?.dataset.action;
      if (name) this.#act(name);
    });
  }

  /** Shows the number of agents with each status, and of those that match the filter. */
  show(statuses, { matching, all }) {
    const counts = new Map(statusCounts(statuses));
    for (const status of this.#statuses) if (!counts.has(status)) counts.set(status, 0);
    for (const [status, chip] of this.#chips) {
      if (counts.has(status)) continue;
      chip.element.remove();
      this.#chips.delete(status);
    }
    let before = null;
    for (const [status, count] of counts) {
      const chip = this.#chip(status);
      setText(chip.count, wholeNumber(count));
      const next = before ? before.nextSibling : this.#chipBox.firstChild;
      if (next !== chip.element) this.#chipBox.insertBefore(chip.element, next);
      before = chip.element;
    }
    const filtering = isFiltering(this.#filter);
    const words = `${wholeNumber(matching)} of ${wholeNumber(all)} match`;
    setText(this.#found, filtering ? words : "");
    this.#clear.hidden = !filtering;
  }

  /** Shows the zoom, and whether the tree is fitted automatically. */
  zoom(zoom, isFitting) {
    const words = `${Math.round(zoom * 100)} %`;
    if (this.#percent.textContent !== words) this.#percent.textContent = words;
    setAttribute(this.#percent, "aria-label", `${words}: zoom to 100 %`);
    setAttribute(this.#fit, "aria-pressed", String(isFitting));
  }

  get #filter() {
    return { text: this.#search.value, statuses: this.#statuses };
  }

  #views() {
    const button = (action, text, label) =>
      makeButton("", text, { "data-action": action, "aria-label": label, title: label });
    this.#percent.dataset.action = "reset";
    return make(
      "div",
      "agentnb-views",
      { role: "group", "aria-label": "View of the tree" },
      button("collapse", "Collapse", "Collapse all branches"),
      button("expand", "Expand", "Expand all branches"),
      button("out", "−", "Zoom out"),
      this.#percent,
      button("in", "+", "Zoom in"),
      this.#fit,
    );
  }

  #chip(status) {
    const known = this.#chips.get(status);
    if (known) return known;
    const count = document.createTextNode("");
    const element = makeButton("agentnb-chip", "", {
      "aria-pressed": "false",
      "data-status": status,
    });
    element.append(makeMark(status).element, count, ` ${status}`);
    const chip = { element, count };
    this.#chips.set(status, chip);
    return chip;
  }

  #toggle(element) {
    if (!element) return;
    const { status } = element.dataset;
    const pressed = !this.#statuses.delete(status);
    if (pressed) this.#statuses.add(status);
    setAttribute(element, "aria-pressed", String(pressed));
    this.#changed();
  }

  #reset() {
    this.#search.value = "";
    this.#statuses.clear();
    for (const { element } of this.#chips.values()) setAttribute(element, "aria-pressed", "false");
    this.#search.focus();
    this.#changed();
  }

  #changed() {
    this.#actions.filter({ text: this.#search.value, statuses: new Set(this.#statuses) });
  }

  #act(name) {
    const { collapseAll, expandAll, zoomBy, naturalSize, fit } = this.#actions;
    const acts = {
      collapse: collapseAll,
      expand: expandAll,
      out: () => zoomBy(-1),
      in: () => zoomBy(1),
      reset: naturalSize,
      fit,
    };
    acts[name]();
  }
}
