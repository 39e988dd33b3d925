// One view of a board: its list, beside the chosen task with its conversation or the chosen thread.

import { ConversationPane } from "./board_conversation.js";
import { BoardList } from "./board_list.js";
import { BOARD_STATUSES, boardWords } from "./board_rows.js";
import { matchingRows } from "./board_store.js";
import { TaskPane } from "./board_task.js";
import { DetailsRequest } from "./details_request.js";
import { make, makeButton, setText } from "./dom.js";
import { counted, wholeNumber } from "./format.js";

// A closed page sends no message, so an open one reports regularly.
const BOARD_HERE_MS = 10_000;
const LABELS = {
  tasks: { list: "Tasks", find: "Find a task", none: "There are no tasks yet." },
  threads: { list: "Threads", find: "Find an agent", none: "There are no threads yet." },
};

export class BoardView {
  id = `b${Math.random().toString(36).slice(2, 12)}`;
  #connection;
  #model;
  #kind;
  #over = new AbortController();
  #orders = 0;
  #filter = { text: "", status: "" };
  #list;
  #task = null;
  #conversation;
  #folded = null;
  #openTask;
  #readThread;
  #search;
  #statuses;
  #count = document.createTextNode("");
  #empty = document.createTextNode("");
  #leftOutWords = document.createTextNode("");
  #leftOut = make("div", "agentnb-left-out", { hidden: "" }, this.#leftOutWords);
  #notice = make("div", "agentnb-notice", { role: "status" });
  #paint = null;
  #isBegun = false;

