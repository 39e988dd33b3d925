// The rows of a table as a grid. Only the visible ones are in the page, so that 2,000 rows scroll
// like 20; `aria-rowcount` and `aria-rowindex` describe the whole table. A row with the keyboard
// focus stays in the page.

import { make, setAttribute } from "./dom.js";
import { MapRowElement } from "./map_row.js";

/** Rows in the page above and below the visible ones. */
const SPARE_ROWS = 8;
const PAGE_ROWS = 10;

export class MapGrid {
  #cellsOf;
  #onOpen;
  #onClose;
  #order = [];
  /** The place of each row in the order, by row. */
  #places = new Map();
  #rows = new Map();
  #current = 0;
  #opened = null;
  #judges = 1;
  #height = 30;
  #paint = null;
  #body = make("div", "agentnb-map-rows", { role: "rowgroup" });
  #headings = make("div", "agentnb-map-row agentnb-map-headings", {
    role: "row",
    "aria-rowindex": 1,
  });
  #grid = make(
    "div",
    "agentnb-map-grid",
    { role: "grid", "aria-label": "Rows of this map" },
    make("div", "agentnb-map-head", { role: "rowgroup" }, this.#headings),
    this.#body,
  );
  #empty = make("div", "agentnb-map-empty", { hidden: "" }, "No row has failed.");

  /**
   * `cellsOf(row)` returns what a row shows; `onOpen(row, judge)` and `onClose()` are called when
   * the user opens a row and closes it.
   */
  constructor({ cellsOf, onOpen, onClose, signal }) {
    this.#cellsOf = cellsOf;
    this.#onOpen = onOpen;
    this.#onClose = onClose;
    this.element = make("div", "agentnb-map-scroller", {}, this.#grid, this.#empty);
    const listen = (element, name, handler) => element.addEventListener(name, handler, { signal });
    listen(this.element, "scroll", () => this.#soon());
    listen(this.#body, "click", (event) => this.#click(event));
    listen(this.#body, "keydown", (event) => this.#key(event));
    signal.addEventListener("abort", () => cancelAnimationFrame(this.#paint));
  }

  /** Shows these rows in this order; the first visible one stays in place. */
  arrange(order, judges) {
    const anchor = this.element.scrollTop > 0 ? this.#order[this.#first] : undefined;
    const offset = this.element.scrollTop - this.#first * this.#height;
    this.#order = order;
    this.#places = new Map(order.map((row, place) => [row, place]));
    if (judges !== this.#judges || !this.#headings.childElementCount) this.#head(judges);
    setAttribute(this.#grid, "aria-rowcount", order.length + 1);
    this.#empty.hidden = order.length > 0;
    this.#stretch();
    const place = this.#places.get(anchor);
    if (place !== undefined) this.element.scrollTop = place * this.#height + offset;
    this.#render();
    this.refresh(this.#rows.keys());
  }

  /** Updates those of these rows that are in the page. */
  refresh(rows) {
    for (const row of rows) this.#rows.get(row)?.show(this.#cellsOf(row));
  }

  /** Marks the opened row; `null` for none. */
  mark(row, judge) {
    this.#opened = row;
    for (const [number, element] of this.#rows) element.open(number === row ? judge : null);
  }

  /** Scrolls to a row and makes it the current one. Returns whether the order has it. */
  reveal(row) {
    const place = this.#places.get(row);
    if (place === undefined) return false;
    const { element } = this;
    const room = element.clientHeight - this.#headings.offsetHeight - this.#height;
    const top = place * this.#height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top > element.scrollTop + room) element.scrollTop = top - room;
    this.#current = row;
    this.#render();
    return true;
  }

  /** Moves the keyboard focus to the current row. */
  focus() {
    this.#body.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }

  /** Call when the grid was put into the page, or its size has changed. */
  settled() {
    const height = Number.parseFloat(
      getComputedStyle(this.#body).getPropertyValue("--agentnb-map-row"),
    );
    if (height > 0 && height !== this.#height) {
      const first = this.element.scrollTop / this.#height;
      this.#height = height;
      this.#stretch();
      this.element.scrollTop = first * height;
    }
    this.#render();
  }

  get #first() {
    return Math.max(0, Math.floor(this.element.scrollTop / this.#height));
  }

  #stretch() {
    this.#body.style.height = `${this.#order.length * this.#height}px`;
  }

  #head(judges) {
    this.#judges = judges;
    this.#grid.style.setProperty("--agentnb-map-judges", judges);
    const answers = Array.from({ length: judges }, (_, judge) =>
      judges > 1 ? `Judge ${judge + 1}` : "Answer",
    );
    const names = ["Row", "Status", "From the row", ...answers, "Tokens"];
    this.#headings.replaceChildren(
      ...names.map((name) => make("span", "", { role: "columnheader" }, name)),
    );
    setAttribute(this.#grid, "aria-colcount", names.length);
    for (const element of this.#rows.values()) element.element.remove();
    this.#rows.clear();
  }

  #soon() {
    this.#paint ??= requestAnimationFrame(() => {
      this.#paint = null;
      this.#render();
    });
  }

  #render() {
    const last = this.#first + Math.ceil(this.element.clientHeight / this.#height) + SPARE_ROWS;
    const wanted = this.#order.slice(Math.max(0, this.#first - SPARE_ROWS), last);
    const kept = this.#focusedRow();
    if (kept !== null && this.#places.has(kept) && !wanted.includes(kept)) {
      if (this.#places.get(kept) < this.#first) wanted.unshift(kept);
      else wanted.push(kept);
    }
    this.#replace(wanted);
    const tabbable = wanted.includes(this.#current) ? this.#current : this.#order[this.#first];
    for (const [row, element] of this.#rows) {
      element.place(this.#places.get(row), this.#height);
      setAttribute(element.element, "tabindex", row === tabbable ? 0 : -1);
    }
  }

  #replace(wanted) {
    const shown = new Set(wanted);
    const focused = document.activeElement;
    for (const [row, element] of this.#rows) {
      if (shown.has(row)) continue;
      element.element.remove();
      this.#rows.delete(row);
    }
    let before = null;
    for (const row of wanted) {
      let element = this.#rows.get(row);
      if (!element) {
        element = new MapRowElement(row, this.#judges);
        element.show(this.#cellsOf(row));
        element.open(row === this.#opened ? 0 : null);
        this.#rows.set(row, element);
      }
      // A screen reader reads the elements in their order: it must be that of the table.
      const next = before ? before.nextSibling : this.#body.firstChild;
      if (next !== element.element) this.#body.insertBefore(element.element, next);
      before = element.element;
    }
    if (focused !== document.activeElement && this.#body.contains(focused)) focused.focus();
  }

  #focusedRow() {
    const focused = document.activeElement;
    return this.#body.contains(focused) ? Number(focused.dataset.row) - 1 : null;
  }

  #click(event) {
    const element = event.target.closest("[data-row]");
    if (!element) return;
    const row = Number(element.dataset.row) - 1;
    this.#current = row;
    const cell = event.target.closest("[data-judge]");
    this.#onOpen(row, cell ? Number(cell.dataset.judge) - 1 : 0);
    this.#render();
    this.#rows.get(row)?.element.focus({ preventScroll: true });
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const row = this.#focusedRow();
    const place = this.#places.get(row);
    if (place === undefined) return;
    const end = this.#order.length - 1;
    const places = {
      ArrowDown: place + 1,
      ArrowUp: place - 1,
      PageDown: place + PAGE_ROWS,
      PageUp: place - PAGE_ROWS,
      Home: 0,
      End: end,
    };
    if (event.key in places) this.#go(Math.min(end, Math.max(0, places[event.key])));
    else if (event.key === "Enter" || event.key === " ") this.#onOpen(row, 0);
    else if (event.key === "Escape") this.#onClose();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #go(place) {
    const row = this.#order[place];
    this.reveal(row);
    this.#rows.get(row)?.element.focus({ preventScroll: true });
  }
}
