// The table of a map with its filter, and the details of the open row: what `View` shows of a map.

import { make, makeButton, setAttribute, setText } from "./dom.js";
import { doingNow, tokenCount, wholeNumber } from "./format.js";
import { MapGrid } from "./map_grid.js";
import { hasNoAnswer, judgePaths, orderedRows, placeOfAgent, rowStatus } from "./map_rows.js";
import { makeMark, markOf, statusWords } from "./status.js";

const ORDER_NAMES = { failures: "Failures first", failed: "Failed only", all: "All" };

export class MapPicture {
  hasReplay = false;
  /** The path of the agent whose details are open; `null` for none. */
  selected = null;
  #store;
  #viewModel;
  #onSelect;
  #grid;
  #order = "failures";
  #statuses = [];
  #counts = new Map();
  #found = document.createTextNode("");
  #side;
  #sideTitle = document.createTextNode("");
  #judges = [];
  #judgeButtons = make("span", "agentnb-map-judges", { role: "group", "aria-label": "Judges" });

  constructor({ store, viewModel, details, onSelect, signal }) {
    this.#store = store;
    this.#viewModel = viewModel;
    this.#onSelect = onSelect;
    this.#grid = new MapGrid({
      cellsOf: (row) => this.#cells(row),
      onOpen: (row, judge) => this.#open(row, judge),
      onClose: () => this.#close(),
      signal,
    });
    this.sized = this.#grid.element;
    this.head = this.#chips(signal);
    this.#side = this.#makeSide(details, signal);
    this.body = make("div", "agentnb-map-body", {}, this.#grid.element, this.#side);
  }

  /** Shows changed agents, or with `isWhole` everything. */
  draw({ isWhole, paths = [] }) {
    const { size, judges } = this.#store;
    if (isWhole || this.#statuses.length !== size) {
      this.#statuses = Array.from({ length: size }, (_, row) => this.#statusOf(row));
      this.#arrange();
      return;
    }
    const touched = new Set();
    let moved = false;
    for (const path of paths) {
      const row = placeOfAgent(path, judges)?.row;
      if (row === undefined || row >= size || touched.has(row)) continue;
      touched.add(row);
      const status = this.#statusOf(row);
      moved ||= hasNoAnswer(status) !== hasNoAnswer(this.#statuses[row]);
      this.#statuses[row] = status;
    }
    if (moved) this.#arrange();
    else this.#grid.refresh(touched);
    this.#showJudges();
  }

  /** The run has ended, and so have rows for which not all judges began. */
  ended() {
    this.draw({ isWhole: true });
  }

  tick() {
    this.#grid.refresh(this.#statuses.keys());
  }

  count() {
    const failed = this.#statuses.filter(hasNoAnswer).length;
    setText(this.#counts.get("failed"), ` ${wholeNumber(failed)}`);
    setText(this.#counts.get("all"), ` ${wholeNumber(this.#statuses.length)}`);
    const words = `${wholeNumber(failed)} of ${wholeNumber(this.#statuses.length)} rows`;
    setText(this.#found, this.#order === "failed" ? words : "");
  }

  /** Opens the row of an agent, even if the filter hides it. */
  show(path) {
    const place = placeOfAgent(path, this.#store.judges);
    if (!place) return;
    if (!this.#grid.reveal(place.row)) this.#choose("all");
    this.#open(place.row, place.judge);
    this.#grid.reveal(place.row);
    this.#grid.focus();
  }

  focus() {
    this.#grid.focus();
  }

  settled() {
    this.#grid.settled();
  }

  /** Code has set another height, which the style already has. */
  resize() {
    this.#grid.settled();
  }

  #statusOf(row) {
    const paths = judgePaths(row, this.#store.judges);
    return rowStatus(paths.map(this.#viewModel.row), this.#store.done);
  }

  #arrange() {
    this.#grid.arrange(orderedRows(this.#statuses, this.#order), this.#store.judges);
    this.#mark();
  }

  #cells(row) {
    const agents = judgePaths(row, this.#store.judges).map(this.#viewModel.row);
    const asking = agents.find((agent) => agent && markOf(agent) !== agent.status);
    const status = asking ? markOf(asking) : this.#statuses[row];
    const tokens = agents.reduce((sum, agent) => sum + (agent?.tokens ?? 0), 0);
    const isReused = agents.every((agent) => agent?.status === "completed" && !agent.tokens);
    return {
      status,
      words: asking ? statusWords(asking) : this.#wordsOf(status, isReused),
      label: this.#store.labels[row] ?? "",
      tokens: tokens
        ? tokenCount(
            tokens,
            agents.some((agent) => agent?.estimated),
          )
        : "",
      answers: agents.map((agent) => this.#answer(agent)),
    };
  }

  #wordsOf(status, isReused) {
    if (status === "completed") return isReused ? "reused" : "completed";
    return status === "pending" ? "open" : status;
  }

  #answer(agent) {
    if (!agent) return { status: "pending", words: "", isTrouble: false };
    if (agent.status === "completed") {
      return { status: agent.status, words: agent.answer ?? "", isTrouble: false };
    }
    const doing = doingNow(agent, this.#viewModel.time());
    const isTrouble = Boolean(agent.error) && !doing;
    return { status: agent.status, words: doing || (agent.error ?? ""), isTrouble };
  }

  // -- the open row

  #makeSide(details, signal) {
    const close = makeButton("agentnb-map-close", "Close", { "aria-label": "Close the row" });
    const title = make("strong", "agentnb-map-title", {}, this.#sideTitle);
    const bar = make("div", "agentnb-map-bar", {}, title, this.#judgeButtons, close);
    const side = make("div", "agentnb-map-side", { hidden: "" }, bar, details);
    const listen = (element, name, handler) => element.addEventListener(name, handler, { signal });
    listen(close, "click", () => this.#close());
    listen(side, "keydown", (event) => {
      if (event.key === "Escape") this.#close();
    });
    listen(this.#judgeButtons, "click", (event) => {
      const judge = event.target.closest("[data-judge]")?.dataset.judge;
      const { row } = placeOfAgent(this.selected, this.#store.judges);
      if (judge) this.#open(row, Number(judge) - 1);
    });
    return side;
  }

  #open(row, judge) {
    const path = judgePaths(row, this.#store.judges)[judge];
    if (!this.#viewModel.row(path)) return; // it has not begun
    const wasHidden = this.#side.hidden;
    this.#side.hidden = false;
    this.selected = path;
    this.#mark();
    if (wasHidden) this.#grid.settled();
    this.#grid.reveal(row);
    this.#onSelect();
  }

  #close() {
    if (this.#side.hidden) return;
    this.#side.hidden = true;
    this.selected = null;
    this.#mark();
    this.#grid.settled();
    this.#grid.focus();
  }

  #mark() {
    const place = this.selected && placeOfAgent(this.selected, this.#store.judges);
    this.#grid.mark(place ? place.row : null, place ? place.judge : null);
    if (place) setText(this.#sideTitle, `Row ${wholeNumber(place.row + 1)}`);
    this.#showJudges();
  }

  #showJudges() {
    const { judges } = this.#store;
    const place = this.selected && placeOfAgent(this.selected, judges);
    this.#judgeButtons.hidden = judges === 1;
    if (judges === 1 || !place) return;
    for (let judge = this.#judges.length; judge < judges; judge += 1) this.#addJudge(judge + 1);
    for (const [judge, { button, mark }] of this.#judges.slice(0, judges).entries()) {
      const agent = this.#viewModel.row(judgePaths(place.row, judges)[judge]);
      mark.show(agent ? markOf(agent) : "pending");
      button.disabled = !agent;
      setAttribute(button, "aria-pressed", String(judge === place.judge));
    }
  }

  #addJudge(number) {
    const mark = makeMark("pending");
    const button = makeButton("agentnb-chip", "", { "data-judge": number });
    button.append(mark.element, `Judge ${number}`);
    this.#judgeButtons.append(button);
    this.#judges.push({ button, mark });
  }

  // -- which rows are shown

  #chips(signal) {
    const box = make("div", "agentnb-chips", { role: "group", "aria-label": "Rows shown" });
    for (const [order, name] of Object.entries(ORDER_NAMES)) {
      const count = document.createTextNode("");
      const chip = makeButton("agentnb-chip", name, { "data-order": order });
      chip.append(count);
      this.#counts.set(order, count);
      box.append(chip);
    }
    box.addEventListener(
      "click",
      (event) => {
        const order = event.target.closest("[data-order]")?.dataset.order;
        if (order) this.#choose(order);
      },
      { signal },
    );
    const found = make("span", "agentnb-found", { role: "status" }, this.#found);
    const head = make("div", "agentnb-toolbar agentnb-map-toolbar", {}, box, found);
    this.#press(box);
    return head;
  }

  #choose(order) {
    this.#order = order;
    this.#press(this.head);
    this.#grid.element.scrollTop = 0;
    this.#arrange();
    this.count();
  }

  #press(box) {
    for (const chip of box.querySelectorAll("[data-order]")) {
      setAttribute(chip, "aria-pressed", String(chip.dataset.order === this.#order));
    }
  }
}
