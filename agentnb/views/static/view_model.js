// The agents at the time that a view shows: the store's present ones or, in a replay, the earlier ones.
// A replay overlays the store without changing it.

export class ViewModel {
  #store;
  #now;
  #overlay = null;

  constructor(store, now) {
    this.#store = store;
    this.#now = now;
  }

  get isReplay() {
    return this.#overlay !== null;
  }

  /** Shows the time of a `replay` message, or the present for `null`. */
  replay(message) {
    if (message === null) {
      this.#overlay = null;
      return;
    }
    const agents = Array.isArray(message.agents) ? message.agents : [];
    this.#overlay = {
      at: Number(message.at) || 0,
      rows: new Map(agents.map((fields) => [fields.path, fields])),
    };
  }

  time = () => this.#overlay?.at ?? this.#store.time(this.#now());

  row = (path) => {
    const row = this.#store.rows.get(path);
    const then = this.#overlay?.rows.get(path);
    return then && row ? { ...row, ...then } : row;
  };

  exists = (path) => this.#overlay === null || this.#overlay.rows.has(path);

  /** The rows of the agents at that time. */
  rows = () => {
    const here = [...this.#store.rows.keys()].filter(this.exists);
    return here.map(this.row);
  };

  childrenOf = (path) => this.#store.childrenOf(path);

  ancestorsOf = (path) => this.#store.ancestorsOf(path);
}
