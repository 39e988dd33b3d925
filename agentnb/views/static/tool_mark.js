// The mark of tool calls on an agent's card: the open one, its last report and its time; afterwards the
// number of calls. It is made with an agent's first call: most agents have none.

import { make, makeSvg, setAttribute, setText } from "./dom.js";
import { openFor, toolCount, wholeNumber } from "./format.js";

// A nut, in a square from -1 to 1: a shape that no status has.
const SHAPE = "M-1 0L-.5-.87H.5L1 0L.5.87H-.5ZM.42 0A.42.42 0 1 0-.42 0A.42.42 0 1 0 .42 0Z";

export class ToolMark {
  #foot;
  #before;
  #parts = null;

  /** `foot` holds the mark: its words first, and its time before the element `before`. */
  constructor(foot, before) {
    this.#foot = foot;
    this.#before = before;
  }

  /** Shows the calls of a row, or none for `null`. `isBrief` leaves room for other words. */
  show(row, { isBrief }) {
    const open = row?.tool ?? null;
    const words = open ? String(open.name ?? "") : countWords(row, isBrief);
    if (!words && !this.#parts) return;
    this.#parts ??= this.#make();
    setText(this.#parts.words, words);
    setText(this.#parts.said, open?.said ? `: ${open.said}` : "");
    setAttribute(this.#parts.element, "data-tool", open ? "open" : null);
    setAttribute(this.#parts.element, "hidden", words ? null : "");
  }

  /** Updates only times. */
  tick(row, now) {
    if (this.#parts) setText(this.#parts.time, row ? openFor(row.tool, now) : "");
  }

  #make() {
    const words = document.createTextNode("");
    const said = document.createTextNode("");
    const time = document.createTextNode("");
    const shape = makeSvg(
      "svg",
      { class: "agentnb-tool-mark", viewBox: "-1.05 -1.05 2.1 2.1", "aria-hidden": "true" },
      makeSvg("path", { "fill-rule": "evenodd", d: SHAPE }),
    );
    // The report is not part of the card's name: it changes too often.
    const report = make("span", "", { "aria-hidden": "true" }, said);
    const text = make("span", "agentnb-node-tool-words", { dir: "auto" }, words, report);
    const element = make("span", "agentnb-node-tool", {}, shape, text);
    this.#foot.prepend(element, " ");
    const clock = make("span", "agentnb-node-tool-time", { "aria-hidden": "true" }, time);
    this.#foot.insertBefore(clock, this.#before);
    return { element, words, said, time };
  }
}

function countWords(row, isBrief) {
  return isBrief && row?.tool_calls ? wholeNumber(row.tool_calls) : toolCount(row);
}
