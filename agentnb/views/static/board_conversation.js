// The conversation of a thread: a log of its newest messages, what its agent is writing now, and a
// field for messages to it. It follows its end while the reader is there, else it stays in place.

import { Composer } from "./board_composer.js";
import { BoardLine } from "./board_line.js";
import { LiveBlock } from "./board_live.js";
import { boardWords, makeBoardMark } from "./board_rows.js";
import { make, makeButton, setAttribute, setText } from "./dom.js";
import { counted, waitingWords } from "./format.js";

const LONGEST_MESSAGE = 100_000;
const NEAR_LOG_END = 24;
// Messages to request at first, and how many more with each request for older ones.
const FIRST_MESSAGES = 50;
const MORE_MESSAGES = 100;
const MOST_MESSAGES = 5_000;

export class ConversationPane {
  /** The id of the shown thread; `null` for none. */
  thread = null;
  /** How many of its newest messages to request. */
  most = FIRST_MESSAGES;
  #n = null;
  #isNew = true;
  #isOff = false;
  #lines = new Map();
  #order = [];
  #onAgain;
  #onCalls;
  #name = document.createTextNode("");
  #status = document.createTextNode("");
  #about = document.createTextNode("");
  #hint = document.createTextNode("");
  #hintBox = make("p", "agentnb-log-hint", {}, this.#hint);
  #older = makeButton("agentnb-older", "", { hidden: "" });
  #mark = makeBoardMark();
  #log = make("div", "agentnb-log", { role: "log", "aria-live": "off" });
  #live = new LiveBlock();
  #aloud = makeButton("agentnb-aloud", "Read aloud", { "aria-pressed": "false" });
  #scroller;
  #composer;
  element;

