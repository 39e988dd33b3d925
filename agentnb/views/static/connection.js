// The connection to the kernel, one for each model: puts frames into the store and notifies all views
// of changes. A front end may drop messages, so it requests missing frames and checks after silence.

const RESEND_MS = 2_000;
const SYNC_MS = 5_000;
// A saved page has no kernel, and nothing says so: the first message gets no answer.
const ANSWER_MS = 5_000;
// Silence says that a kernel is lost, as one that was restarted from another page. A busy one is silent,
// too, where the front end says that it is busy.
const SILENT_MS = 20_000;
const ANSWERED = new Set(["details", "open", "read"]);

export class Connection {
  #model;
  #store;
  #clock;
  #hearsEnd;
  #isBusy;
  #views = new Set();
  #resendTimer = null;
  #syncTimer = null;
  #answerTimer = null;
  #answerBy = 0;
  #open = true;
  #hasAnswered = false;
  #how = null;
  /** When the kernel spoke last: in ms of the clock, and the time of day. */
  #spoke = null;
  /** The time of day since which no kernel is there. */
  stillSince = null;

  /**
   * `clock` has `now()` in ms, `setTimeout` and `clearTimeout`; `hearsEnd` is whether the front end
   * says that the kernel is lost, `isBusy()` whether it says that the kernel is busy now.
   */
  constructor(model, store, clock, { hearsEnd = true, isBusy = () => false } = {}) {
    this.#model = model;
    this.#store = store;
    this.#clock = clock;
    this.#hearsEnd = hearsEnd;
    this.#isBusy = isBusy;
    this.take(model.get("snapshot"));
    model.on("change:snapshot", () => {
      this.#answered();
      if (this.#open) this.take(model.get("snapshot"));
    });
    model.on("msg:custom", (message) => this.hear(message));
    model.on("comm:close", () => this.close());
  }

  /** Whether the kernel has spoken to this page, and is not gone. */
  get isAlive() {
    return this.#hasAnswered && !this.isClosed;
  }

  /** Whether no kernel is there: it is gone, or did not answer. */
  get isClosed() {
    return this.#how !== null;
  }

  get store() {
    return this.#store;
  }

  /** Whether a view is the first of its model: only that one announces to screen readers. */
  isFirst(view) {
    return this.#views.values().next().value === view;
  }

  /**
   * A view has `id`, `frame(change)`, `message(message)`, `alive()`, and `closed(how)`, where `how` has
   * whether all `wasDone`, whether a kernel `wasAlive`, and whether it only `isSilent`.
   */
  join(view) {
    this.#views.add(view);
    // A view may come late: a second one, one that was moved, one that is pasted.
    if (this.isAlive) view.alive();
    else if (this.isClosed) view.closed(this.#how);
    this.send({ type: "hello", view: view.id });
    this.#watchSilence();
    if (!this.#hasAnswered && !this.isClosed) this.#waitForAnswer(ANSWER_MS);
  }

  leave(view) {
    this.#views.delete(view);
    this.send({ type: "bye", view: view.id });
    if (this.#views.size === 0) this.#clearTimers();
  }

  /** Sends a message to the kernel; ignores errors of a kernel that is gone. */
  send(message) {
    if (!this.#open) return;
    // Nobody watches for silence once a run has ended.
    if (ANSWERED.has(message.type)) this.#watchAnswer();
    try {
      this.#model.send(message);
    } catch {
      this.close();
    }
  }

  hear(message) {
    if (!this.#open) return;
    this.#answered();
    if (message?.type === "newest") return;
    if (message?.type === "frame") this.take(message);
    else if (message?.type) this.#passOn(message);
  }

  take(frame) {
    const change = this.#store.take(frame, this.#clock.now());
    if (change.outcome === "gap") return this.#askForAll();
    if (change.outcome === "stale") return;
    this.#clock.clearTimeout(this.#resendTimer);
    this.#resendTimer = null;
    this.#watchSilence();
    for (const view of this.#views) view.frame(change);
  }

  /** The page has lost the way to its kernel, which may come back: silence tells. */
  lost() {
    if (this.#open && !this.isClosed) this.#waitForAnswer(ANSWER_MS);
  }

  /** There is a way again: ask at once. */
  found() {
    if (this.isClosed) this.send({ type: "sync", seq: this.#store.seq });
  }

  /** The kernel is gone: keep the last state. */
  close() {
    if (!this.#open) return;
    this.#open = false;
    this.#clearTimers();
    this.#standStill({ isSilent: false });
  }

  /** The kernel has spoken, perhaps to a widget beside the views. */
  spoke() {
    if (!this.isClosed) this.#spoke = { at: this.#clock.now(), on: new Date() };
  }

  #answered() {
    this.#clock.clearTimeout(this.#answerTimer);
    this.#answerTimer = null;
    this.spoke();
    if (!this.#open || this.isAlive) return;
    this.#hasAnswered = true;
    this.#how = this.stillSince = null;
    this.spoke();
    this.#store.start?.(this.#clock.now());
    for (const view of this.#views) view.alive();
    this.#watchSilence();
  }

  // A later deadline does not replace an earlier one.
  #waitForAnswer(ms) {
    const by = this.#clock.now() + ms;
    if (this.#answerTimer !== null && by >= this.#answerBy) return;
    this.#answerBy = by;
    this.#clock.clearTimeout(this.#answerTimer);
    this.#answerTimer = this.#clock.setTimeout(() => {
      this.#answerTimer = null;
      if (this.isAlive && this.#isBusy()) return;
      this.#standStill({ isSilent: true });
    }, ms);
  }

  #watchAnswer() {
    if (this.isAlive && !this.#isBusy()) this.#waitForAnswer(SILENT_MS);
  }

  #standStill(how) {
    // What the page has is of then: its own clock has gone on since.
    this.#store.hold?.(this.#spoke?.at ?? this.#clock.now());
    this.stillSince ??= this.#spoke?.on ?? new Date();
    this.#how = { wasDone: this.#store.done, ...how, wasAlive: this.#hasAnswered };
    for (const view of this.#views) view.closed(this.#how);
  }

  #passOn(message) {
    for (const view of this.#views) {
      if (message.view === undefined || message.view === view.id) view.message(message);
    }
  }

  #askForAll() {
    if (this.#resendTimer !== null || !this.#open) return;
    this.send({ type: "resend" });
    this.#resendTimer = this.#clock.setTimeout(() => {
      this.#resendTimer = null;
      if (this.#store.gap && this.#views.size) this.#askForAll();
    }, RESEND_MS);
  }

  // If a run's last frame is dropped, no later frame would reveal the gap.
  #watchSilence() {
    this.#clock.clearTimeout(this.#syncTimer);
    this.#syncTimer = null;
    const isOver = this.#store.done && (this.#hearsEnd || !this.#hasAnswered);
    if (isOver || !this.#views.size || !this.#open) return;
    const sync = () => {
      this.#watchAnswer();
      this.send({ type: "sync", seq: this.#store.seq });
      this.#watchSilence();
    };
    // A kernel that is only busy answers the first of these.
    this.#syncTimer = this.#clock.setTimeout(sync, this.isClosed ? SILENT_MS : SYNC_MS);
  }

  #clearTimers() {
    this.#clock.clearTimeout(this.#resendTimer);
    this.#clock.clearTimeout(this.#syncTimer);
    this.#clock.clearTimeout(this.#answerTimer);
    this.#resendTimer = this.#syncTimer = this.#answerTimer = null;
  }
}
