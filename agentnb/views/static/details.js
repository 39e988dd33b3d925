// The details of the selected agent: its task and status, each call with its prompt, and the growing
// text. Sections are kept and only their contents change.

import { Calls } from "./calls.js";
import { make, makeButton, setAttribute, setText } from "./dom.js";
import { doingNow, timeTaken, tokensByKind } from "./format.js";
import { Prompt } from "./prompt.js";
import { Prose } from "./prose.js";
import { isFinal, makeMark, markOf, statusWords } from "./status.js";
import { Tell } from "./tell.js";
import { ToolCalls } from "./tool_calls.js";

const FACTS = "Model Job Profile Reused Tokens Cost Time Now Attempt Error Notes".split(" ");

export class Details {
  #data = {};
  #facts = new Map();
  #mark = makeMark("pending");
  #title = document.createTextNode("");
  #status = document.createTextNode("");
  #pause = makeButton("agentnb-pause", "Pause agent", { hidden: "" });
  #cancel = makeButton("agentnb-cancel", "Cancel agent", { hidden: "" });
  #task = new Prose("agentnb-task", "Task");
  #text = new Prose("agentnb-text", "Text of the call", { fromEnd: true });
  #textTitle = document.createTextNode("Text");
  #textSection = section(this.#textTitle, this.#text.element);
  #prompt = new Prompt();
  #tools = new ToolCalls();
  #missingWords = document.createTextNode("");
  #missing = make("p", "agentnb-missing", { hidden: "" }, this.#missingWords);
  #asked = null;
  #canSteer = false;
  #isPaused = false;

