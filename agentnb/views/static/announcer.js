// Announces ended agents and the run's end to screen readers. Announcements are batched, so that a
// hundred agents are one sentence; tokens and seconds are never announced.

import { make } from "./dom.js";
import { counted } from "./format.js";
import { statusCounts } from "./status.js";

const EVERY_MS = 3_000;
const NAMED = 3;

export class Announcer {
  #ended = [];
  #lines = [];
  #last = "";
  #timer = null;
  #stopped = false;
  element = make("div", "agentnb-live", { role: "status", "aria-live": "polite" });

  /** Queues the rows of agents that have ended. */
  announce(rows) {
    this.#ended.push(...rows.map(({ path, status }) => ({ path, status })));
    if (this.#ended.length) this.#soon();
  }

  /** Queues notices: lines on what was stopped or not done. */
  announceLines(lines) {
    this.#lines.push(...lines);
    this.#soon();
  }

  /** Queues the run's end. */
  announceEnd(status) {
    this.#last = `The run has ended: ${status}.`;
    this.#soon();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #soon() {
    if (this.#timer !== null || this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      const words = [endWords(this.#ended), ...this.#lines, this.#last];
      this.element.textContent = words.filter(Boolean).join(" ");
      this.#ended = [];
      this.#lines = [];
      this.#last = "";
    }, EVERY_MS);
  }
}

/** `1.2 completed, 1.3 failed.`; for many: `12 agents completed, 1 agent failed.` */
export function endWords(ended) {
  if (!ended.length) return "";
  const words =
    ended.length <= NAMED
      ? ended.map(({ path, status }) => `${path} ${status}`)
      : statusCounts(ended.map(({ status }) => status)).map(
          ([status, count]) => `${counted(count, "agent")} ${status}`,
        );
  return `${words.join(", ")}.`;
}
