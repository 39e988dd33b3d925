// Sends the kernel one request at a time. While one is open only the latest further request is kept:
// dragging a slider makes hundreds, and the kernel may be busy. A request without an answer is sent
// again, at growing intervals, since messages can get lost and queues can fill.

const FIRST_PATIENCE_MS = 2_000;
const LONGEST_PATIENCE_MS = 30_000;

export class DetailsRequest {
  #send;
  #timers;
  #open = null;
  #next = null;
  #timer = null;
  #patience = FIRST_PATIENCE_MS;

  /** `send(request)` sends a request; `timers` has `setTimeout` and `clearTimeout`. */
  constructor(send, timers = globalThis) {
    this.#send = send;
    this.#timers = timers;
  }

  /** The newest request, sent or not. */
  get newest() {
    return this.#next ?? this.#open;
  }

  want(request) {
    if (this.#open) this.#next = request;
    else this.#ask(request);
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

  #ask(request) {
    this.#open = request;
    this.#send(request);
    this.#timer = this.#timers.setTimeout(() => this.#again(), this.#patience);
  }

  #again() {
    this.#patience = Math.min(2 * this.#patience, LONGEST_PATIENCE_MS);
    const request = this.newest;
    this.#next = null;
    this.#ask(request);
  }
}
