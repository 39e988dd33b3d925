// One row of a map's table. It is made when it scrolls into view; afterwards only changes are
// written. All words are text nodes, since they come from a model or a stranger's table.

import { make, setAttribute, setText } from "./dom.js";
import { makeMark } from "./status.js";

export class MapRowElement {
  #mark = makeMark("pending");
  #status = document.createTextNode("");
  #label = document.createTextNode("");
  #tokens = document.createTextNode("");
  #answers;

  constructor(row, judges) {
    const number = String(row + 1);
    this.#answers = Array.from({ length: judges }, (_, judge) => new Answer(judge, judges));
    const cell = (role, name, ...content) => make("span", name, { role }, ...content);
    this.element = make(
      "div",
      "agentnb-map-row",
      { role: "row", "data-row": number, tabindex: -1, "aria-selected": "false" },
      cell("rowheader", "agentnb-map-number", number),
      cell(
        "gridcell",
        "agentnb-map-status",
        this.#mark.element,
        make("span", "", {}, this.#status),
      ),
      make("span", "agentnb-map-label", { role: "gridcell", dir: "auto" }, this.#label),
      ...this.#answers.map(({ element }) => element),
      cell("gridcell", "agentnb-map-tokens", this.#tokens),
    );
  }

  /** Each of the `answers` has `status`, `words` and `isTrouble`; `words` are those of `status`. */
  show({ status, words, label, tokens, answers }) {
    setAttribute(this.element, "data-status", status);
    this.#mark.show(status);
    setText(this.#status, words);
    setText(this.#label, label);
    setText(this.#tokens, tokens);
    for (const [judge, answer] of answers.entries()) this.#answers[judge]?.show(answer);
  }

  /** Sets its place among the shown rows, from 0. */
  place(place, height) {
    // Index 1 is the row of headings.
    setAttribute(this.element, "aria-rowindex", place + 2);
    const top = `${place * height}px`;
    if (this.element.style.top !== top) this.element.style.top = top;
  }

  /** Marks the judge whose agent is open; `null` for none. */
  open(judge) {
    setAttribute(this.element, "aria-selected", String(judge !== null));
    for (const [number, answer] of this.#answers.entries()) answer.open(number === judge);
  }
}

class Answer {
  #mark;
  #words = document.createTextNode("");

  constructor(judge, judges) {
    // With one judge, the row's own mark shows the status.
    this.#mark = judges > 1 ? makeMark("pending") : null;
    this.element = make(
      "span",
      "agentnb-map-answer",
      { role: "gridcell", "data-judge": judge + 1 },
      ...(this.#mark ? [this.#mark.element] : []),
      make("span", "agentnb-map-words", { dir: "auto" }, this.#words),
    );
  }

  show({ status, words, isTrouble }) {
    this.#mark?.show(status);
    setAttribute(this.element, "data-status", status);
    setAttribute(this.element, "data-trouble", isTrouble ? "true" : null);
    setText(this.#words, words);
  }

  open(isOpen) {
    setAttribute(this.element, "data-open", isOpen ? "true" : null);
  }
}
