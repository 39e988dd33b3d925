// The card of one agent in the tree. It is made once, and later only changed parts are updated: text
// nodes are kept and their data set, so a frame costs only what has changed.

import { make, makeButton, setAttribute, setText } from "./dom.js";
import { timeLeft, timeTaken, tokenCount, wholeNumber } from "./format.js";
import { isFinal, makeMark, markOf, statusCounts, statusWords } from "./status.js";
import { ToolMark } from "./tool_mark.js";

const FIRST_SHOWN = ["running", "waiting", "failed", "pending"];

/**
 * What a card shows besides its row: `hidden` are the rows below it if it is collapsed, else
 * `null`; `matching` is whether its agent matches the filter.
 */
const PLAIN = { hidden: null, matching: true };

// A card's accessible name is its visible text, for speech input. It omits parts that keep changing,
// since a screen reader would announce the name each time.
const UNNAMED = { "aria-hidden": "true" };

export class Card {
  #words = {};
  #mark = makeMark("pending");
  #tools;
  #reused;
  #tokens;
  #time;
  #isCounting = true;
  #toggle;
  #toggles;
  #stated = {};

  /** `toggles` holds the buttons of branches: inside a card, a button would be part of its name. */
  constructor(path, toggles) {
    this.path = path;
    this.#toggles = toggles;
    const tokens = this.#span("tokens", "agentnb-node-tokens", UNNAMED);
    this.#tokens = tokens;
    this.#time = this.#span("time", "agentnb-node-time", UNNAMED);
    this.#reused = this.#span("reused", "agentnb-node-reused", { hidden: "" });
    const left = this.#span("left", "", UNNAMED);
    const doing = this.#span("doing", "agentnb-node-doing", { dir: "auto" });
    doing.append(left);
    const foot = make("span", "agentnb-node-foot", {}, doing, " ", tokens);
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
        " ",
        this.#span("task", "agentnb-node-task", { dir: "auto" }),
        " ",
        foot,
      ),
    );
    setText(this.#words.path, path);
  }

  /** Shows the agent's row at the run's time `now`, in seconds. */
  update(row, now, { hidden, matching } = PLAIN) {
    this.#state("data-status", row.status);
    this.#state("data-stalled", row.stalled ? "true" : null);
    this.#state("data-match", matching ? null : "false");
    this.#mark.show(markOf(row));
    const retried = row.attempt > 1 ? `, attempt ${row.attempt}` : "";
    setText(this.#words.status, statusWords(row) + retried);
    this.#markReused(row.reused);
    setText(this.#words.task, row.task);
    setText(this.#words.tokens, tokenWords(row, hidden));
    this.#tools.show(hidden ? null : row, { isBrief: Boolean(row.doing || row.error) });
    this.#sum(hidden);
    this.tick(row, now, hidden);
    this.#count(!isFinal(row.status));
  }

  remove() {
    this.element.remove();
    this.#toggle?.remove();
  }

  /** Updates only times. */
  tick(row, now, hidden = null) {
    setText(this.#words.time, timeTaken(row, now));
    // The tool mark shows an open call in place of these words.
    const isDoing = !hidden && !row.tool;
    const left = isDoing ? timeLeft(row, now) : "";
    const doing = isDoing ? row.doing || (left ? "" : (row.error ?? "")) : "";
    setText(this.#words.doing, hidden ? hiddenWords(hidden) : doing);
    setText(this.#words.left, left && doing ? `, ${left}` : left);
    this.#tools.tick(hidden ? null : row, now);
    this.#state("data-trouble", !hidden && !row.doing && row.error ? "true" : null);
  }

  /** Sets its place in the tree, for screen readers and in pixels. */
  place({ level, position, size, expanded, row, column }, sizes, margin) {
    this.#state("aria-level", level);
    this.#state("aria-posinset", position);
    this.#state("aria-setsize", size);
    this.#state("aria-expanded", expanded === null ? null : String(expanded));
    this.#offer(expanded);
    const left = margin + column * sizes.column;
    const top = margin + row * sizes.row;
    this.#move(left, top);
    if (!this.#toggle) return;
    this.#toggle.style.left = `${left + sizes.cardWidth + 1}px`;
    this.#toggle.style.top = `${top + sizes.cardHeight / 2}px`;
  }

  select(selected, focusable) {
    this.#state("aria-selected", String(selected));
    this.#state("tabindex", focusable ? 0 : -1);
  }

  #spans() {
    return [
      this.#span("path", "agentnb-node-path"),
      " ",
      this.#span("status", "agentnb-node-status"),
      " ",
      this.#reused,
      " ",
      this.#time,
    ];
  }

  #span(key, className, attributes = {}) {
    this.#words[key] = document.createTextNode("");
    return make("span", className, attributes, this.#words[key]);
  }

  // Cached: reading it back from the element is slower.
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

  // The arrow keys do the same, so the Tab key skips the button.
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
      this.#toggles.append(this.#toggle);
    }
    if (expanded) this.#nameToggle("−", `Collapse ${this.path}`);
    else if (!this.#words.toggle.data.startsWith("+")) this.#nameToggle("+", `Expand ${this.path}`);
  }

  #sum(hidden) {
    if (!hidden || !this.#toggle) return;
    const count = `+${wholeNumber(hidden.length)}`;
    this.#nameToggle(count, `Expand ${this.path}: ${count}`);
  }

  #nameToggle(text, label) {
    setText(this.#words.toggle, text);
    setAttribute(this.#toggle, "aria-label", label);
  }

  // A reused agent's work comes from the record of an earlier process.
  #markReused(reused) {
    if (reused === (this.#words.reused.data !== "")) return;
    setText(this.#words.reused, reused ? "reused" : "");
    setAttribute(this.#reused, "hidden", reused ? null : "");
  }

  // Changing times and tokens are not part of the card's name; their final values are.
  #count(isCounting) {
    if (isCounting === this.#isCounting) return;
    this.#isCounting = isCounting;
    for (const span of [this.#time, this.#tokens]) {
      setAttribute(span, "aria-hidden", isCounting ? "true" : null);
    }
  }
}

// A collapsed branch shows the count alone: its line counts the agents below it.
function tokenWords(row, hidden) {
  if (!row.tokens) return "";
  const count = tokenCount(row.tokens, row.estimated);
  if (hidden) return count;
  // A short word: what the agent waits for, or why it ended, needs the room.
  if (row.doing || row.error || row.tool_calls) return `${count} tok`;
  return `${count} ${count === "1" ? "token" : "tokens"}`;
}

/** `12 hidden: 3 running, 9 completed`: working agents first, ended ones last. */
export function hiddenWords(rows) {
  const counts = statusCounts(rows.map((row) => row.status));
  const interest = ([status]) => (FIRST_SHOWN.includes(status) ? FIRST_SHOWN.indexOf(status) : 9);
  counts.sort((one, other) => interest(one) - interest(other));
  const words = counts.map(([status, count]) => `${wholeNumber(count)} ${status}`);
  return `${wholeNumber(rows.length)} hidden: ${words.join(", ")}`;
}
