// The card of one agent in the tree: an element that is made once and then changed where its row
// changed. Text nodes are kept and only their data is set, so a frame costs what has changed.

import { make, makeButton, setAttribute, setText } from "./dom.js";
import { doingNow, timeTaken, tokenCount, toolCount, wholeNumber } from "./format.js";
import { isFinal, makeMark, statusCounts } from "./status.js";
import { ToolMark } from "./tool_mark.js";

const FIRST_TOLD = ["running", "waiting", "failed", "pending"];

/** What stands in a card besides its row. `hidden` are the rows below it when it is collapsed. */
const PLAIN = { hidden: null, matching: true };

export class Card {
  #words = {};
  #mark = makeMark("pending");
  #tools;
  #toggle;
  #label = null;
  #stated = {};

  constructor(path) {
    this.path = path;
    const tokens = this.#span("tokens", "agentnb-node-tokens");
    const doing = this.#span("doing", "agentnb-node-doing", { dir: "auto" });
    const foot = make("span", "agentnb-node-foot", {}, doing, tokens);
    this.#tools = new ToolMark(foot, tokens);
    this.element = make(
      "div",
      "agentnb-node",
      { role: "treeitem", "data-agent-path": path, tabindex: -1, "aria-selected": "false" },
      make(
        "span",
        "agentnb-node-words",
        {},
        make("span", "agentnb-node-head", {}, this.#mark.element, ...this.#spans()),
        this.#span("task", "agentnb-node-task", { dir: "auto" }),
        foot,
      ),
    );
    setText(this.#words.path, path);
  }

  /** Shows the agent's row as it is at the run's time `now`. */
  update(row, now, { hidden, matching } = PLAIN) {
    this.#state("data-status", row.status);
    this.#state("data-stalled", row.stalled ? "true" : null);
    this.#state("data-match", matching ? null : "false");
    this.#mark.show(row.status);
    const retried = row.attempt > 1 ? `, attempt ${row.attempt}` : "";
    setText(this.#words.status, row.status + retried);
    setText(this.#words.task, row.task);
    setText(this.#words.tokens, tokenWords(row, hidden));
    this.#tools.show(hidden ? null : row, { isBrief: Boolean(row.doing || row.error) });
    this.#sum(hidden);
    this.tick(row, now, hidden);
    this.#name(row, hidden);
  }

  /** Shows only what changes by the mere passing of time. */
  tick(row, now, hidden = null) {
    setText(this.#words.time, timeTaken(row, now));
    // An open tool call has its own words, before these.
    const doing = row.tool ? "" : doingNow(row, now) || (row.error ?? "");
    setText(this.#words.doing, hidden ? hiddenWords(hidden) : doing);
    this.#tools.tick(hidden ? null : row, now);
    this.#state("data-trouble", !hidden && !row.doing && row.error ? "true" : null);
  }

  /** Its place in the tree, in words for a screen reader and in pixels. */
  place({ level, position, size, expanded, row, column }, sizes, margin) {
    this.#state("aria-level", level);
    this.#state("aria-posinset", position);
    this.#state("aria-setsize", size);
    this.#state("aria-expanded", expanded === null ? null : String(expanded));
    this.#offer(expanded);
    this.#move(margin + column * sizes.column, margin + row * sizes.row);
  }

  select(selected, focusable) {
    this.#state("aria-selected", String(selected));
    this.#state("tabindex", focusable ? 0 : -1);
  }

  #spans() {
    return [
      this.#span("path", "agentnb-node-path"),
      this.#span("status", "agentnb-node-status"),
      this.#span("time", "agentnb-node-time"),
    ];
  }

  #span(key, className, attributes = {}) {
    this.#words[key] = document.createTextNode("");
    return make("span", className, attributes, this.#words[key]);
  }

  // Remembers what was written: reading it back from the element costs more.
  #state(name, value) {
    if (this.#stated[name] === value) return;
    this.#stated[name] = value;
    setAttribute(this.element, name, value);
  }

  #move(left, top) {
    if (this.#stated.left !== left) this.element.style.left = `${left}px`;
    if (this.#stated.top !== top) this.element.style.top = `${top}px`;
    this.#stated.left = left;
    this.#stated.top = top;
  }

  // The arrow keys do the same, so the button is no stop for the Tab key.
  #offer(expanded) {
    if (expanded === null) {
      this.#toggle?.remove();
      this.#toggle = undefined;
      return;
    }
    if (!this.#toggle) {
      this.#toggle = makeButton("agentnb-node-toggle", "", {
        tabindex: -1,
        "data-toggle": this.path,
      });
      this.#words.toggle = document.createTextNode("");
      this.#toggle.append(this.#words.toggle);
      this.element.append(this.#toggle);
    }
    const verb = expanded ? "Collapse" : "Expand";
    setAttribute(this.#toggle, "aria-label", `${verb} ${this.path}`);
    if (expanded) setText(this.#words.toggle, "−");
    else if (this.#words.toggle.data === "−" || !this.#words.toggle.data) {
      setText(this.#words.toggle, "+");
    }
  }

  #sum(hidden) {
    if (!hidden || !this.#toggle) return;
    setText(this.#words.toggle, `+${wholeNumber(hidden.length)}`);
  }

  // The name holds no tokens and no seconds: a reader would hear them again and again.
  #name(row, hidden) {
    const parts = [row.path, this.#words.status.data, row.task];
    if (hidden) parts.push(hiddenWords(hidden));
    else {
      if (row.doing || row.error) parts.push(row.doing || row.error);
      if (isFinal(row.status) && row.tool_calls) parts.push(toolCount(row, "tool call"));
    }
    const label = parts.filter(Boolean).join(", ");
    if (label === this.#label) return;
    this.#label = label;
    this.element.setAttribute("aria-label", label);
  }
}

// A closed branch has more to say of those below it than of itself.
function tokenWords(row, hidden) {
  if (!row.tokens) return "";
  const count = tokenCount(row.tokens, row.estimated);
  if (hidden) return count;
  // What it waits for, or why it ended, needs the room beside it more than a long word does.
  if (row.doing || row.error || row.tool_calls) return `${count} tok`;
  return `${count} ${count === "1" ? "token" : "tokens"}`;
}

/** `12 hidden: 3 running, 9 completed`: who is at work comes first, who is done last. */
export function hiddenWords(rows) {
  const counts = statusCounts(rows.map((row) => row.status));
  const interest = ([status]) => (FIRST_TOLD.includes(status) ? FIRST_TOLD.indexOf(status) : 9);
  counts.sort((one, other) => interest(one) - interest(other));
  const words = counts.map(([status, count]) => `${wholeNumber(count)} ${status}`);
  return `${wholeNumber(rows.length)} hidden: ${words.join(", ")}`;
}
