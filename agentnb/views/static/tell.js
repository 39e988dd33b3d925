// The field in the details for a person's note to an agent. The agent reads it with its next call;
// until then a line says so.

import { make, makeButton, setText } from "./dom.js";
import { isFinal } from "./status.js";

const LONGEST = 20_000;

export class Tell {
  #path = null;
  #told = 0;
  /** Unsent drafts, by path. */
  #drafts = new Map();
  /**
   * The last note sent to each agent, by path: `{ text, until, hasFailed }`. The agent has read it
   * once it has read `until` notes.
   */
  #sent = new Map();
  #line = document.createTextNode("");
  #field = make("textarea", "agentnb-field agentnb-tell-field", {
    rows: 1,
    maxlength: LONGEST,
    placeholder: "Say something to this agent",
    "aria-label": "Say something to this agent",
    title: "Enter sends, Shift+Enter starts a new line",
    dir: "auto",
  });
  #button = makeButton("agentnb-tell-send", "Send");

  /** `onTell(path, text)` sends a note. */
  constructor({ onTell, signal }) {
    const line = make("div", "agentnb-tell-line", { role: "status", dir: "auto" }, this.#line);
    this.element = make(
      "div",
      "agentnb-tell",
      { role: "group", "aria-label": "Say something to this agent", hidden: "" },
      this.#field,
      this.#button,
      line,
    );
    const send = () => this.#send(onTell);
    this.#button.addEventListener("click", send, { signal });
    const keyed = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    };
    this.#field.addEventListener("keydown", keyed, { signal });
    this.#field.addEventListener("input", () => this.#grow(), { signal });
  }

  /** Switches to another agent; the draft for the one before is kept. */
  begin(path) {
    if (path === this.#path) return;
    if (this.#path !== null) this.#drafts.set(this.#path, this.#field.value);
    this.#path = path;
    this.#told = 0;
    this.#field.value = this.#drafts.get(path) ?? "";
    this.#grow();
  }

  /** The agent has read this many notes from a person. */
  heard(told) {
    this.#told = told;
  }

  /** `canTell` is whether the run can be steered. Returns whether the field has lost the focus. */
  show(row, { canTell }) {
    this.element.hidden = !canTell;
    const hasEnded = isFinal(row.status);
    const hadFocus = this.element.contains(document.activeElement);
    this.#field.disabled = this.#button.disabled = hasEnded;
    const ended = "This agent has ended and reads no more notes.";
    setText(this.#line, hasEnded ? ended : this.#waiting());
    return hadFocus && (hasEnded || !canTell);
  }

  /** The run did not accept the note to the agent at `path`. */
  failed(path) {
    const sent = this.#sent.get(path);
    if (!sent) return;
    this.#sent.set(path, { ...sent, hasFailed: true });
    if (path !== this.#path) this.#drafts.set(path, this.#drafts.get(path) || sent.text);
    else if (!this.#field.value) this.#field.value = sent.text;
    this.#grow();
  }

  #waiting() {
    const sent = this.#sent.get(this.#path);
    if (!sent) return "";
    if (sent.hasFailed) return "Not sent: a line above the tree says why.";
    const hasRead = this.#told >= sent.until;
    return hasRead ? "The agent has read this." : "The agent reads this at its next turn.";
  }

  #send(onTell) {
    const text = this.#field.value.trim();
    if (!text || this.#field.disabled || this.#path === null) return;
    const before = this.#sent.get(this.#path);
    const pending = before && !before.hasFailed ? Math.max(before.until, this.#told) : this.#told;
    this.#sent.set(this.#path, { text, until: pending + 1, hasFailed: false });
    this.#field.value = "";
    this.#grow();
    setText(this.#line, this.#waiting());
    this.#field.focus();
    onTell(this.#path, text);
  }

  #grow() {
    const lines = this.#field.value.split("\n").length;
    this.#field.rows = Math.min(Math.max(lines, 1), 6);
  }
}
