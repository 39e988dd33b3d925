// A clock that a test advances by hand.

export class HandClock {
  #at = 0;
  #next = 1;
  #waiting = new Map();

  now = () => this.#at;

  setTimeout = (callback, ms) => {
    this.#waiting.set(this.#next, { callback, at: this.#at + ms });
    this.#next += 1;
    return this.#next - 1;
  };

  clearTimeout = (timer) => this.#waiting.delete(timer);

  get waiting() {
    return this.#waiting.size;
  }

  /** Advances the clock by `ms` milliseconds, and calls the timers that fall due, in order. */
  pass(ms) {
    const end = this.#at + ms;
    for (;;) {
      const due = [...this.#waiting].filter(([, { at }]) => at <= end);
      if (!due.length) break;
      const [timer, { callback, at }] = due.sort(([, one], [, other]) => one.at - other.at)[0];
      this.#waiting.delete(timer);
      this.#at = at;
      callback();
    }
    this.#at = end;
  }
}
