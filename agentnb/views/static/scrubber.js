// Replays an ended run: a slider over its time, playing, and steps from one change of the tree to the
// next. At the slider's end the replay stops.

import { make, makeButton, setText } from "./dom.js";
import { duration } from "./format.js";

const NOTCHES = 1000;
const FRAME_MS = 100;
// A long run plays faster, so that it takes about this time at most.
const LONGEST_PLAY_S = 30;

export class Scrubber {
  #onTime;
  #signal;
  #total = 0;
  #changes = [];
  #timer = null;
  #range = make("input", "agentnb-scrubber-range", {
    type: "range",
    min: 0,
    max: NOTCHES,
    step: 1,
    value: NOTCHES,
    "aria-label": "Time of the replay",
  });
  #play = makeButton("agentnb-play", "Play");
  #words = document.createTextNode("");

  /** `onTime(seconds)` is called with each chosen time; `null` stands for the slider's end. */
  constructor(onTime, signal) {
    this.#onTime = onTime;
    this.#signal = signal;
    const back = makeButton("", "◂", { "aria-label": "Previous change", title: "Previous change" });
    const forth = makeButton("", "▸", { "aria-label": "Next change", title: "Next change" });
    this.element = make(
      "div",
      "agentnb-scrubber",
      { role: "group", "aria-label": "Replay of the run", hidden: "" },
      make("span", "agentnb-scrubber-title", {}, "Replay"),
      this.#play,
      back,
      this.#range,
      forth,
      make("span", "agentnb-scrubber-time", {}, this.#words),
    );
    const listen = (element, name, handler) => element.addEventListener(name, handler, { signal });
    listen(this.#play, "click", () => (this.#timer === null ? this.#start() : this.pause()));
    listen(this.#range, "input", () => this.#moved());
    listen(back, "click", () => this.#step(-1));
    listen(forth, "click", () => this.#step(1));
    signal.addEventListener("abort", () => this.pause());
  }

  /** Offers the replay of a run that ended after `total` seconds; its tree changed at `changes`. */
  offer(total, changes) {
    this.#total = total;
    this.#changes = [...new Set(changes)]
      .filter((at) => at >= 0 && at < total)
      .sort((a, b) => a - b);
    this.element.hidden = !(total > 0);
    this.#notify();
  }

  withdraw() {
    this.pause();
    this.#range.value = NOTCHES;
    this.element.hidden = true;
  }

  pause() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.#play.textContent = "Play";
  }

  get #at() {
    return (Number(this.#range.value) / NOTCHES) * this.#total;
  }

  get #isAtEnd() {
    return Number(this.#range.value) >= NOTCHES;
  }

  #start() {
    if (this.#isAtEnd) this.#range.value = 0;
    this.#play.textContent = "Pause";
    let at = this.#at;
    let last = performance.now();
    const speed = Math.max(1, this.#total / LONGEST_PLAY_S);
    this.#timer = setInterval(() => {
      const now = performance.now();
      at += ((now - last) / 1000) * speed;
      last = now;
      this.#range.value = Math.min(NOTCHES, (at / this.#total) * NOTCHES);
      if (this.#isAtEnd) this.pause();
      this.#go();
    }, FRAME_MS);
    this.#go();
  }

  #moved() {
    this.pause();
    this.#go();
  }

  #step(direction) {
    this.pause();
    const at = this.#isAtEnd ? this.#total : this.#at;
    const slack = this.#total / NOTCHES;
    const next =
      direction > 0
        ? this.#changes.find((change) => change > at + slack)
        : this.#changes.findLast((change) => change < at - slack);
    this.#range.value =
      direction < 0 && next === undefined ? 0 : ((next ?? this.#total) / this.#total) * NOTCHES;
    this.#go(next);
  }

  // A step goes to the exact time of a change: the slider rounds.
  #go(exactly) {
    this.#notify();
    if (!this.#signal.aborted) this.#onTime(this.#isAtEnd ? null : (exactly ?? this.#at));
  }

  #notify() {
    const words = this.#isAtEnd
      ? `the end, ${duration(this.#total)}`
      : `${duration(this.#at)} of ${duration(this.#total)}`;
    setText(this.#words, words);
    this.#range.setAttribute("aria-valuetext", words);
  }
}
