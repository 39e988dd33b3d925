// The tool calls of an agent as a list: status, arguments, result. A call keeps its place and element,
// so that an opened one stays open while others change.

import { make, makeButton, setAttribute, setText } from "./dom.js";
import { counted, duration, openFor, textSize, toolCount, wholeNumber } from "./format.js";
import { Pictures } from "./pictures.js";
import { makeMark } from "./status.js";

const STATES = {
  open: ["at work", "running"],
  done: ["done", "completed"],
  error: ["error", "failed"],
  cancelled: ["cancelled", "cancelled"],
  interrupted: ["interrupted", "interrupted"],
};
const SHORT = { chars: 160, lines: 3 };
const SHORT_CODE = { chars: 1000, lines: 16 };
const NEAR_END = 12;

export class ToolCalls {
  #items = new Map();
  #isAtEnd = true;
  #top = 0;
  #title = document.createTextNode("");
  #list = make("ol", "agentnb-tools-list", { role: "list" });
  #box = make("div", "agentnb-tools-box", { tabindex: 0, role: "group" }, this.#list);
  element = make(
    "div",
    "agentnb-tools",
    { hidden: "" },
    make("div", "agentnb-section-title", {}, this.#title),
    this.#box,
  );

  constructor() {
    this.#box.addEventListener("scroll", () => this.#look());
    // A picture takes up its room only once it has loaded.
    this.#box.addEventListener("load", () => this.#follow(), true);
  }

  /** Names the agent that made the calls. */
  label(path) {
    setAttribute(this.#box, "aria-label", `Tool calls of agent ${path}`);
  }

  /** Shows these calls and no others. */
  set(lines) {
    const known = new Set(lines.map(({ n }) => n));
    for (const [n, { element }] of this.#items) {
      if (known.has(n)) continue;
      element.remove();
      this.#items.delete(n);
    }
    this.add(lines);
  }

  /** Updates new or changed calls. */
  add(lines) {
    this.#look();
    for (const line of lines) {
      if (!this.#items.has(line.n)) {
        const item = new ToolCall();
        this.#items.set(line.n, item);
        this.#list.append(item.element);
      }
      this.#items.get(line.n).show(line);
    }
    this.element.hidden = this.#items.size === 0;
    setText(this.#title, titleOf([...this.#items.values()].map(({ state }) => state)));
    if (lines.length) this.#follow();
  }

  // Only the reader scrolls up: growing content does not change the scroll position.
  #look() {
    const { scrollTop, clientHeight, scrollHeight } = this.#box;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - NEAR_END;
    if (isAtEnd || scrollTop < this.#top) this.#isAtEnd = isAtEnd;
    this.#top = scrollTop;
  }

  #follow() {
    if (this.#isAtEnd) this.#box.scrollTop = this.#box.scrollHeight;
  }

  /** Updates only times. */
  tick(now) {
    for (const item of this.#items.values()) item.tick(now);
  }
}

/** `3 tool calls, 1 error, 1 at work`. */
export function titleOf(states) {
  const count = (wanted) => states.filter((state) => state === wanted).length;
  const made = { tool_calls: states.length, tool_errors: count("error") };
  const open = count("open") ? `, ${wholeNumber(count("open"))} at work` : "";
  return toolCount(made, "tool call") + open;
}

class ToolCall {
  #line = null;
  #mark = makeMark("running");
  #words = {};
  #input = new Excerpt();
  #result = new Excerpt("Result");
  #pictures = new Pictures();
  #said;
  element;

  constructor() {
    this.#said = make("div", "agentnb-tool-said", { dir: "auto", hidden: "" }, this.#text("said"));
    this.element = make(
      "li",
      "agentnb-tool",
      {},
      make(
        "div",
        "agentnb-tool-head",
        {},
        this.#mark.element,
        make("strong", "agentnb-tool-name", { dir: "auto" }, this.#text("name")),
        make("span", "agentnb-tool-state", {}, this.#text("state")),
        make("span", "agentnb-tool-time", {}, this.#text("time")),
      ),
      this.#said,
      this.#input.element,
      this.#result.element,
      this.#pictures.element,
    );
  }

  get state() {
    return this.#line.status;
  }

  show(changed) {
    // The kernel sends the arguments only once.
    this.#line = { ...this.#line, ...changed };
    const line = this.#line;
    const [word, shape] = Object.hasOwn(STATES, line.status)
      ? STATES[line.status]
      : [String(line.status ?? ""), ""];
    setAttribute(this.element, "data-tool-state", line.status);
    this.#mark.show(shape);
    setText(this.#words.name, line.name ?? "");
    setText(this.#words.state, word);
    setText(this.#words.said, line.said ?? "");
    this.#said.hidden = !line.said;
    // Code and its output have lines and columns of their own, so they get the whole width.
    setAttribute(this.element, "data-code", line.is_code ? "" : null);
    this.#input.name = line.is_code ? "Code" : "Arguments";
    this.#input.show(line.input ?? "", line.input_cut, line);
    this.#result.show(line.result ?? "", line.result_cut, line);
    this.#pictures.show(line.pictures ?? []);
    const time = Number.isFinite(line.duration_ms) ? duration(line.duration_ms / 1000) : "";
    if (line.status !== "open") setText(this.#words.time, time);
  }

  tick(now) {
    if (this.state === "open") {
      setText(this.#words.time, openFor({ since: this.#line.begun }, now));
    }
  }

  #text(key) {
    this.#words[key] = document.createTextNode("");
    return this.#words[key];
  }
}

// A text of which only the beginning is shown until the user requests all.
class Excerpt {
  #text = "";
  #isWhole = false;
  #most = SHORT;
  #name = document.createTextNode("");
  #shown = document.createTextNode("");
  #note = document.createTextNode("");
  #noteBox = make("span", "agentnb-tool-note", { hidden: "" }, this.#note);
  #more = makeButton("agentnb-tool-more", "", { hidden: "" });
  element;

  /** The heading: `Code`, `Arguments` or `Result`. */
  get name() {
    return this.#name.data;
  }

  set name(name) {
    setText(this.#name, name);
  }

  constructor(name = "") {
    this.name = name;
    this.element = make(
      "div",
      "agentnb-tool-part",
      { hidden: "" },
      make("span", "agentnb-tool-label", {}, this.#name),
      make("div", "agentnb-tool-text", { dir: "auto" }, this.#shown),
      make("div", "agentnb-tool-rest", {}, this.#noteBox, this.#more),
    );
    this.#more.addEventListener("click", () => {
      this.#isWhole = !this.#isWhole;
      this.#draw();
    });
  }

  /** `cut` is the full length in characters if `text` is only the beginning, else `null`. */
  show(text, cut, { n, name, is_code }) {
    this.element.hidden = !text;
    this.#most = is_code ? SHORT_CODE : SHORT;
    setAttribute(this.#more, "data-of", `${this.name} of call ${n}, ${name}`);
    const words = Number.isFinite(cut) ? `The beginning of ${counted(cut, "character")}.` : "";
    setText(this.#note, words);
    this.#noteBox.hidden = !words;
    if (text === this.#text) return;
    this.#text = text;
    this.#isWhole = false;
    this.#draw();
  }

  #draw() {
    const short = beginning(this.#text, this.#most);
    const isCut = short.length < this.#text.length;
    setText(this.#shown, isCut && !this.#isWhole ? `${short}…` : this.#text);
    this.#more.hidden = !isCut;
    const size = textSize(this.#text.length);
    const words = this.#isWhole ? "Show less" : `Show all of it (${size})`;
    this.#more.textContent = words;
    setAttribute(this.#more, "aria-expanded", String(this.#isWhole));
    setAttribute(this.#more, "aria-label", `${words}: ${this.#more.dataset.of}`);
  }
}

/** The first lines of a text, cut if they are long. */
export function beginning(text, { chars, lines } = SHORT) {
  const first = text.split("\n", lines).join("\n");
  if (first.length <= chars) return first;
  const last = first.charCodeAt(chars - 1);
  // Do not cut a character in half.
  return first.slice(0, last >= 0xd800 && last <= 0xdbff ? chars - 1 : chars);
}
