// The opened task: its prompt, agent and notes, with the controls to change its status, to write a
// note, and to read the conversation with its agent.

import { Composer } from "./board_composer.js";
import { BOARD_STATUSES, boardWords, makeBoardMark } from "./board_rows.js";
import { make, makeButton, setText } from "./dom.js";
import { counted, waitingWords } from "./format.js";
import { Prose } from "./prose.js";

const LONGEST_NOTE = 20_000;

export class TaskPane {
  /** The id of the opened task; `null` for none. */
  id = null;
  #task = null;
  #onStatus;
  #isOff = false;
  #isNew = true;
  #words = {};
  #mark = makeBoardMark();
  #status = make("select", "agentnb-calls-select");
  #complete = makeButton("agentnb-complete", "Complete");
  #prompt = new Prose("agentnb-task-prompt", "Prompt");
  #notes = make("ol", "agentnb-notes", { role: "list" });
  #composer;
  #error = document.createTextNode("");
  #open = new Set();
  #inner;
  element;

  /** `onStatus(id, status)` and `onNote(id, text)` send a command and return its number. */
  constructor({ onStatus, onNote, conversation }) {
    this.#onStatus = onStatus;
    this.#composer = new Composer({
      label: "Note",
      action: "Add note",
      hint: "Write a note. Enter adds it.",
      most: LONGEST_NOTE,
      onSend: onNote,
    });
    for (const status of BOARD_STATUSES.tasks) {
      this.#status.append(make("option", "", { value: status }, boardWords(status)));
    }
    this.#status.addEventListener("change", () => this.#set(this.#status.value));
    this.#complete.addEventListener("click", () => this.#set("completed"));
    this.#inner = this.#build(conversation);
    this.element = make(
      "div",
      "agentnb-task-pane",
      { role: "group", "aria-label": "Task" },
      this.#line("hint", "agentnb-log-hint"),
      this.#inner,
    );
    this.begin(null);
  }

  #build(conversation) {
    const head = make(
      "div",
      "agentnb-task-head",
      {},
      this.#mark.element,
      make("strong", "agentnb-task-title", { dir: "auto" }, this.#text("title")),
    );
    const label = make("label", "agentnb-task-status", {}, "Status ", this.#status);
    const actions = make("div", "agentnb-task-actions", {}, label, this.#complete);
    return make(
      "div",
      "agentnb-task-inner",
      { hidden: "" },
      head,
      this.#line("about", "agentnb-log-about"),
      actions,
      make("div", "agentnb-composer-error", { role: "alert" }, this.#error),
      make("div", "agentnb-section-title", {}, "Prompt"),
      this.#prompt.element,
      make("div", "agentnb-section-title", {}, this.#text("count")),
      this.#notes,
      this.#composer.element,
      conversation,
    );
  }

  /** Opens another task; `null` for none. */
  begin(id) {
    this.id = id;
    this.#task = null;
    this.#isNew = true;
    this.#inner.hidden = true;
    this.#composer.about(id);
    this.#sayWaiting();
    setText(this.#error, "");
  }

  /** Applies a `task` message. Returns whether it is about the opened task. */
  take({ id, task }) {
    if (id !== this.id) return false;
    this.#task = task;
    this.#isNew = false;
    this.#inner.hidden = !task;
    this.#say(task ? "" : "This task no longer exists.");
    if (!task) return true;
    this.#mark.show(task.status);
    setText(this.#words.title, `${id} ${task.title}`);
    setText(this.#words.about, aboutWords(task));
    this.#prompt.set(task.prompt);
    this.#showNotes(task);
    this.#composer.about(id, `Note on ${id}`);
    this.#update();
    return true;
  }

  /** The id of the assigned agent's thread; `null` for none. */
  get thread() {
    return this.#task?.thread ?? null;
  }

  done(order, error) {
    if (this.#open.delete(order)) {
      setText(this.#error, error);
      this.#update();
      return true;
    }
    return this.#composer.done(order, error);
  }

  /** Disables the controls: the kernel is gone. */
  turnOff(isOff = true) {
    this.#isOff = isOff;
    this.#composer.turnOff(isOff);
    if (this.#isNew) this.#sayWaiting();
    this.#update();
  }

  #showNotes({ notes, older }) {
    const words = counted(notes.length + older, "note");
    const left = older ? `${words}, the newest ${notes.length}` : words;
    setText(this.#words.count, notes.length ? left : "No notes yet");
    this.#notes.replaceChildren(
      ...notes.map(({ author, text }) => {
        const body = make("span", "agentnb-note-text", { dir: "auto" }, text);
        const by = author ? [make("strong", "", { dir: "auto" }, author), ": "] : [];
        return make("li", "agentnb-note", {}, ...by, body);
      }),
    );
    this.#notes.hidden = !notes.length;
  }

  #set(status) {
    if (this.#isOff || this.id === null || status === this.#task?.status) return;
    setText(this.#error, "");
    this.#open.add(this.#onStatus(this.id, status));
  }

  #update() {
    const isDone = this.#task?.status === "completed";
    if (this.#task) this.#status.value = this.#task.status;
    this.#status.disabled = this.#isOff;
    // Not disabled for a completed task: a button that was just pressed would lose the focus.
    this.#complete.setAttribute("aria-disabled", String(isDone || this.#isOff));
    this.#complete.disabled = this.#isOff;
  }

  #sayWaiting() {
    const words = waitingWords(this.#isOff, "a task's text is");
    this.#say(this.id === null ? "Select a task to open it." : words);
  }

  #say(words) {
    setText(this.#words.hint, words);
    this.element.firstChild.hidden = !words;
  }

  #line(name, className) {
    return make("p", className, { dir: "auto" }, this.#text(name));
  }

  #text(name) {
    this.#words[name] ??= document.createTextNode("");
    return this.#words[name];
  }
}

/** `high priority · assigned to reviewer (demo/demo) · created by a person`. */
export function aboutWords({ priority, agent, model, creator }) {
  const who = agent ? `assigned to ${agent}${model ? ` (${model})` : ""}` : "unassigned";
  return `${priority} priority · ${who} · created by ${creator}`;
}
