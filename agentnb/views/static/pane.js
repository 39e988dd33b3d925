// The pane around tree and details. Its height follows the tree, so that a small tree leaves no
// empty room: it grows in steps while the run continues, and fits exactly when the run has ended. A
// height set by the user or by code stays.

const STEP = 90;
const BORDERS = 2;

export class Pane {
  /** A requested height in pixels; 0 for none. */
  given = 0;
  #element;
  #isOver;
  #bounds = { least: 0, most: 0 };
  #height = 0;
  #isExact = false;

  /** `element` has the bounds in its style; `isOver()` returns whether the run has ended. */
  constructor(element, isOver) {
    this.#element = element;
    this.#isOver = isOver;
  }

  /** The largest height that the pane can have; `null` if its height is fixed. */
  get room() {
    return this.#isOurs ? this.#bounds.most - BORDERS : null;
  }

  /** Reads the bounds from the style again: they differ in a narrow cell. */
  measure() {
    const style = getComputedStyle(this.#element);
    const read = (name) => Number.parseFloat(style.getPropertyValue(name)) || 0;
    const bounds = { least: read("--agentnb-pane-least"), most: read("--agentnb-pane-most") };
    if (bounds.least !== this.#bounds.least || bounds.most !== this.#bounds.most) this.#height = 0;
    this.#bounds = bounds;
  }

  /** Fits the pane to a tree of this height in pixels. */
  follow(needed) {
    if (!this.#isOurs || !this.#bounds.most) return;
    const isOver = this.#isOver();
    // It may shrink once, when the run ends; otherwise it only grows.
    const before = isOver && !this.#isExact ? 0 : this.#height;
    this.#isExact = isOver;
    const height = paneHeight(needed + BORDERS, { ...this.#bounds, before, isOver });
    if (height === this.#height) return;
    this.#height = height;
    this.#element.style.setProperty("--agentnb-pane", `${height}px`);
  }

  // A user who drags the corner sets a height.
  get #isOurs() {
    const dragged = [this.#element, ...this.#element.children].some(({ style }) => style.height);
    return !this.given && !dragged;
  }
}

/** Height in pixels for a tree that needs `needed`: at least `before`, in steps unless `isOver`. */
export function paneHeight(needed, { least, most, before, isOver }) {
  const steps = Math.max(0, Math.ceil((needed - least) / STEP));
  const wanted = isOver ? Math.ceil(needed) : least + steps * STEP;
  return Math.max(before, Math.min(most, Math.max(least, wanted)));
}
