// The list of a board: a listbox with only its visible rows in the page, so that five hundred cost
// as much as ten. All rows have the same height. The keyboard focus stays on the listbox itself,
// which names its active row, so no update can take the focus away.

import { placeAfterKey } from "./board_keys.js";
import { BoardRow } from "./board_rows.js";
import { make, setAttribute } from "./dom.js";

/** Height of a row in pixels, as in `boards.css`. */
export const ROW_PX = 46;
const MARGIN_ROWS = 4;

export class BoardList {
  /** The id of the chosen row; `null` for none. */
  chosen = null;
  #kind;
  #prefix;
  #onChoose;
  #rows = [];
  #places = new Map();
  /** The rows that are in the page, by id. */
  #shown = new Map();
  #numbers = new Map();
  #paint = null;
  #space = make("div", "agentnb-list-space", { role: "presentation" });
  element;

  /** `onChoose(id)` is called when a person chooses a row. `prefix` begins the ids of elements. */
  constructor(kind, label, { prefix, onChoose, signal }) {
    this.#kind = kind;
    this.#prefix = prefix;
    this.#onChoose = onChoose;
    const attributes = { role: "listbox", tabindex: 0, "aria-label": label };
    this.element = make("div", "agentnb-list", attributes, this.#space);
    this.element.addEventListener("keydown", (event) => this.#press(event), { signal });
    this.element.addEventListener("click", (event) => this.#click(event), { signal });
    this.element.addEventListener("scroll", () => this.#soon(), { signal });
    const size = new ResizeObserver(() => this.#soon());
    size.observe(this.element);
    signal.addEventListener("abort", () => {
      size.disconnect();
      cancelAnimationFrame(this.#paint);
    });
  }

  /** Shows these rows in this order; the visible ones stay in place. */
  show(rows) {
    const { scrollTop } = this.element;
    const first = this.#rows[Math.floor(scrollTop / ROW_PX)]?.id;
    const before = this.#places.get(first);
    this.#rows = rows;
    this.#places = new Map(rows.map(({ id }, place) => [id, place]));
    this.#space.style.height = `${rows.length * ROW_PX}px`;
    const after = this.#places.get(first);
    if (scrollTop > 0 && before !== undefined && after !== undefined && before !== after) {
      this.element.scrollTop = scrollTop + (after - before) * ROW_PX;
    }
    this.#draw();
  }

  /** Chooses a row from code: `onChoose` is not called. */
  choose(id) {
    this.chosen = id;
    this.#draw();
  }

  #press(event) {
    const at = this.#places.get(this.chosen) ?? -1;
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 1);
    const place = placeAfterKey(event, at, this.#rows.length, page);
    if (place === null) return;
    event.preventDefault();
    event.stopPropagation();
    this.#choosePlace(place);
  }

  #click(event) {
    const id = event.target.closest?.("[role=option]")?.dataset.id;
    if (id !== undefined) this.#choosePlace(this.#places.get(id) ?? -1);
  }

  #choosePlace(place) {
    const row = this.#rows[place];
    if (!row) return;
    const isNew = row.id !== this.chosen;
    this.chosen = row.id;
    this.#reveal(place);
    this.#draw();
    if (isNew) this.#onChoose(row.id);
  }

  #reveal(place) {
    const { scrollTop, clientHeight } = this.element;
    const top = place * ROW_PX;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + ROW_PX > scrollTop + clientHeight) {
      this.element.scrollTop = top + ROW_PX - clientHeight;
    }
  }

  #soon() {
    this.#paint ??= requestAnimationFrame(() => {
      this.#paint = null;
      this.#draw();
    });
  }

  #draw() {
    const { scrollTop, clientHeight } = this.element;
    const begin = Math.max(0, Math.floor(scrollTop / ROW_PX) - MARGIN_ROWS);
    const end = Math.ceil((scrollTop + clientHeight) / ROW_PX) + MARGIN_ROWS;
    const wanted = new Map(this.#rows.slice(begin, end).map((row) => [row.id, row]));
    const chosen = this.#places.get(this.chosen);
    // The listbox names the chosen row, so it must be in the page.
    if (chosen !== undefined) wanted.set(this.chosen, this.#rows[chosen]);
    for (const [id, { element }] of this.#shown) {
      if (wanted.has(id)) continue;
      element.remove();
      this.#shown.delete(id);
    }
    for (const row of wanted.values()) this.#place(row);
    const active = this.#shown.get(this.chosen)?.element.id;
    setAttribute(this.element, "aria-activedescendant", active ?? null);
  }

  #place(row) {
    let shown = this.#shown.get(row.id);
    if (!shown) {
      const number = this.#numbers.get(row.id) ?? this.#numbers.size;
      this.#numbers.set(row.id, number);
      const id = `${this.#prefix}-row-${number}`;
      const element = make("div", "agentnb-row", { role: "option", id, "data-id": row.id });
      shown = { element, parts: new BoardRow(this.#kind, element), row: null, place: null };
      this.#shown.set(row.id, shown);
      this.#space.append(element);
    }
    const { element } = shown;
    const place = this.#places.get(row.id);
    if (shown.row !== row) shown.parts.show(row);
    if (shown.place !== place) element.style.transform = `translateY(${place * ROW_PX}px)`;
    shown.row = row;
    shown.place = place;
    setAttribute(element, "aria-setsize", this.#rows.length);
    setAttribute(element, "aria-posinset", place + 1);
    setAttribute(element, "aria-selected", String(row.id === this.chosen));
  }
}
