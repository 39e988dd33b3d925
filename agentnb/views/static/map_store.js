// The store of a map: the agents of its run, and its table's size and labels.

import { Store } from "./store.js";

export class MapStore extends Store {
  /** Number of rows. */
  size = 0;
  /** Number of agents for each row. */
  judges = 1;
  /** The beginning of each row's text. */
  labels = [];

  take(frame, nowMs) {
    const result = super.take(frame, nowMs);
    if (result.outcome !== "full") return result;
    this.size = Number.isInteger(frame.rows) ? frame.rows : 0;
    this.judges = Math.max(1, Number.isInteger(frame.judges) ? frame.judges : 1);
    this.labels = Array.isArray(frame.labels) ? frame.labels.map(String) : [];
    return result;
  }
}