  /**
   * The controls call `onCancel(path)`, `onPause(path)`, `onResume(path)`, `onTell(path, text)` and
   * `onCall(number)`, with `null` for the newest call.
   */
  constructor({ onCancel, onPause, onResume, onTell, onCall, signal }) {
    this.calls = new Calls(onCall, signal);
    this.tell = new Tell({ onTell, signal });
    this.element = make(
      "div",
      "agentnb-details",
      { role: "region", "data-agent-details": "", "aria-label": "Details of the agent" },
      this.#head(),
      this.#task.element,
      this.#factList(),
      this.#missing,
      this.#textSection,
      this.calls.element,
      this.#prompt.element,
      this.#tools.element,
      this.tell.element,
    );
    this.#cancel.addEventListener("click", () => this.#askToCancel(onCancel), { signal });
    const pauseOrResume = () => (this.#isPaused ? onResume : onPause)(this.#data.agent);
    this.#pause.addEventListener("click", pauseOrResume, { signal });
  }

  /** Shows a newly chosen agent: the tree's data at once, the rest when it arrives. */
  begin(row) {
    // The `details` message may arrive before the tree is drawn for the first time.
    if (this.#data.agent !== row.path) this.#clear(row);
    this.#asked = null;
    setAttribute(this.element, "data-agent-details", row.path);
    setAttribute(this.element, "aria-label", `Details of agent ${row.path}`);
    setText(this.#title, row.path);
    this.#tools.label(row.path);
    this.tell.begin(row.path);
    this.#draw();
    this.element.scrollTop = 0;
  }

  #clear(row) {
    const known = { agent: row.path, task: row.task, model: row.model, error: row.error };
    this.#data = { ...known, calls: [], call: null, prompt: null, text: "", notes: [] };
    this.#tools.set([]);
  }

  /** Says why there is no text of the chosen agent. */
  missing(words) {
    setText(this.#missingWords, words);
    this.#missing.hidden = false;
    this.#textSection.hidden = true;
  }

  /** Applies a `details` message for the chosen agent. */
  take({ add, tools, ...fields }) {
    this.#missing.hidden = true;
    this.#textSection.hidden = false;
    if (fields.reset) this.#data = { agent: fields.agent, text: "" };
    Object.assign(this.#data, fields);
    if (fields.reset) this.#tools.set(Array.isArray(tools) ? tools : []);
    else if (Array.isArray(tools)) this.#tools.add(tools);
    this.#draw();
    if (typeof add === "string") this.#text.add(add);
  }

  /**
   * Shows the agent's row at the run's time `now`, in seconds. `exists` is false if a replay shows
   * a time before the agent began.
   */
  show(row, now, { canSteer, exists = true }) {
    if (!exists) return this.#notYet(row);
    this.#canSteer = canSteer && !isFinal(row.status);
    this.#isPaused = row.paused === "here";
    this.#mark.show(markOf(row));
    setText(this.#status, statusWords(row) + (row.stalled ? ", stalled" : ""));
    setAttribute(this.element, "data-status", row.status);
    this.#fact("Tokens", tokensByKind(row, this.#data.tokens));
    // A reused agent's time is only that of reading its record.
    this.#fact("Time", row.reused ? "" : timeTaken(row, now));
    this.#fact("Now", doingNow(row, now));
    this.#fact("Attempt", row.attempt > 1 ? `${row.attempt} (tried again)` : "");
    this.#tools.tick(now);
    this.#offer(row, canSteer);
    return undefined;
  }

  /** A command failed: it can be given again. */
  commandFailed() {
    this.#asked = null;
    this.#cancel.disabled = false;
  }

  #notYet(row) {
    this.#canSteer = false;
    this.#offer(row, false);
    this.#mark.show("pending");
    setText(this.#status, "not available yet");
    for (const name of FACTS) this.#fact(name, "");
  }

  #head() {
    const status = make("span", "agentnb-details-status", {}, this.#mark.element, this.#status);
    const title = make("strong", "agentnb-details-path", { tabindex: -1 }, this.#title);
    return make("div", "agentnb-details-head", {}, title, status, this.#pause, this.#cancel);
  }

  #factList() {
    const list = make("dl", "agentnb-details-facts");
    for (const name of FACTS) {
      const value = document.createTextNode("");
      const box = make("div", "agentnb-details-fact", {
        "data-fact": name.toLowerCase(),
        hidden: "",
      });
      box.append(make("dt", "", {}, name), make("dd", "", { dir: "auto" }, value));
      this.#facts.set(name, { box, value });
      list.append(box);
    }
    return list;
  }

  #fact(name, words) {
    const { box, value } = this.#facts.get(name);
    setText(value, words ?? "");
    box.hidden = !words;
  }

  #draw() {
    const data = this.#data;
    this.#task.set(data.task ?? "");
    this.#fact("Model", data.model);
    this.#fact("Job", data.job);
    this.#fact("Profile", data.profile);
    this.#fact("Reused", data.reused);
    this.#fact("Cost", data.cost);
    this.#fact("Error", data.error);
    this.#fact("Notes", (data.notes ?? []).join("\n"));
    this.tell.heard(data.told ?? 0);
    this.calls.show(data);
    this.#prompt.show(data.prompt ?? null);
    const call = data.call ?? null;
    setText(this.#textTitle, call === null ? "Text" : `Text of call ${call}`);
    this.#text.label(call === null ? "Text" : `Text of call ${call} of agent ${data.agent}`);
    // Later text comes as `add`; only a full text replaces.
    if (typeof data.text === "string") this.#text.set(data.text);
    delete data.text;
  }

  #offer(row, canSteer) {
    const buttons = [this.#pause, this.#cancel];
    const hadFocus = buttons.includes(document.activeElement);
    for (const button of buttons) button.hidden = !this.#canSteer;
    const words = this.#isPaused ? "Resume agent" : "Pause agent";
    if (this.#pause.textContent !== words) this.#pause.textContent = words;
    if (this.#asked !== row.path) this.#cancel.disabled = false;
    const lostField = this.tell.show(row, { canTell: canSteer });
    // A control that is hidden would lose the keyboard focus.
    if ((hadFocus && !this.#canSteer) || lostField)
      this.element.querySelector(".agentnb-details-path").focus();
  }

  #askToCancel(onCancel) {
    this.#asked = this.#data.agent;
    this.#cancel.disabled = true;
    onCancel(this.#data.agent);
  }
}

function section(title, ...content) {
  return make(
    "div",
    "agentnb-section",
    {},
    make("div", "agentnb-section-title", {}, title),
    ...content,
  );
}
