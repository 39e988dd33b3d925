// What the agent of a conversation is writing now, below the log of messages.

import { make, setText } from "./dom.js";
import { Prose } from "./prose.js";
import { ToolCalls, titleOf } from "./tool_calls.js";

export class LiveBlock {
  #n = null;
  #known = new Map();
  #author = document.createTextNode("");
  #doing = document.createTextNode("");
  #prose = new Prose("agentnb-live-text", "What the agent says", { fromEnd: true });
  #tools = new ToolCalls();
  #toolsTitle = document.createTextNode("");
  #toolsBox;
  element;

  constructor() {
    this.#toolsBox = make(
      "details",
      "agentnb-folding",
      { hidden: "" },
      make("summary", "", {}, this.#toolsTitle),
      this.#tools.element,
    );
    this.element = make(
      "div",
      "agentnb-line agentnb-live-block",
      { "aria-live": "off", "data-who": "agent", hidden: "" },
      make(
        "div",
        "agentnb-line-head",
        {},
        make("strong", "agentnb-line-author", { dir: "auto" }, this.#author),
        make("span", "agentnb-line-kind", {}, this.#doing),
      ),
      this.#toolsBox,
      this.#prose.element,
    );
  }

  name(author) {
    setText(this.#author, author);
    this.#prose.label(`What ${author || "the agent"} says`);
  }

  /** Applies a `live` message. Returns whether an earlier one is missing. */
  take(message) {
    if (message.over) {
      this.clear();
      return false;
    }
    if (!message.reset && message.n !== this.#n + 1) return this.#n !== null;
    this.#n = message.n;
    this.element.hidden = false;
    if (message.reset) this.#known.clear();
    if (typeof message.doing === "string") setText(this.#doing, message.doing || "at work");
    if (typeof message.text === "string") this.#prose.set(message.text);
    if (typeof message.add === "string") this.#prose.add(message.add);
    if (Array.isArray(message.tools)) this.#takeTools(message.tools, message.reset);
    return false;
  }

  clear() {
    this.#n = null;
    this.#known.clear();
    this.#prose.set("");
    this.element.hidden = true;
  }

  /** Clears the activity: the kernel is gone. */
  stop() {
    setText(this.#doing, "");
  }

  #takeTools(tools, isAll) {
    for (const { n, status } of tools) this.#known.set(n, status);
    if (isAll) this.#tools.set(tools);
    else this.#tools.add(tools);
    setText(this.#toolsTitle, titleOf([...this.#known.values()]));
    this.#toolsBox.hidden = this.#known.size === 0;
  }
}
