// The viewport of the tree: scrolling, dragging, zooming. It fits the tree automatically until the user
// zooms or drags. It keeps what the user looks at in place: the point under the pointer in a zoom, and
// a chosen agent when the tree is rearranged.

import { make, makeSvg, setAttribute } from "./dom.js";
import {
  extentAt,
  fittingSqueeze,
  fittingZoom,
  limitZoom,
  MARGIN,
  nextZoom,
  sizesAt,
} from "./scale.js";

const DRAG_SLACK = 3;
const SCROLLBAR = 16;

export class Viewport {
  zoom = 1;
  sizes = sizesAt(1);
  extent = { columns: 0, rows: 0 };
  /** Whether it fits the tree automatically: until the user zooms or drags, and again on request. */
  isFitting = true;
  #squeeze = 1;
  #pane;
  /** Its inner size in pixels, as last measured: reading it anew would cost a layout. */
  #window = null;
  #lines = makeSvg("path", { class: "agentnb-lines-path", "vector-effect": "non-scaling-stroke" });
  #svg = makeSvg(
    "svg",
    { class: "agentnb-lines", preserveAspectRatio: "none", "aria-hidden": "true" },
    this.#lines,
  );
  #onZoom;
  #scroll = { left: 0, top: 0 };

  /**
   * `tree` is the element that holds the cards, `pane` the `Pane` around the viewport; `onZoom()`
   * is called when sizes have changed.
   */
  constructor(tree, pane, onZoom, signal) {
    this.#pane = pane;
    this.#onZoom = onZoom;
    this.toggles = make("div", "agentnb-toggles");
    this.stage = make("div", "agentnb-stage", {}, this.#svg, tree, this.toggles);
    this.element = make("div", "agentnb-board", {}, this.stage);
    const listen = (name, handler, options = {}) =>
      this.element.addEventListener(name, handler, { signal, ...options });
    listen("wheel", (event) => this.#wheel(event), { passive: false });
    listen("pointerdown", (event) => this.#drag(event));
    listen("scroll", () => this.#remember(), { passive: true });
    this.#resize();
  }

  /**
   * Sets the tree's extent and lines, from `arrange` and `connect`. The caller must place the cards anew
   * afterwards. If `mayGrow` is false a fit does not enlarge the tree, since the user changed nothing.
   */
  draw(extent, lines, { mayGrow = true } = {}) {
    this.extent = extent;
    this.#fit({ mayGrow });
    setAttribute(this.#lines, "d", lines);
    setAttribute(this.#svg, "viewBox", `0 0 ${extent.columns || 1} ${extent.rows || 1}`);
    this.#resize();
  }

  /** Zooms one step, for the user. */
  step(direction) {
    this.setZoom(nextZoom(this.zoom, direction));
  }

  /** Zooms to 100 %, with columns of normal width. */
  naturalSize() {
    this.setZoom(1, undefined, undefined, 1);
  }

  /** Fits the tree, from now on automatically. */
  fit() {
    this.isFitting = true;
    this.refit();
    this.#onZoom();
  }

  /** Fits the tree, unless the user has zoomed or dragged. */
  refit() {
    const before = this.sizes;
    if (!this.#fit({ mayGrow: true })) return;
    this.#resize();
    this.#onZoom();
    // Keep the middle in place.
    const middle = this.#scroll.top + this.#window.height / 2 - MARGIN;
    this.keep(middle, (middle / before.row) * this.sizes.row);
  }

  /** Call when the viewport or the pane was put into the page or resized. */
  measure() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width) return;
    this.#pane.measure();
    this.#window = { width, height };
    this.refit();
  }

  /**
   * Zooms for the user; the point `x`, `y`, in pixels of the viewport, stays in place. `squeeze` makes
   * the columns narrower than the zoom alone does.
   */
  setZoom(
    zoom,
    x = this.element.clientWidth / 2,
    y = this.element.clientHeight / 2,
    squeeze = this.#squeeze,
  ) {
    const next = limitZoom(zoom);
    this.isFitting = false;
    const before = this.sizes;
    const { scrollLeft, scrollTop } = this.element;
    const column = (scrollLeft + x - MARGIN) / before.column;
    const row = (scrollTop + y - MARGIN) / before.row;
    this.#take(next, squeeze);
    this.#resize();
    this.#onZoom();
    this.element.scrollTo({
      left: column * this.sizes.column + MARGIN - x,
      top: row * this.sizes.row + MARGIN - y,
      behavior: "instant",
    });
  }

  /** Scrolls as little as needed to show a place. */
  reveal({ row, column }) {
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.element;
    const left = MARGIN + column * this.sizes.column;
    const top = MARGIN + row * this.sizes.row;
    this.element.scrollTo({
      left: nearest(scrollLeft, clientWidth, left, this.sizes.cardWidth),
      top: nearest(scrollTop, clientHeight, top, this.sizes.cardHeight),
      behavior: "instant",
    });
  }

  /** The top of a row, in pixels of the tree. */
  topOf(row) {
    return row * this.sizes.row;
  }

  /** Scrolls so that what moved from `before` to `after` (pixels) stays in place on the screen. */
  keep(before, after) {
    if (before !== after) this.element.scrollTop += after - before;
  }

  /** The rows in the viewport or next to it, from `first` to `last`. */
  rowsInView() {
    const { top, height } = this.#scroll;
    return {
      first: Math.floor((top - MARGIN) / this.sizes.row) - 2,
      last: Math.ceil((top + (height || 400)) / this.sizes.row) + 2,
    };
  }

  /** Restores the scroll position, which a browser forgets when an element is moved. */
  restore() {
    if (this.element.scrollTop === 0 && this.#scroll.top > 0) {
      this.element.scrollTo({ ...this.#scroll, behavior: "instant" });
    }
    this.#scroll.height = this.element.clientHeight;
    this.measure();
  }

  // Returns whether anything changed; does not draw.
  #fit({ mayGrow }) {
    if (!this.#window) return false;
    const { width, height } = this.#window;
    const fitting = fittingZoom(this.extent, this.#pane.room ?? height);
    // The pane fits the tree at its automatic zoom, whatever the user's zoom.
    const zoom = mayGrow ? fitting : Math.min(fitting, this.zoom);
    const fittingColumns = fittingSqueeze(this.extent, zoom, width);
    const growth = sizesAt(zoom, fittingColumns).column / this.sizes.column;
    const squeeze = mayGrow ? fittingColumns : fittingColumns / Math.max(1, growth);
    const needed = extentAt(this.extent, sizesAt(zoom, squeeze));
    this.#pane.follow(needed.height + (needed.width > width + 1 ? SCROLLBAR : 0));
    if (!this.isFitting || (zoom === this.zoom && squeeze === this.#squeeze)) return false;
    this.#take(zoom, squeeze);
    return true;
  }

  #take(zoom, squeeze) {
    this.zoom = zoom;
    this.#squeeze = squeeze;
    this.sizes = sizesAt(zoom, squeeze);
  }

  #remember() {
    this.#scroll.left = this.element.scrollLeft;
    this.#scroll.top = this.element.scrollTop;
  }

  #resize() {
    const { sizes, extent, stage } = this;
    const { width, height } = extentAt(extent, sizes);
    stage.style.width = `${width}px`;
    stage.style.height = `${height}px`;
    this.#svg.style.width = `${extent.columns * sizes.column}px`;
    this.#svg.style.height = `${extent.rows * sizes.row}px`;
    stage.style.setProperty("--agentnb-card-width", `${sizes.cardWidth}px`);
    stage.style.setProperty("--agentnb-card-height", `${sizes.cardHeight}px`);
    stage.style.setProperty("--agentnb-card-font", `${sizes.font}px`);
    stage.dataset.lines = sizes.lines;
    setAttribute(stage, "data-narrow", sizes.isNarrow ? "true" : null);
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.element.getBoundingClientRect();
    const pixels = event.deltaMode === 0 ? event.deltaY : event.deltaY * 16;
    const factor = Math.exp(-Math.max(-60, Math.min(60, pixels)) / 200);
    this.setZoom(this.zoom * factor, event.clientX - box.left, event.clientY - box.top);
  }

  // The browser itself pans by touch; with a mouse, the user drags free space.
  #drag(event) {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    if (event.target.closest(".agentnb-node, button")) return;
    const { element } = this;
    const box = element.getBoundingClientRect();
    const onBar =
      event.clientX - box.left > element.clientWidth ||
      event.clientY - box.top > element.clientHeight;
    if (onBar) return;
    const from = {
      x: event.clientX,
      y: event.clientY,
      left: element.scrollLeft,
      top: element.scrollTop,
    };
    const over = new AbortController();
    const move = (moved) => {
      const x = moved.clientX - from.x;
      const y = moved.clientY - from.y;
      if (Math.abs(x) + Math.abs(y) < DRAG_SLACK) return;
      if (this.isFitting) {
        this.isFitting = false;
        this.#onZoom();
      }
      element.dataset.dragging = "true";
      element.scrollTo({ left: from.left - x, top: from.top - y, behavior: "instant" });
    };
    const end = () => {
      delete element.dataset.dragging;
      over.abort();
    };
    element.setPointerCapture(event.pointerId);
    element.addEventListener("pointermove", move, { signal: over.signal });
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) {
      element.addEventListener(name, end, { signal: over.signal });
    }
  }
}

function nearest(scroll, room, begin, length) {
  if (begin - MARGIN < scroll) return Math.max(0, begin - MARGIN);
  if (begin + length + MARGIN > scroll + room) return begin + length + MARGIN - room;
  return scroll;
}
