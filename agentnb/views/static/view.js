// One view of a run: its picture (a tree, or the table of a map), the details of the selected agent,
// questions, the replay. Frames are batched and drawn with the next paint; a page in the background
// draws the last state when it is shown.

import { Announcer } from "./announcer.js";
import { Details } from "./details.js";
import { DetailsRequest } from "./details_request.js";
import { make, makeButton, setText } from "./dom.js";
import { counted, dayAndTime } from "./format.js";
import { hearAnswer, hearEndKey, nameSliders } from "./labels.js";
import { Notifier } from "./notifier.js";
import { Questions } from "./questions.js";
import { Scrubber } from "./scrubber.js";
import { ViewModel } from "./view_model.js";

const TICK_MS = 1_000;
// A closed page sends no message, so an open one reports regularly.
const HERE_MS = 10_000;
const GONE = "The kernel is gone: this is the run's last known state.";
const SILENT = "The kernel does not answer: this is the run's last known state.";
const LOADED = "The run had not ended when it was loaded";
const LOAD_AGAIN = "load it again for what came since.";
const KERNEL_GONE = " The kernel is gone.";
const NO_ANSWER = " No kernel answers.";
const NO_REPLAY = "The kernel is gone, and the replay with it: this is the run's end.";
const SAVED = "No kernel answers: this is the run as the page was saved.";
const NOT_SAVED =
  "No kernel answers, and an agent's text is not saved in the page: the run's record has it.";

export class View {
  id = makeId();
  #connection;
  #model;
  #over = new AbortController();
  #viewModel;
  #request;
  #picture;
  #details;
  #scrubber;
  #questions;
  #notifier;
  #announcer = new Announcer();
  #notice = make("div", "agentnb-notice", { role: "status" });
  #leftOutWords = document.createTextNode("");
  #leftOut = make("div", "agentnb-left-out", { hidden: "" }, this.#leftOutWords);
  #dirty = new Set();
  #added = false;
  #rearrange = true;
  #paint = null;
  /** The last `details` message, if none was missed. */
  #heard = null;
  /** The path of the agent whose details are shown. */
  #shown = null;
  /** The shown call (`null`: the newest) and time (`null`: now). */
  #call = null;
  #at = null;
  #panel = null;
  /** What holds the controls of the run beside the view. */
  #box = null;
  #isOver = false;
  /** How the kernel went, or that none answered; `null` while there may be one. */
  #how = null;

