// Holds the agents of a run from the kernel's frames. A frame is applied only if it follows the one
// before, so the store always holds a true state of the kernel, and knows when it needs a full
// frame. It does not touch the page: frames in, changes out.

import { isFinal } from "./status.js";

// Defaults, so that showing a row with a missing field does not throw.
const BLANK = {
  parent: null,
  depth: 0,
  task: "",
  model: "",
  status: "pending",
  tokens: 0,
  estimated: false,
  begun: null,
  ended: null,
  doing: "",
  until: null,
  stalled: false,
  attempt: 1,
  error: null,
  notes: 0,
  reused: false,
  tool: null,
  tool_calls: 0,
  tool_errors: 0,
  paused: "",
  asks: false,
};

export class Store {
  rows = new Map();
  /** Number of the newest applied frame. */
  seq = -1;
  done = false;
  status = "pending";
  /** The open questions to a person, oldest first. */
  questions = [];
  /** Times, in seconds, when a person paused or resumed, was asked or answered. */
  marks = [];
  /** Whether a frame is missing, so that a full one is needed. */
  gap = false;
  /** When a saved frame was made, in seconds since the epoch; 0 for another frame. */
  made = 0;
  /** What a saved frame does not hold, in words. */
  leftOut = "";
  /** When the run was loaded while it went on, in seconds since the epoch: no frame follows. */
  still = 0;
  /** Whether frames come: otherwise the clock stands still. */
  isLive = false;
  #children = new Map();
  #at = 0;
  #heardAt = 0;

  /**
   * Applies a frame that arrived at the page's time `nowMs`.
   *
   * Returns the change: `outcome` is `full`, `changes`, `stale` (nothing new) or `gap`; `paths` are the
   * changed agents, `added` is whether agents were added or removed, `ended` are the rows of agents
   * that have ended since the frame before, `asked` are new questions, `finished` is whether the run has
   * just ended.
   */
  take(frame, nowMs) {
    if (!Number.isFinite(frame?.seq) || frame.seq < this.seq) return change("stale");
    const full = frame.base === null || frame.base === undefined;
    const isCut = Boolean(frame.left_out);
    const isWhole = this.seq >= 0 && !this.leftOut;
    if (frame.seq === this.seq && (!full || isCut || isWhole)) {
      if (full) this.#setClock(frame, nowMs); // nothing has changed but the time
      return change("stale");
    }
    if ((!full && frame.base !== this.seq) || (isCut && isWhole)) {
      this.gap = true;
      return change("gap");
    }
    if (full) [this.made, this.leftOut] = [frame.made ?? 0, frame.left_out ?? ""];
    this.still = Number(frame.still) || 0;
    const known = full ? this.#cleared() : this.rows;
    const result = change(full ? "full" : "changes");
    result.added = full;
    for (const fields of Array.isArray(frame.agents) ? frame.agents : []) {
      if (typeof fields?.path === "string") this.#merge(fields, known, result);
    }
    if (Array.isArray(frame.questions)) this.#ask(frame.questions, result);
    if (Array.isArray(frame.marks)) this.marks = frame.marks;
    const done = frame.done === true;
    result.finished = done && !this.done && this.seq >= 0;
    this.gap = false;
    this.seq = frame.seq;
    this.done = done;
    this.status = frame.status ?? this.status;
    this.#setClock(frame, nowMs);
    return result;
  }

  /** Seconds since the run began; once it has ended, its duration. */
  time(nowMs) {
    if (this.done || this.still || !this.isLive) return this.#at;
    return this.#at + Math.max(0, nowMs - this.#heardAt) / 1000;
  }

  /** Starts the clock: frames will come. */
  start(nowMs) {
    this.isLive = true;
    this.#heardAt = nowMs;
  }

  /** Holds the clock: perhaps no frame will come. */
  hold(nowMs) {
    this.#at = this.time(nowMs);
    this.isLive = false;
  }

  /** Paths of an agent's children, in path order; for `null`, of the agents without a parent. */
  childrenOf(path) {
    return this.#children.get(path) ?? [];
  }

  /** Paths from an agent's parent up to the root. */
  ancestorsOf(path) {
    const found = [];
    let next = this.rows.get(path)?.parent;
    while (this.rows.has(next) && !found.includes(next)) {
      found.push(next);
      next = this.rows.get(next).parent;
    }
    return found;
  }

  #setClock(frame, nowMs) {
    this.#at = Number.isFinite(frame.at) ? frame.at : this.#at;
    this.#heardAt = nowMs;
  }

  #cleared() {
    const known = this.rows;
    this.rows = new Map();
    this.#children = new Map();
    return known;
  }

  #merge(fields, known, result) {
    const { path } = fields;
    const statusBefore = known.get(path)?.status;
    const isNew = !this.rows.has(path);
    const row = Object.assign(isNew ? { ...BLANK } : this.rows.get(path), fields);
    this.rows.set(path, row);
    if (isNew) {
      result.added = true;
      this.#adopt(row);
    }
    result.paths.push(path);
    if (isFinal(row.status) && statusBefore && !isFinal(statusBefore)) result.ended.push(row);
  }

  #ask(questions, result) {
    const known = new Set(this.questions.map(({ id }) => id));
    if (this.seq >= 0) result.asked = questions.filter(({ id }) => !known.has(id));
    this.questions = questions;
  }

  #adopt(row) {
    const parent = row.parent === row.path ? null : row.parent;
    const siblings = this.#children.get(parent) ?? [];
    // Siblings nearly always arrive in order: search from the end.
    let place = siblings.length;
    while (place > 0 && comparePaths(siblings[place - 1], row.path) > 0) place -= 1;
    siblings.splice(place, 0, row.path);
    this.#children.set(parent, siblings);
  }
}

/** Compares paths by their numbers: `2` before `10`, and `root` before all. */
export function comparePaths(one, other) {
  if (one === other) return 0;
  if (one === "root") return -1;
  if (other === "root") return 1;
  const left = one.split(".");
  const right = other.split(".");
  for (let place = 0; place < Math.min(left.length, right.length); place += 1) {
    const difference = Number(left[place]) - Number(right[place]);
    if (difference) return difference;
    // Parts that are not numbers are unexpected, but need an order.
    if (Number.isNaN(difference) && left[place] !== right[place]) {
      return left[place] < right[place] ? -1 : 1;
    }
  }
  return left.length - right.length;
}

function change(outcome) {
  return { outcome, paths: [], added: false, ended: [], asked: [], finished: false };
}
