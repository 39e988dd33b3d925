// Who is in the tree at the time that a view shows: the store's agents as they are now or, in a
// replay, as they were. A replay lies over the store and leaves it as it is.

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

  /** Shows the time of a `replay` message, or, with `null`, what is now. */
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

  /** The rows of those who are there. */
  rows = () => {
    const here = [...this.#store.rows.keys()].filter(this.exists);
    return here.map(this.row);
  };

  childrenOf = (path) => this.#store.childrenOf(path);

  ancestorsOf = (path) => this.#store.ancestorsOf(path);
}
