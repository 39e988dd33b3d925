// A field in which a person writes, a button, and a line for what went wrong. What was written stays
// until the kernel says that it was done, and is kept while something else is looked at.

import { make, makeButton, setAttribute, setText } from "./dom.js";

export class Composer {
  #onSend;
  #field;
  #button;
  #error = document.createTextNode("");
  #about = null;
  /** By what they are about, what was begun and not sent. */
  #drafts = new Map();
  /** By the number of its order, what is on its way. */
  #open = new Map();
  #isOff = false;
  element;

  /** `onSend(about, text)` returns the number of the order. */
  constructor({ label, action, hint, most, onSend }) {
    this.#onSend = onSend;
    const attributes = { rows: 2, placeholder: hint, maxlength: most, "aria-label": label };
    this.#field = make("textarea", "agentnb-field", { ...attributes, dir: "auto" });
    this.#button = makeButton("agentnb-send", action);
    this.element = make(
      "div",
      "agentnb-composer",
      {},
      make("div", "agentnb-composer-row", {}, this.#field, this.#button),
      make("div", "agentnb-composer-error", { role: "alert" }, this.#error),
    );
    this.#button.addEventListener("click", () => this.#send());
    this.#field.addEventListener("input", () => setText(this.#error, ""));
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      event.stopPropagation();
      this.#send();
    });
  }

  /** What is written is about this thread or task; `null` for none. `label` names the field. */
  about(about, label) {
    if (label) setAttribute(this.#field, "aria-label", label);
    if (about !== this.#about) {
      if (this.#about !== null) this.#drafts.set(this.#about, this.#field.value);
      this.#about = about;
      this.#field.value = this.#drafts.get(about) ?? "";
      setText(this.#error, "");
    }
    this.#update();
  }

  /** An order was done, or was not: `error` says why. Whether it was one of this field. */
  done(order, error) {
    const sent = this.#open.get(order);
    if (!sent) return false;
    this.#open.delete(order);
    if (sent.about === this.#about) {
      if (!error && this.#field.value === sent.text) this.#field.value = "";
      setText(this.#error, error);
    } else if (!error && this.#drafts.get(sent.about) === sent.text) {
      this.#drafts.delete(sent.about);
    }
    this.#update();
    return true;
  }

  /** The kernel is gone. */
  turnOff() {
    this.#isOff = true;
    this.#update();
  }

  #send() {
    const text = this.#field.value;
    if (this.#isOff || this.#isWaiting || !text.trim() || this.#about === null) return;
    setText(this.#error, "");
    this.#open.set(this.#onSend(this.#about, text), { about: this.#about, text });
    this.#update();
  }

  get #isWaiting() {
    return [...this.#open.values()].some(({ about }) => about === this.#about);
  }

  // The field stays enabled meanwhile: a disabled one would lose the focus.
  #update() {
    this.#field.disabled = this.#isOff;
    this.#field.readOnly = this.#isWaiting;
    setAttribute(this.#button, "aria-disabled", this.#isWaiting ? "true" : null);
    this.#button.disabled = this.#isOff;
  }
}
