// The contents of a board's row, for a task or a thread. Text nodes are kept and their data set.

import { make, setAttribute, setText } from "./dom.js";
import { counted } from "./format.js";
import { makeMark } from "./status.js";

// The agent status with the same meaning as each status of a board, for the shape.
const SHAPE_OF = {
  pending: "pending",
  in_progress: "running",
  blocked: "waiting",
  completed: "completed",
  archived: "skipped",
  working: "running",
  queued: "waiting",
  interrupted: "interrupted",
  idle: "pending",
};

/** The statuses of each kind of board, in display order. */
export const BOARD_STATUSES = {
  tasks: ["pending", "in_progress", "blocked", "completed", "archived"],
  threads: ["working", "queued", "interrupted", "idle"],
};

/** A status as words: `in progress`. */
export function boardWords(status) {
  return String(status ?? "").replaceAll("_", " ");
}

/** The mark of a status: `show(status)` changes it. */
export function makeBoardMark() {
  const { element, show } = makeMark("pending");
  const shape = (status) => (Object.hasOwn(SHAPE_OF, status) ? SHAPE_OF[status] : status);
  return { element, show: (status) => show(shape(status)) };
}

/** A row of a list of `tasks` or `threads` (its `kind`). */
export class BoardRow {
  #mark = makeBoardMark();
  #texts;
  #wordsOf;
  #element;

  constructor(kind, element) {
    this.#element = element;
    this.#wordsOf = kind === "tasks" ? taskRowWords : threadRowWords;
    const names = ["first", "name", "right", "strong", "rest"];
    this.#texts = Object.fromEntries(names.map((name) => [name, document.createTextNode("")]));
    const { first, name, right, strong, rest } = this.#texts;
    const head = make(
      "span",
      "agentnb-row-head",
      {},
      this.#mark.element,
      make("span", "agentnb-row-id", {}, first),
      make("span", "agentnb-row-name", { dir: "auto" }, name),
      " ",
      make("span", "agentnb-row-right", {}, right),
    );
    const foot = make(
      "span",
      "agentnb-row-foot",
      { dir: "auto" },
      make("span", "agentnb-row-strong", {}, strong),
      rest,
    );
    element.append(head, " ", foot);
  }

  show(row) {
    const words = this.#wordsOf(row);
    this.#mark.show(row.status);
    setAttribute(this.#element, "data-board-status", row.status);
    for (const [name, node] of Object.entries(this.#texts)) setText(node, words[name]);
  }
}

/** Returns the texts of a task's row. */
export function taskRowWords(row) {
  const notes = row.notes ? `${counted(row.notes, "note")}: ${row.note}` : "";
  return {
    first: `${row.id} `,
    name: row.title,
    right: row.priority === "medium" ? "" : `${row.priority} priority`,
    strong: boardWords(row.status),
    rest: [row.agent && ` · ${row.agent}`, notes && ` · ${notes}`].filter(Boolean).join(""),
  };
}

/** Returns the texts of a thread's row. */
export function threadRowWords(row) {
  const queued = row.queued && row.status !== "queued" ? `, ${row.queued} queued` : "";
  const many = row.queued > 1 && row.status === "queued" ? ` (${row.queued})` : "";
  const rest = [row.model, row.kind].filter(Boolean).join(" · ");
  return {
    first: "",
    name: row.name,
    right: `${row.status}${many}${queued}`,
    strong: row.task,
    rest: `${row.task && rest ? " · " : ""}${rest || (row.task ? "" : "conversation")}`,
  };
}
