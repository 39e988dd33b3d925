// The calls of an agent: which one is shown, and its status. Without a choice it is the newest.

import { make, setText } from "./dom.js";
import { counted, duration, wholeNumber } from "./format.js";

const FOLLOW = "";

export class Calls {
  #select = make("select", "agentnb-calls-select", { "aria-label": "Call to the model" });
  #summary = document.createTextNode("");
  #error = document.createTextNode("");
  #errorBox = make("div", "agentnb-call-error", { dir: "auto", hidden: "" }, this.#error);
  #options = new Map();

  /** `onCall(number)` is called with the user's choice; `null` follows the newest call. */
  constructor(onCall, signal) {
    this.#select.append(this.#option(FOLLOW).element);
    this.element = make(
      "div",
      "agentnb-calls",
      { hidden: "" },
      this.#select,
      make("span", "agentnb-calls-summary", {}, this.#summary),
      this.#errorBox,
    );
    const changed = () => onCall(this.#select.value === FOLLOW ? null : Number(this.#select.value));
    this.#select.addEventListener("change", changed, { signal });
  }

  /** Without a kernel no other call can be shown. */
  turnOff(isOff) {
    this.#select.disabled = isOff;
  }

  /** Shows the calls of a `details` message. */
  show({ calls = [], call = null, following = true }) {
    const known = new Set([FOLLOW]);
    setText(this.#option(FOLLOW).text, `Newest of ${counted(calls.length, "call")}`);
    for (const one of calls) {
      known.add(String(one.n));
      setText(this.#option(String(one.n)).text, title(one));
    }
    for (const [key, { element }] of this.#options) {
      if (known.has(key)) continue;
      element.remove();
      this.#options.delete(key);
    }
    const wanted = following || call === null ? FOLLOW : String(call);
    if (this.#select.value !== wanted) this.#select.value = wanted;
    const shown = calls.find((one) => one.n === call);
    setText(this.#summary, shown ? summary(shown) : "");
    setText(this.#error, shown?.error ?? "");
    this.#errorBox.hidden = !shown?.error;
    this.element.hidden = calls.length === 0;
  }

  #option(key) {
    const known = this.#options.get(key);
    if (known) return known;
    const text = document.createTextNode("");
    const option = { text, element: make("option", "", { value: key }, text) };
    this.#options.set(key, option);
    this.#select.append(option.element);
    return option;
  }
}

function title(call) {
  const kind = call.is_synthesis ? "synthesis" : "";
  const retried = call.attempt > 1 ? `attempt ${call.attempt}` : "";
  return [`Call ${call.n}`, kind, retried, stateOf(call)].filter(Boolean).join(" · ");
}

function summary(call) {
  const tokens = call.tokens ? `${wholeNumber(call.tokens)} tokens` : "";
  const time = Number.isFinite(call.duration_ms) ? duration(call.duration_ms / 1000) : "";
  return [call.model, stateOf(call), tokens, time, call.stop_reason].filter(Boolean).join(" · ");
}

function stateOf({ status }) {
  return { open: "at work", done: "done", error: "failed" }[status] ?? String(status ?? "");
}
