// Holds the rows of a board from the kernel's frames. Like the store of a run, it applies a frame
// only if it follows the one before. It does not touch the page.

export class BoardStore {
  rows = new Map();
  /** The ids of all rows, in order. */
  order = [];
  /** Number of the newest applied frame. */
  seq = -1;
  /** Whether a frame is missing, so that a full one is needed. */
  gap = false;
  /** What a saved page does not hold, in words; empty if it is whole. */
  leftOut = "";
  /** Whether the kernel is gone, so that no frame will come. */
  done = false;

  /** Applies a frame. Returns `outcome`: `full`, `changes`, `stale` (nothing new) or `gap`. */
  take(frame) {
    const isFull = frame?.base === null;
    if (!Number.isFinite(frame?.seq) || frame.seq < this.seq) return { outcome: "stale" };
    const isWhole = this.seq >= 0 && !this.leftOut;
    const isCut = Boolean(frame.left_out);
    if (frame.seq === this.seq && !(isFull && !isCut && (this.gap || !isWhole))) {
      return { outcome: "stale" };
    }
    if ((!isFull && frame.base !== this.seq) || (isCut && isWhole)) {
      this.gap = true;
      return { outcome: "gap" };
    }
    if (isFull) [this.rows, this.leftOut] = [new Map(), frame.left_out ?? ""];
    for (const row of Array.isArray(frame.rows) ? frame.rows : []) {
      if (typeof row?.id === "string") this.rows.set(row.id, row);
    }
    if (Array.isArray(frame.order)) {
      this.order = frame.order.filter((id) => this.rows.has(id));
      const kept = new Set(this.order);
      for (const id of this.rows.keys()) if (!kept.has(id)) this.rows.delete(id);
    }
    this.gap = false;
    this.seq = frame.seq;
    return { outcome: isFull ? "full" : "changes" };
  }
}

/** The rows that match a text and a status; an empty text and status match all. */
export function matchingRows(store, { text, status }) {
  const wanted = text.trim().toLowerCase();
  const found = [];
  for (const id of store.order) {
    const row = store.rows.get(id);
    if (status && row.status !== status) continue;
    if (!wanted || searched(row).includes(wanted)) found.push(row);
  }
  return found;
}

function searched(row) {
  const { id, title, name, kind, model, task, agent, note } = row;
  const isTask = title !== undefined;
  const words = isTask ? [id, title, agent, note] : [name, kind, model, task];
  return words.join("\n").toLowerCase();
}