  /**
   * `onAgain()` requests the conversation again, `onSend(thread, text)` sends a message and returns
   * the command's number, `onCalls(thread, run)` requests a run's tool calls.
   */
  constructor({ onAgain, onSend, onCalls }) {
    this.#onAgain = onAgain;
    this.#onCalls = onCalls;
    this.#composer = new Composer({
      label: "Message",
      action: "Send",
      hint: "Write a message. Enter sends, Shift+Enter starts a new line.",
      most: LONGEST_MESSAGE,
      onSend,
    });
    const attributes = { tabindex: 0, role: "group", "aria-label": "Conversation" };
    this.#scroller = make(
      "div",
      "agentnb-log-box",
      attributes,
      this.#hintBox,
      this.#older,
      this.#log,
      this.#live.element,
    );
    this.#older.addEventListener("click", () => this.#readOlder());
    this.#aloud.title = "A screen reader reads new messages aloud";
    this.#aloud.addEventListener("click", () => this.#readAloud());
    const title = make(
      "div",
      "agentnb-log-title",
      {},
      this.#mark.element,
      make("strong", "agentnb-log-name", { dir: "auto" }, this.#name),
      make("span", "agentnb-log-status", {}, this.#status),
      this.#aloud,
    );
    const about = make("div", "agentnb-log-about", { dir: "auto" }, this.#about);
    this.element = make(
      "div",
      "agentnb-conversation",
      {},
      make("div", "agentnb-log-head", {}, title, about),
      this.#scroller,
      this.#composer.element,
    );
  }

  /** Switches to another thread; `null` for none. */
  begin(thread) {
    if (thread === this.thread) return;
    this.thread = thread;
    this.most = FIRST_MESSAGES;
    this.#n = null;
    this.#isNew = true;
    this.#older.hidden = true;
    this.#order = [];
    this.#lines.clear();
    this.#log.replaceChildren();
    this.#live.clear();
    this.#sayWaiting();
    this.#composer.about(thread);
    setText(this.#name, "");
    setText(this.#status, "");
    setText(this.#about, "");
  }

  /** Shows the thread's name, model, kind and task, from its row in the list. */
  describe(row) {
    if (!row) return;
    setText(this.#name, row.name);
    const what = [row.model, row.kind, row.task && `working on “${row.task}”`];
    setText(this.#about, what.filter(Boolean).join(" · ") || "conversation");
  }

  /** Applies a `conversation` message; ignores one about another thread. */
  take(message) {
    if (message.thread !== this.thread) return;
    const isWhole = message.n === 0;
    if (!isWhole && message.n !== this.#n + 1) {
      if (this.#n !== null) this.#again();
      return;
    }
    const wasAtEnd = this.#isNew || this.#isAtEnd();
    // Older messages are inserted above: what the reader looks at must stay in place.
    const { scrollHeight, scrollTop } = this.#scroller;
    const hasOlder = isWhole && !this.#isNew;
    this.#n = message.n;
    this.#isNew = false;
    this.#takeLines(message);
    this.#mark.show(message.status);
    setText(this.#name, message.name);
    setText(this.#status, boardWords(message.status));
    this.#live.name(message.name);
    setAttribute(this.#scroller, "aria-label", `Conversation with ${message.name}`);
    this.#composer.about(this.thread, `Message to ${message.name}`);
    this.#older.hidden = !message.above;
    this.#older.textContent = `Show more of ${counted(message.above, "older message")}`;
    const isEmpty = message.is_there && !this.#order.length;
    const gone = message.is_there ? "" : "This thread no longer exists.";
    this.#say(isEmpty ? "No messages yet." : gone);
    if (wasAtEnd) this.#toEnd();
    else if (hasOlder)
      this.#scroller.scrollTop = scrollTop + this.#scroller.scrollHeight - scrollHeight;
  }

  takeLive(message) {
    if (message.thread !== this.thread) return;
    const wasAtEnd = this.#isAtEnd();
    if (this.#live.take(message)) this.#again();
    if (wasAtEnd) this.#toEnd();
  }

  takeCalls({ run, tools }) {
    const wasAtEnd = this.#isAtEnd();
    for (const line of this.#lines.values()) if (line.run === run) line.takeCalls(tools);
    if (wasAtEnd) this.#toEnd();
  }

  done(order, error) {
    return this.#composer.done(order, error);
  }

  /** Disables the controls: the kernel is gone. */
  turnOff(isOff = true) {
    this.#isOff = isOff;
    this.#composer.turnOff(isOff);
    for (const line of this.#lines.values()) line.turnOff(isOff);
    if (this.#isNew) this.#sayWaiting();
    this.#aloud.disabled = this.#older.disabled = isOff;
    if (isOff) this.#live.stop();
  }

  #takeLines({ lines, order }) {
    for (const line of Array.isArray(lines) ? lines : []) {
      if (!this.#lines.has(line.id)) {
        const onCalls = (run) => this.#onCalls(this.thread, run);
        const made = new BoardLine(onCalls);
        made.turnOff(this.#isOff);
        this.#lines.set(line.id, made);
      }
      this.#lines.get(line.id).show(line);
    }
    if (!Array.isArray(order)) return;
    this.#order = order.filter((id) => this.#lines.has(id));
    const kept = new Set(this.#order);
    for (const [id, { element }] of this.#lines) {
      if (kept.has(id)) continue;
      element.remove();
      this.#lines.delete(id);
    }
    // Move only lines whose place has changed, so that the others stay as they are.
    let next = this.#log.firstChild;
    for (const id of this.#order) {
      const { element } = this.#lines.get(id);
      if (element === next) next = next.nextSibling;
      else this.#log.insertBefore(element, next);
    }
  }

  #sayWaiting() {
    this.#say(this.thread === null ? "" : waitingWords(this.#isOff, "a conversation is"));
  }

  #readOlder() {
    this.most = Math.min(this.most + MORE_MESSAGES, MOST_MESSAGES);
    this.#again();
    // The button moves out of view or is hidden, so the log gets the focus.
    this.#scroller.focus();
  }

  #again() {
    this.#n = null;
    this.#onAgain();
  }

  #isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.#scroller;
    return scrollTop + clientHeight >= scrollHeight - NEAR_LOG_END;
  }

  #toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  #say(words) {
    setText(this.#hint, words);
    this.#hintBox.hidden = !words;
  }

  #readAloud() {
    const isOn = this.#aloud.getAttribute("aria-pressed") !== "true";
    this.#aloud.setAttribute("aria-pressed", String(isOn));
    this.#log.setAttribute("aria-live", isOn ? "polite" : "off");
  }
}
