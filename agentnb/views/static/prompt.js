// The prompt of a call exactly as it was sent: the system prompt and the messages, in order. Its
// elements are made only when it is opened: a prompt may be long, and most are never opened.

import { make, setText } from "./dom.js";
import { counted, textSize } from "./format.js";
import { Prose } from "./prose.js";

export class Prompt {
  #prompt = null;
  #drawn = null;
  #summary = document.createTextNode("");
  #body = make("div", "agentnb-prompt-body");
  element = make(
    "details",
    "agentnb-folding agentnb-prompt",
    { hidden: "" },
    make("summary", "", {}, this.#summary),
    this.#body,
  );

  constructor() {
    this.element.addEventListener("toggle", () => this.#draw());
  }

  /** Shows a prompt, `null` for none. */
  show(prompt) {
    this.element.hidden = prompt === null;
    if (prompt === this.#prompt) return;
    this.#prompt = prompt;
    if (prompt === null) return;
    const messages = messagesOf(prompt);
    const length = messages.reduce(
      (sum, { text }) => sum + text.length,
      prompt.system?.length ?? 0,
    );
    const size = `${counted(messages.length, "message")}, ${textSize(length)}`;
    setText(this.#summary, `Prompt as sent (${size})`);
    this.#draw();
  }

  #draw() {
    if (!this.element.open || this.#prompt === null || same(this.#drawn, this.#prompt)) return;
    this.#drawn = this.#prompt;
    const parts = [];
    if (this.#prompt.system) parts.push(part("system", this.#prompt.system));
    for (const { role, text } of messagesOf(this.#prompt)) parts.push(part(role, text));
    this.#body.replaceChildren(...parts);
  }
}

function part(role, text) {
  const prose = new Prose("agentnb-message", `Message of ${role}`);
  prose.set(text);
  return make(
    "div",
    "agentnb-section",
    {},
    make("div", "agentnb-section-title", {}, role),
    prose.element,
  );
}

function messagesOf(prompt) {
  const messages = Array.isArray(prompt.messages) ? prompt.messages : [];
  return messages.map(({ role, text }) => ({ role: String(role ?? ""), text: String(text ?? "") }));
}

function same(one, other) {
  if (one === null || other === null) return one === other;
  if (one.system !== other.system) return false;
  const [left, right] = [messagesOf(one), messagesOf(other)];
  return (
    left.length === right.length &&
    left.every(({ role, text }, place) => role === right[place].role && text === right[place].text)
  );
}
