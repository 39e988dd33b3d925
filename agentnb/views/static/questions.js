// The open questions of a run, oldest first. The first ones are unfolded, the others are lines that
// unfold. When the focused question is removed, the keyboard focus moves to the next one; a new
// question never takes it.

import { make, setText } from "./dom.js";
import { counted } from "./format.js";
import { Question } from "./question.js";

const OPEN = 2;

export class Questions {
  #actions;
  #items = new Map();
  #title = document.createTextNode("");
  #heading = make(
    "div",
    "agentnb-questions-title",
    { role: "heading", "aria-level": 3, tabindex: -1 },
    this.#title,
  );
  #list = make("div", "agentnb-questions-list");
  #live = make("div", "agentnb-live", { "aria-live": "assertive" });
  #isLeft = false;

  /** `actions` has `onAnswer` and `onShow`: see `Question`. */
  constructor(actions) {
    this.#actions = actions;
    // Not a `section`: reveal.js takes each for a slide.
    this.element = make(
      "div",
      "agentnb-questions",
      { role: "region", "aria-label": "Questions of this run", hidden: "" },
      this.#heading,
      this.#list,
    );
    this.live = this.#live;
    this.#heading.addEventListener("blur", () =>
      afterPress(() => {
        this.#isLeft = false;
        this.#name();
      }),
    );
  }

  /** Shows the open questions. */
  show(rows, { canAnswer }) {
    const before = [...this.#items.keys()];
    const focused = before.findIndex((id) =>
      this.#items.get(id).element.contains(document.activeElement),
    );
    const wanted = new Set(rows.map(({ id }) => id));
    const isGone = focused >= 0 && !wanted.has(before[focused]);
    for (const [id, item] of this.#items) {
      if (wanted.has(id)) continue;
      item.element.remove();
      this.#items.delete(id);
    }
    for (const row of rows) if (!this.#items.has(row.id)) this.#add(row);
    for (const item of this.#items.values()) item.enable(canAnswer);
    for (const item of [...this.#items.values()].slice(0, OPEN)) item.openOnce();
    this.#isLeft ||= isGone && this.#items.size === 0;
    this.#name();
    if (isGone) this.#focusAfter(before.slice(0, focused));
  }

  /** Announces new questions to screen readers at once. */
  announce(rows) {
    if (!rows.length) return;
    const [{ path, text }] = rows;
    const more = rows.length > 1 ? `${counted(rows.length, "new question")}. The first: ` : "";
    this.#live.textContent = `${more}Agent ${path} asks: ${text}`;
  }

  /** The run did not accept an answer. */
  failed(id) {
    this.#items.get(id)?.failed();
  }

  /** Moves the keyboard focus to the first question; false if there is none. */
  focus() {
    const [first] = this.#items.values();
    first?.focus();
    return first !== undefined;
  }

  #add(row) {
    const item = new Question(row, this.#actions);
    this.#items.set(row.id, item);
    this.#list.append(item.element);
  }

  #name() {
    const count = this.#items.size;
    setText(this.#title, count ? `${counted(count, "question")} from agents` : "No more questions");
    this.element.hidden = count === 0 && !this.#isLeft;
  }

  #focusAfter(idsBefore) {
    const kept = idsBefore.filter((id) => this.#items.has(id)).length;
    const items = [...this.#items.values()];
    const next = items[kept] ?? items.at(-1);
    if (next) next.focus();
    else this.#heading.focus();
  }
}

// Pressing a mouse button elsewhere takes the focus. Act only when the button is released: if the
// page moved before, the click would miss its target.
function afterPress(act) {
  if (!document.documentElement.matches(":active")) return act();
  addEventListener("pointerup", () => setTimeout(act), { once: true });
}