  constructor(connection, model) {
    this.#connection = connection;
    this.#model = model;
    this.#kind = model.get("kind") === "tasks" ? "tasks" : "threads";
    const view = this.id;
    this.#openTask = new DetailsRequest(({ id }) => connection.send({ type: "open", view, id }));
    this.#readThread = new DetailsRequest(({ thread, most }) =>
      connection.send({ type: "read", view, thread, most }),
    );
    this.#build();
    this.#listen();
    connection.join(this);
    this.#draw();
  }

  // -- what the connection calls -------------------------------------------------------------------

  frame() {
    this.#soon();
  }

  message(message) {
    if (message.type === "conversation") {
      // Also if another thread is shown by now: the next request waits for this answer.
      if (message.n === 0) this.#readThread.answered();
      this.#conversation.take(message);
    } else if (message.type === "live") this.#conversation.takeLive(message);
    else if (message.type === "calls") this.#conversation.takeCalls(message);
    else if (message.type === "task") this.#takeTask(message);
    else if (message.type === "done") this.#finish(message);
    else if (message.type === "notice") this.#say(message.line);
  }

  /** The kernel has spoken: the page may hide what repeats the board (`boards.css`). */
  alive() {
    const stoodStill = this.element.dataset.closed === "true";
    this.#turn({ isOff: false });
    if (!stoodStill) return;
    this.#notice.replaceChildren();
    if (this.#list.chosen) this.#choose(this.#list.chosen);
  }

  closed({ wasAlive, isSilent }) {
    this.#openTask.stop();
    this.#readThread.stop();
    this.#turn({ isOff: true });
    const gone = isSilent ? "The kernel does not answer" : "The kernel is gone";
    const why = wasAlive
      ? `${gone}: this is the board's last known state.`
      : "No kernel answers: this is the board as the page was saved.";
    this.#notice.replaceChildren(make("span", "", {}, why));
  }

  #turn({ isOff }) {
    this.#conversation.turnOff(isOff);
    this.#task?.turnOff(isOff);
    this.element.dataset.closed = String(isOff);
    this.element.classList.toggle("agentnb-is-live", !isOff);
  }

  close() {
    this.#over.abort();
    this.#openTask.stop();
    this.#readThread.stop();
    cancelAnimationFrame(this.#paint);
    this.#connection.leave(this);
    this.element.remove();
  }

  // -- parts -----------------------------------------------------------------------------------------

  #build() {
    const { signal } = this.#over;
    const connection = this.#connection;
    const view = this.id;
    const labels = LABELS[this.#kind];
    this.#conversation = new ConversationPane({
      onAgain: () => this.#read(this.#conversation.thread),
      onSend: (thread, text) => {
        const order = this.#nextOrder();
        connection.send({ type: "send", view, order, thread, text });
        return order;
      },
      onCalls: (thread, run) => connection.send({ type: "calls", view, thread, run }),
    });
    const choice = { prefix: view, onChoose: (id) => this.#choose(id), signal };
    this.#list = new BoardList(this.#kind, labels.list, choice);
    const side = make(
      "div",
      "agentnb-side",
      {},
      this.#toolbar(labels),
      this.#list.element,
      make("p", "agentnb-log-hint agentnb-empty", {}, this.#empty),
    );
    const main = make("div", "agentnb-main", {}, this.#mainPart());
    const body = make("div", "agentnb-boards-body", {}, side, main);
    const attributes = { "data-lm-suppress-shortcuts": "true", "data-kind": this.#kind };
    const names = "agentnb-tree-view agentnb-boards";
    // The notice comes last, so that it moves nothing that the reader looks at.
    this.element = make("div", names, attributes, body, this.#leftOut, this.#notice);
    this.#resize();
  }

  #toolbar({ find }) {
    this.#search = make("input", "agentnb-search", {
      type: "search",
      placeholder: find,
      "aria-label": find,
    });
    this.#statuses = make("select", "agentnb-calls-select", { "aria-label": "Status" });
    const all = [["", "any status"], ...BOARD_STATUSES[this.#kind].map((one) => [one, one])];
    for (const [value, words] of all) {
      this.#statuses.append(make("option", "", { value }, boardWords(words)));
    }
    this.#search.addEventListener("input", () => this.#narrow());
    this.#statuses.addEventListener("change", () => this.#narrow());
    const count = make("span", "agentnb-count", { role: "status" }, this.#count);
    return make("div", "agentnb-toolbar", {}, this.#search, this.#statuses, count);
  }

  #mainPart() {
    if (this.#kind === "threads") return this.#conversation.element;
    const connection = this.#connection;
    const view = this.id;
    this.#folded = make(
      "details",
      "agentnb-folding agentnb-task-conversation",
      { hidden: "" },
      make("summary", "", {}, "Conversation with the agent"),
      this.#conversation.element,
    );
    this.#folded.addEventListener("toggle", () => this.#readOfTask());
    this.#task = new TaskPane({
      onStatus: (id, status) => {
        const order = this.#nextOrder();
        connection.send({ type: "status", view, order, id, status });
        return order;
      },
      onNote: (id, text) => {
        const order = this.#nextOrder();
        connection.send({ type: "note", view, order, id, text });
        return order;
      },
      conversation: this.#folded,
    });
    return this.#task.element;
  }

  #listen() {
    const { signal } = this.#over;
    const here = setInterval(() => {
      if (this.element.isConnected) this.#connection.send({ type: "here", view: this.id });
    }, BOARD_HERE_MS);
    const height = () => this.#resize();
    this.#model.on("change:height", height);
    signal.addEventListener("abort", () => {
      clearInterval(here);
      this.#model.off("change:height", height);
    });
  }

  #resize() {
    const height = Number(this.#model.get("height")) || 0;
    if (height > 0) this.element.style.setProperty("--agentnb-height", `${height}px`);
    else this.element.style.removeProperty("--agentnb-height");
  }

  #soon() {
    this.#paint ??= requestAnimationFrame(() => {
      this.#paint = null;
      this.#draw();
    });
  }

  #draw() {
    const { store } = this.#connection;
    const rows = matchingRows(store, this.#filter);
    this.#list.show(rows);
    const all = store.order.length;
    const shown = rows.length === all ? "" : `${wholeNumber(rows.length)} of `;
    setText(this.#count, `${shown}${counted(all, this.#kind.slice(0, -1))}`);
    const { leftOut } = store;
    this.#leftOut.hidden = !leftOut;
    setText(this.#leftOutWords, leftOut && `Not in this page: ${leftOut}.`);
    const isEmpty = rows.length === 0;
    const none = all ? "Nothing matches." : LABELS[this.#kind].none;
    setText(this.#empty, isEmpty ? none : "");
    this.#empty.parentElement.hidden = !isEmpty;
    if (!this.#isBegun && rows.length) {
      this.#isBegun = true;
      this.#list.choose(rows[0].id);
      this.#choose(rows[0].id);
    }
    if (this.#kind === "threads") this.#conversation.describe(store.rows.get(this.#list.chosen));
  }

  #narrow() {
    this.#filter = { text: this.#search.value, status: this.#statuses.value };
    this.#draw();
  }

  #choose(id) {
    this.#isBegun = true;
    if (this.#kind === "threads") {
      this.#conversation.begin(id);
      this.#conversation.describe(this.#connection.store.rows.get(id));
      this.#read(id);
      return;
    }
    this.#task.begin(id);
    this.#openTask.want({ id });
  }

  #takeTask(message) {
    this.#openTask.answered();
    if (!this.#task?.take(message)) return;
    this.#folded.hidden = this.#task.thread === null;
    this.#readOfTask();
  }

  // A task's conversation is requested only while it is unfolded.
  #readOfTask() {
    const thread = this.#folded.open ? this.#task.thread : null;
    if (thread === this.#conversation.thread) return;
    this.#conversation.begin(thread);
    this.#read(thread);
  }

  #read(thread) {
    const { most } = this.#conversation;
    if (thread === null) {
      this.#readThread.stop();
      this.#connection.send({ type: "read", view: this.id, thread, most });
    } else this.#readThread.want({ thread, most });
  }

  #nextOrder() {
    this.#orders += 1;
    return this.#orders;
  }

  #finish({ order, error }) {
    if (this.#conversation.done(order, error) || this.#task?.done(order, error)) return;
    if (error) this.#say(error);
  }

  #say(line) {
    const close = makeButton("agentnb-notice-close", "Dismiss");
    close.addEventListener("click", () => this.#notice.replaceChildren());
    this.#notice.replaceChildren(make("span", "", { dir: "auto" }, String(line)), close);
  }
}
