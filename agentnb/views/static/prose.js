// A long text that may still grow, in a scrolling box. It is cut into blocks at line ends, since a
// browser lays out a whole block again when text is added to it. Of a very long text only a part is in
// the page until the user requests all. The scroll position is kept: at the end while the reader is
// there, else in place.

import { make, makeButton } from "./dom.js";
import { textSize } from "./format.js";

const SHOWN = 200_000;
const BLOCK = 4_000;
// Where a very long line is cut.
const LONGEST_BLOCK = 16_000;
const AT_END = 12;

export class Prose {
  #parts = [];
  #length = 0;
  #inPage = 0;
  #all = false;
  #fromEnd;
  #box;
  #tail = null;
  #more = makeButton("agentnb-more", "", { hidden: "" });

  /** `label` names the box; `fromEnd` keeps the end of a long text in the page, else its beginning. */
  constructor(className, label, { fromEnd = false } = {}) {
    this.#fromEnd = fromEnd;
    this.#box = make("div", `agentnb-prose ${className}`, {
      tabindex: 0,
      role: "group",
      "aria-label": label,
    });
    this.element = make("div", "agentnb-prose-frame", {}, this.#more, this.#box);
    this.#more.addEventListener("click", () => this.#showAll());
  }

  get text() {
    if (this.#parts.length > 1) this.#parts = [this.#parts.join("")];
    return this.#parts[0] ?? "";
  }

  label(label) {
    this.#box.setAttribute("aria-label", label);
  }

  /** Replaces the text; the same text again changes nothing. */
  set(text) {
    if (text.length === this.#length && text === this.text) return;
    this.#parts = [text];
    this.#length = text.length;
    this.#all = false;
    this.#draw();
    this.#box.scrollTop = this.#fromEnd ? this.#box.scrollHeight : 0;
  }

  add(text) {
    if (!text) return;
    this.#parts.push(text);
    this.#length += text.length;
    const atEnd = this.#isAtEnd();
    if (this.#fromEnd || this.#all || this.#inPage + text.length <= SHOWN) this.#append(text);
    if (this.#fromEnd && !this.#all && this.#inPage > 1.5 * SHOWN) this.#draw();
    this.#offer();
    if (atEnd) this.#box.scrollTop = this.#box.scrollHeight;
  }

  #isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.#box;
    return this.#fromEnd && scrollTop + clientHeight >= scrollHeight - AT_END;
  }

  #draw() {
    const { text } = this;
    this.#box.replaceChildren();
    this.#tail = null;
    this.#inPage = 0;
    if (this.#all || text.length <= SHOWN) this.#append(text);
    else if (this.#fromEnd) this.#append(afterLineEnd(text, text.length - SHOWN));
    else this.#append(text.slice(0, SHOWN));
    this.#offer();
  }

  #append(text) {
    this.#inPage += text.length;
    for (const piece of pieces(text, this.#tail?.data.length ?? 0)) {
      if (piece.fresh || !this.#tail) {
        this.#tail = document.createTextNode("");
        this.#box.append(make("div", "agentnb-prose-block", {}, this.#tail));
      }
      this.#tail.appendData(piece.text);
    }
  }

  #offer() {
    const missing = this.#length - this.#inPage;
    this.#more.hidden = missing <= 0;
    if (missing <= 0) return;
    const part = this.#fromEnd ? "the end" : "the beginning";
    this.#more.textContent = `Show all of ${textSize(this.#length)} (this is ${part})`;
  }

  #showAll() {
    this.#all = true;
    this.#draw();
    this.#box.focus();
  }
}

/**
 * Cuts text that is added to a block of `length` characters: `fresh` pieces begin new blocks. A block
 * ends at a line end, which is left out, or where it gets too long without one.
 */
export function pieces(text, length) {
  const found = [];
  let fresh = false;
  let begin = 0;
  let used = length;
  while (begin < text.length) {
    const wanted = begin + Math.max(0, BLOCK - used);
    const lineEnd = text.indexOf("\n", wanted);
    const limit = begin + Math.max(1, LONGEST_BLOCK - used);
    if (lineEnd >= 0 && lineEnd <= limit) {
      found.push({ fresh, text: text.slice(begin, lineEnd) });
      begin = lineEnd + 1;
    } else if (limit < text.length) {
      const end = wholeCharacters(text, limit);
      found.push({ fresh, text: text.slice(begin, end) });
      begin = end;
    } else {
      found.push({ fresh, text: text.slice(begin) });
      return found;
    }
    fresh = true;
    used = 0;
  }
  if (fresh) found.push({ fresh: true, text: "" });
  return found;
}

function wholeCharacters(text, end) {
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last <= 0xdbff && end < text.length ? end + 1 : end;
}

function afterLineEnd(text, from) {
  const lineEnd = text.indexOf("\n", from);
  return text.slice(
    lineEnd >= 0 && lineEnd < from + BLOCK ? lineEnd + 1 : wholeCharacters(text, from),
  );
}
