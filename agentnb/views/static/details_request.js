// Asks the kernel one thing at a time. While an answer is awaited only the latest further wish is
// kept: a slider that is dragged makes hundreds, and the kernel may be busy. An answer that does not
// come is asked for again, at growing intervals, since messages can get lost and queues can fill.

const FIRST_PATIENCE_MS = 2_000;
const LONGEST_PATIENCE_MS = 30_000;

export class DetailsRequest {
  #send;
  #timers;
  #open = null;
  #next = null;
  #timer = null;
  #patience = FIRST_PATIENCE_MS;

  /** `send(wish)` hands a wish over; `timers` has `setTimeout` and `clearTimeout`. */
  constructor(send, timers = globalThis) {
    this.#send = send;
    this.#timers = timers;
  }

  /** What was asked for last, sent or not. */
  get newest() {
    return this.#next ?? this.#open;
  }

  want(wish) {
    if (this.#open) this.#next = wish;
    else this.#ask(wish);
  }

  answered() {
    this.#timers.clearTimeout(this.#timer);
    this.#patience = FIRST_PATIENCE_MS;
    const next = this.#next;
    this.#open = this.#next = null;
    if (next) this.#ask(next);
  }

  stop() {
    this.#timers.clearTimeout(this.#timer);
    this.#open = this.#next = null;
  }

  #ask(wish) {
    this.#open = wish;
    this.#send(wish);
    this.#timer = this.#timers.setTimeout(() => this.#again(), this.#patience);
  }

  #again() {
    this.#patience = Math.min(2 * this.#patience, LONGEST_PATIENCE_MS);
    const wish = this.newest;
    this.#next = null;
    this.#ask(wish);
  }
}
