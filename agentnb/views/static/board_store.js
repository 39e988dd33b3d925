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
  /** Whether the kernel is gone, so that no frame will come. */
  done = false;

  /** Applies a frame. Returns `outcome`: `full`, `changes`, `stale` (nothing new) or `gap`. */
  take(frame) {
    const isFull = frame?.base === null;
    if (!Number.isFinite(frame?.seq) || frame.seq < this.seq) return { outcome: "stale" };
    if (frame.seq === this.seq && !(isFull && this.gap)) return { outcome: "stale" };
    if (!isFull && frame.base !== this.seq) {
      this.gap = true;
      return { outcome: "gap" };
    }
    if (isFull) this.rows = new Map();
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

  stop() {
    this.done = true;
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
