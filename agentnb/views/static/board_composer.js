// A text field with a button and an error line. A sent text stays in the field until the kernel has
// carried out the command; a draft is kept while another thread or task is shown.

import { make, makeButton, setAttribute, setText } from "./dom.js";

export class Composer {
  #onSend;
  #field;
  #button;
  #error = document.createTextNode("");
  #about = null;
  /** Unsent drafts, by the id of their thread or task. */
  #drafts = new Map();
  /** Sent texts that the kernel has not answered yet, by the number of their command. */
  #open = new Map();
  /** Until the kernel has spoken. */
  #isOff = true;
  element;

  /** `onSend(about, text)` sends a command and returns its number. `most` is in characters. */
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
    this.#update();
  }

  /**
   * Switches to the draft for a thread's or task's id; `null` for none. `label` names the field.
   */
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

  /**
   * Takes the kernel's answer to a command: `error` says why it failed, or is empty. Returns
   * whether this field sent it.
   */
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

  /** Disables the field, while no kernel is there, or enables it. */
  turnOff(isOff = true) {
    this.#isOff = isOff;
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

  // A field that waits is read-only, not disabled: a disabled one would lose the focus.
  #update() {
    this.#field.disabled = this.#isOff;
    this.#field.readOnly = this.#isWaiting;
    setAttribute(this.#button, "aria-disabled", this.#isWaiting ? "true" : null);
    this.#button.disabled = this.#isOff;
  }
}