  /**
   * `makePicture(given)` makes the picture of the agents; `given` has the `viewModel`, the `store`,
   * the element of the `details`, `isOver()`, `onSelect()` and a `signal` that aborts when the view
   * closes. A picture has the elements `head` and `body`, one whose size it follows (`sized`),
   * `hasReplay`, the path `selected` (or `null`), and `draw`, `ended`, `tick`, `count`, `show`,
   * `focus`, `settled` and `resize`.
   */
  constructor(connection, model, makePicture) {
    this.#connection = connection;
    this.#model = model;
    this.#viewModel = new ViewModel(connection.store, () => performance.now());
    this.#request = new DetailsRequest((wanted) =>
      connection.send({ type: "details", view: this.id, ...wanted }),
    );
    this.#build(makePicture);
    this.#listen();
    connection.join(this);
    this.#choose();
    this.#soon();
  }

  frame(change) {
    for (const path of change.paths) this.#dirty.add(path);
    if (change.outcome === "full") this.#rearrange = true;
    if (change.added) this.#added = true;
    if (this.#connection.isFirst(this)) {
      this.#announcer.announce(change.ended);
      if (change.finished) this.#announcer.announceEnd(this.#connection.store.status);
      this.#questions.announce(change.asked);
      this.#giveNotice(change);
    }
    this.#soon();
  }

  message(message) {
    if (message.type === "details") this.#takeDetails(message);
    else if (message.type === "replay") this.#takeReplay(message);
    else if (message.type === "notices") this.#hearLines(message.lines);
    else if (message.type === "failed") this.#hearFailure(message);
  }

  /** The kernel has spoken: the page may hide what repeats the view (`cell.css`). */
  alive() {
    const stoodStill = this.#how !== null;
    this.#standStill(null);
    if (stoodStill) this.#choose();
    this.#soon();
  }

  closed(how) {
    const wasReplay = this.#at !== null;
    this.#scrubber.withdraw();
    this.#goTo(null);
    this.#request.stop();
    this.#standStill(how);
    if (wasReplay && how.wasAlive && !how.isSilent) this.#tell(NO_REPLAY);
    if (!this.#heard) this.#ask();
    this.#soon();
  }

  close() {
    this.#over.abort();
    this.#request.stop();
    this.#announcer.stop();
    cancelAnimationFrame(this.#paint);
    this.#connection.leave(this);
    this.element.remove();
    this.#markStill();
  }

  #build(makePicture) {
    const { signal } = this.#over;
    this.#details = new Details({
      onCancel: (agent) => this.#connection.send({ type: "cancel", agent }),
      onPause: (agent) => this.#connection.send({ type: "pause", agent }),
      onResume: (agent) => this.#connection.send({ type: "resume", agent }),
      onTell: (agent, text) => this.#connection.send({ type: "tell", agent, text }),
      onCall: (call) => {
        this.#call = call;
        this.#heard = null;
        this.#ask();
      },
      signal,
    });
    this.#picture = makePicture({
      store: this.#connection.store,
      viewModel: this.#viewModel,
      details: this.#details.element,
      isOver: () => this.#connection.store.done,
      onSelect: () => this.#choose(),
      signal,
    });
    this.#scrubber = new Scrubber((at) => this.#goTo(at), signal);
    this.#questions = new Questions({
      onAnswer: (answer) => this.#answer(answer),
      onShow: (path) => this.#picture.show(path),
    });
    this.element = make(
      "div",
      // Keeps the tree's keys from JupyterLab, which would move cells with them.
      "agentnb-tree-view",
      { "data-lm-suppress-shortcuts": "true" },
      this.#questions.element,
      this.#picture.head,
      this.#notice,
      this.#picture.body,
      this.#leftOut,
      ...(this.#picture.hasReplay ? [this.#scrubber.element] : []),
      this.#announcer.element,
      this.#questions.live,
    );
    this.#notifier = new Notifier(this.element, signal);
    this.#resize();
  }

  #listen() {
    const { signal } = this.#over;
    const timer = setInterval(() => this.#tick(), TICK_MS);
    const here = setInterval(() => this.#here(), HERE_MS);
    const size = new ResizeObserver(() => this.#settled());
    size.observe(this.element);
    size.observe(this.#picture.sized);
    const controls = () => this.#soon();
    const height = () => this.#resize();
    this.#model.on("change:controls", controls);
    this.#model.on("change:height", height);
    signal.addEventListener("abort", () => {
      clearInterval(timer);
      clearInterval(here);
      size.disconnect();
      this.#model.off("change:controls", controls);
      this.#model.off("change:height", height);
    });
  }

  // The element was put into the page, moved in it, or resized.
  #settled() {
    if (!this.element.isConnected) return;
    this.#picture.settled();
    const panel = this.element.closest(".agentnb-panel");
    if (this.#how !== null) this.#markStill();
    if (!panel || this.#panel === panel) return;
    this.#panel = panel;
    this.#markStill();
    const toEnd = (total) => this.#connection.send({ type: "budget", total });
    const { signal } = this.#over;
    signal.addEventListener("abort", nameSliders(panel));
    hearEndKey(panel, signal, toEnd);
    // Its header changes each second while the kernel lives; the view itself only where agents do.
    const header = panel.querySelector(".agentnb-header");
    const hears = new MutationObserver(() => this.#connection.spoke());
    if (header) hears.observe(header, { childList: true, subtree: true, characterData: true });
    signal.addEventListener("abort", () => hears.disconnect());
    hearAnswer(panel, signal, () => this.#questions.focus() || this.#picture.focus());
  }

  #resize() {
    const height = Number(this.#model.get("height")) || 0;
    this.#picture.resize(Math.max(0, height));
    if (height > 0) this.element.style.setProperty("--agentnb-height", `${height}px`);
    else this.element.style.removeProperty("--agentnb-height");
  }

  #soon() {
    this.#paint ??= requestAnimationFrame(() => {
      this.#paint = null;
      this.#draw();
    });
  }

  #draw() {
    if (!this.#viewModel.isReplay) {
      const paths = [...this.#dirty];
      this.#picture.draw({ isWhole: this.#rearrange, paths, added: this.#added });
      this.#rearrange = this.#added = false;
      this.#dirty.clear();
    }
    if (this.#connection.store.done && !this.#isOver) {
      this.#isOver = true;
      this.#picture.ended();
    }
    this.#picture.count();
    const { leftOut } = this.#connection.store;
    this.#leftOut.hidden = !leftOut;
    setText(this.#leftOutWords, leftOut && `Not in this page: ${leftOut}.`);
    this.#showQuestions();
    this.#showDetails();
    this.#offerReplay();
  }

  get #canSteer() {
    const { store, isAlive } = this.#connection;
    return Boolean(this.#model.get("controls")) && isAlive && !store.done;
  }

  #showQuestions() {
    const { questions, done } = this.#connection.store;
    this.#questions.show(done ? [] : questions, { canAnswer: this.#canSteer });
  }

  #answer({ question, answer, edited, number, reason }) {
    const send = (message) => this.#connection.send(message);
    send({ type: "answer", question, answer, arguments: edited, number, reason });
  }

  // Notifies of questions and the end of a run in the background.
  #giveNotice({ asked, finished }) {
    if (!this.#model.get("notify")) return;
    const { store } = this.#connection;
    if (finished) this.#notifier.tell(`ended: ${store.status}`);
    else if (asked.length) this.#notifier.tell(counted(store.questions.length, "question"));
  }

  // The run did not accept a command: the person can give it again.
  #hearFailure({ command, about }) {
    if (command === "answer") this.#questions.failed(about);
    else if (command === "tell") this.#details.tell.failed(about);
    else this.#details.commandFailed();
    this.#soon();
  }

  #here() {
    if (this.element.isConnected && !this.#connection.store.done) {
      this.#connection.send({ type: "here", view: this.id });
    }
  }

  #tick() {
    if (document.hidden || this.#connection.store.done || this.#viewModel.isReplay) return;
    this.#picture.tick();
    this.#showDetails();
  }

  #showDetails() {
    const { selected } = this.#picture;
    const row = this.#viewModel.row(selected);
    if (!row) return;
    if (this.#shown !== selected) {
      this.#shown = selected;
      this.#details.begin(row);
    }
    const canSteer = this.#canSteer && !this.#viewModel.isReplay;
    this.#details.calls.turnOff(this.#connection.isClosed);
    const exists = this.#viewModel.exists(selected);
    this.#details.show(row, this.#viewModel.time(), { canSteer, exists });
  }

  #offerReplay() {
    const { store } = this.#connection;
    if (!store.done || this.#at !== null || !this.#connection.isAlive) return;
    if (!this.#picture.hasReplay) return;
    const ofAgents = [...store.rows.values()].flatMap(({ begun, ended }) => [begun, ended]);
    const changes = [...ofAgents, ...store.marks];
    this.#scrubber.offer(store.time(0), changes.filter(Number.isFinite));
  }

  #choose() {
    this.#call = null;
    this.#heard = null;
    this.#showDetails();
    this.#ask();
  }

  #ask() {
    const agent = this.#picture.selected;
    if (agent === null) return;
    const isThere = this.#heard?.agent === agent && this.#heard.at === null;
    if (this.#connection.isClosed && !isThere) this.#details.missing(NOT_SAVED);
    else if (!this.#connection.isClosed)
      this.#request.want({ agent, call: this.#call, at: this.#at });
  }

  #goTo(at) {
    if (at === this.#at) return;
    this.#at = at;
    if (at === null) this.#showReplay(null);
    this.#ask();
  }

  // An addition is applied only if all messages before it arrived, for the shown agent and time.
  #takeDetails(message) {
    if (message.reset) {
      this.#request.answered();
      this.#heard = { agent: message.agent, at: message.at ?? null, n: message.n };
    } else if (message.n === this.#heard?.n + 1) {
      this.#heard.n = message.n;
    } else if (this.#heard) {
      this.#heard = null;
      this.#ask();
    }
    const { agent, at } = this.#heard ?? {};
    if (agent !== this.#picture.selected || (at === null) !== (this.#at === null)) return;
    this.#details.take(message);
    this.#soon();
  }

  #takeReplay(replay) {
    if (this.#at !== null) this.#showReplay(replay);
  }

  #showReplay(replay) {
    this.#viewModel.replay(replay);
    this.#picture.draw({ isWhole: true });
    this.#picture.count();
    this.#showDetails();
    this.element.dataset.replay = String(this.#viewModel.isReplay);
  }

  // A panel shows notices above the tree; a view without a panel shows them itself.
  #hearLines(lines) {
    if (!Array.isArray(lines)) return;
    this.#details.commandFailed();
    if (!this.element.closest(".agentnb-panel")) this.#say(lines.join(" "));
    else if (this.#connection.isFirst(this)) this.#announcer.announceLines(lines.map(String));
  }

  // Without a kernel nothing can be steered. `how` is `null` while there is one.
  #standStill(how) {
    this.#how = how;
    if (this.#connection.store.still) this.#tell(this.#loaded(how));
    else if (how === null) this.#notice.replaceChildren();
    else if (!how.wasAlive) this.#tell(how.wasDone ? SAVED : `${SAVED} It is ${this.#asOf(how)}.`);
    else if (how.isSilent) this.#tell(`${SILENT}${this.#standsAsOf(how)}`);
    else if (!how.wasDone) this.#tell(`${GONE}${this.#standsAsOf(how)}`);
    this.#markStill();
  }

  #markStill() {
    const how = this.#how;
    this.element.classList.toggle("agentnb-is-live", this.#connection.isAlive);
    this.element.classList.toggle("agentnb-stands-still", how !== null);
    this.element.classList.toggle("agentnb-is-over", how?.wasDone ?? false);
    const box = this.#panel ?? outermostBox(this.element);
    for (const each of new Set([box, this.#box])) markBox(each);
    this.#box = box;
    if (!this.#panel) return;
    const status = this.#panel.querySelector(".agentnb-run-status");
    status?.querySelector(".agentnb-as-of")?.remove();
    if (how === null || how.wasDone) return;
    status?.append(make("span", "agentnb-as-of", {}, ` (${this.#asOf(how)})`));
  }

  #loaded(how) {
    const at = dayAndTime(new Date(this.#connection.store.still * 1000));
    const kernel = how === null ? "" : how.wasAlive && !how.isSilent ? KERNEL_GONE : NO_ANSWER;
    return `${LOADED}, ${at}: ${LOAD_AGAIN}${kernel}`;
  }

  // In a panel the header says it.
  #standsAsOf(how) {
    const isSaid = how.wasDone || this.element.closest(".agentnb-panel");
    return isSaid ? "" : ` It is ${this.#asOf(how)}.`;
  }

  #asOf({ wasAlive }) {
    const { stillSince, store } = this.#connection;
    const made = store.still || (wasAlive ? 0 : store.made);
    const at = made ? new Date(made * 1000) : stillSince;
    return `not live: as of ${dayAndTime(at)}`;
  }

  #tell(words) {
    this.#notice.replaceChildren(make("span", "", {}, words));
  }

  #say(text) {
    const close = makeButton("agentnb-notice-close", "Dismiss");
    close.addEventListener("click", () => this.#notice.replaceChildren());
    this.#notice.replaceChildren(make("span", "", { dir: "auto" }, text), close);
  }
}

// A box steers with a view in it that is alive: its controls, which are saved hidden, are shown. It
// stands still with one that has no kernel, if none is alive.
function markBox(box) {
  if (!box || box.classList.contains("agentnb-tree-view")) return;
  const has = (mark) => box.querySelector(`.agentnb-tree-view.${mark}`) !== null;
  const isLive = has("agentnb-is-live");
  box.classList.toggle("agentnb-stands-still", !isLive && has("agentnb-stands-still"));
  box.classList.toggle("agentnb-steers", isLive);
}

// A dashboard of one's own may have controls of the run beside the view.
function outermostBox(element) {
  let box = element;
  for (let at = element; at; at = at.parentElement?.closest(".widget-box")) box = at;
  return box;
}

function makeId() {
  return Math.random().toString(36).slice(2, 12);
}
