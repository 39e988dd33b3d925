// One message of a conversation: its author, its text and the tool calls behind it, which are
// requested when the reader unfolds them.

import { richNodes } from "./board_rich.js";
import { make, setText } from "./dom.js";
import { waitingWords } from "./format.js";
import { ToolCalls } from "./tool_calls.js";

const KINDS = { note: "note", task_assignment: "assignment", task_completion: "completion" };

const TOOLS = "tool calls are";

export class BoardLine {
  #line = null;
  #onCalls;
  #words = {};
  #body = make("div", "agentnb-line-body", { dir: "auto" });
  #tools = null;
  #isOff = false;
  element;

  /** `onCalls(run)` requests the tool calls of a run. */
  constructor(onCalls) {
    this.#onCalls = onCalls;
    this.element = make(
      "div",
      "agentnb-line",
      {},
      make(
        "div",
        "agentnb-line-head",
        {},
        make("strong", "agentnb-line-author", { dir: "auto" }, this.#text("author")),
        make("span", "agentnb-line-kind", {}, this.#text("kind")),
      ),
      this.#body,
    );
  }

  get run() {
    return this.#line?.run ?? "";
  }

  show(line) {
    const before = this.#line;
    this.#line = line;
    this.element.dataset.who = line.who;
    const kinds = [KINDS[line.kind] ?? "", line.queued ? "queued" : ""];
    setText(this.#words.author, line.author);
    setText(this.#words.kind, kinds.filter(Boolean).join(", "));
    if (before?.text !== line.text || String(before?.rich) !== String(line.rich)) {
      this.#body.dataset.rich = String(Boolean(line.rich));
      this.#body.replaceChildren(...(line.rich ? richNodes(line.rich) : [line.text]));
      if (!line.rich?.length && !line.text) this.#body.append("(nothing)");
    }
    if (line.tools) this.#offerTools(line);
  }

  /** Says that unread tool calls will not come: the kernel is gone. */
  turnOff(isOff) {
    this.#isOff = isOff;
    const note = this.#tools?.note;
    if (note?.data) setText(note, waitingWords(isOff, TOOLS));
  }

  takeCalls(tools) {
    this.#tools?.calls.set(Array.isArray(tools) ? tools : []);
    if (this.#tools) setText(this.#tools.note, tools?.length ? "" : "No longer available.");
  }

  #offerTools({ tools, run }) {
    if (!this.#tools) {
      const title = document.createTextNode("");
      const note = document.createTextNode(waitingWords(this.#isOff, TOOLS));
      const calls = new ToolCalls();
      const box = make(
        "details",
        "agentnb-folding",
        {},
        make("summary", "", {}, title),
        make("div", "agentnb-line-note", {}, note),
        calls.element,
      );
      box.addEventListener("toggle", () => {
        if (box.open && note.data) this.#onCalls(this.#line.run);
      });
      this.element.append(box);
      this.#tools = { title, note, calls };
    }
    setText(this.#tools.title, tools);
    this.#tools.calls.label(`of the answer of run ${run.slice(0, 8)}`);
  }

  #text(name) {
    this.#words[name] = document.createTextNode("");
    return this.#words[name];
  }
}
