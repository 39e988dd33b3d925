// The window onto the tree: scrolling, dragging, zooming. Keeps still what a person looks at: a zoom
// keeps the point under the pointer, and whoever re-arranges the tree can keep an agent in its place.

import { make, makeSvg, setAttribute } from "./dom.js";
import { fittingZoom, limitZoom, MARGIN, nextZoom, sizesAt } from "./scale.js";

const DRAG_SLACK = 3;

export class Board {
  zoom = 1;
  sizes = sizesAt(1);
  extent = { columns: 0, rows: 0 };
  #lines = makeSvg("path", { class: "agentnb-lines-path", "vector-effect": "non-scaling-stroke" });
  #svg = makeSvg(
    "svg",
    { class: "agentnb-lines", preserveAspectRatio: "none", "aria-hidden": "true" },
    this.#lines,
  );
  #onZoom;
  #scroll = { left: 0, top: 0 };

  /** `tree` is the element that holds the cards; `onZoom()` is called when sizes have changed. */
  constructor(tree, onZoom, signal) {
    this.#onZoom = onZoom;
    this.stage = make("div", "agentnb-stage", {}, this.#svg, tree);
    this.element = make("div", "agentnb-board", {}, this.stage);
    const listen = (name, handler, options = {}) =>
      this.element.addEventListener(name, handler, { signal, ...options });
    listen("wheel", (event) => this.#wheel(event), { passive: false });
    listen("pointerdown", (event) => this.#drag(event));
    listen("scroll", () => this.#remember(), { passive: true });
    this.#resize();
  }

  /** Takes the tree's extent and lines as `arrange` and `connect` give them. */
  draw(extent, lines) {
    this.extent = extent;
    setAttribute(this.#lines, "d", lines);
    setAttribute(this.#svg, "viewBox", `0 0 ${extent.columns || 1} ${extent.rows || 1}`);
    this.#resize();
  }

  step(direction) {
    this.setZoom(nextZoom(this.zoom, direction));
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.element;
    this.setZoom(fittingZoom(this.extent, { width, height }));
  }

  /** Zooms; `x` and `y`, in pixels of the window, are the point that stays where it is. */
  setZoom(zoom, x = this.element.clientWidth / 2, y = this.element.clientHeight / 2) {
    const next = limitZoom(zoom);
    if (next === this.zoom) return;
    const before = this.sizes;
    const { scrollLeft, scrollTop } = this.element;
    const column = (scrollLeft + x - MARGIN) / before.column;
    const row = (scrollTop + y - MARGIN) / before.row;
    this.zoom = next;
    this.sizes = sizesAt(next);
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

  /** Scrolls so that what stood in row `before` and now stands in row `after` seems not to move. */
  keep(before, after) {
    if (before !== after) this.element.scrollTop += (after - before) * this.sizes.row;
  }

  /** The rows that are in the window or next to it, from `first` to `last`. */
  rowsInView() {
    const { top, height } = this.#scroll;
    return {
      first: Math.floor((top - MARGIN) / this.sizes.row) - 2,
      last: Math.ceil((top + (height || 400)) / this.sizes.row) + 2,
    };
  }

  /** Its place on the page was changed: what a browser forgets when an element is taken out. */
  restore() {
    if (this.element.scrollTop === 0 && this.#scroll.top > 0) {
      this.element.scrollTo({ ...this.#scroll, behavior: "instant" });
    }
    this.#scroll.height = this.element.clientHeight;
  }

  #remember() {
    this.#scroll.left = this.element.scrollLeft;
    this.#scroll.top = this.element.scrollTop;
  }

  #resize() {
    const { sizes, extent, stage } = this;
    const width = extent.columns * sizes.column;
    const height = extent.rows * sizes.row;
    stage.style.width = `${width + 2 * MARGIN}px`;
    stage.style.height = `${height + 2 * MARGIN}px`;
    this.#svg.style.width = `${width}px`;
    this.#svg.style.height = `${height}px`;
    stage.style.setProperty("--agentnb-card-width", `${sizes.cardWidth}px`);
    stage.style.setProperty("--agentnb-card-height", `${sizes.cardHeight}px`);
    stage.style.setProperty("--agentnb-card-font", `${sizes.font}px`);
    stage.dataset.lines = sizes.lines;
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.element.getBoundingClientRect();
    const pixels = event.deltaMode === 0 ? event.deltaY : event.deltaY * 16;
    const factor = Math.exp(-Math.max(-60, Math.min(60, pixels)) / 200);
    this.setZoom(this.zoom * factor, event.clientX - box.left, event.clientY - box.top);
  }

  // With a finger the browser itself pans; with a mouse the free space can be dragged.
  #drag(event) {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    if (event.target.closest(".agentnb-node")) return;
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
