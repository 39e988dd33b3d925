// One open question to a person: a line that opens to the question's text and the answers. An
// approval shows code in a text field; other arguments are listed by name and value, above a field
// with them as JSON. The person may change both before approving.

import { make, makeButton, setAttribute, setText } from "./dom.js";
import { counted } from "./format.js";
import { makeMark } from "./status.js";

const NAMES = { approve: "Approve", deny: "Deny", go: "Go", stop: "Stop", fewer: "Fewer" };
/** In lines. */
const LONGEST_FIELD = 14;
const LONGEST_CODE = 16;
/** In characters. */
const LONGEST_LINE = 300;

export class Question {
  #row;
  #onAnswer;
  #onShow;
  #buttons = [];
  #body = null;
  #field = null;
  #longest = LONGEST_FIELD;
  #change = null;
  #number = null;
  #reason = null;
  #late;
  #error = document.createTextNode("");
  #errorBox = null;
  #state = document.createTextNode("");
  #summary;
  #canAnswer = true;
  #isSent = false;
  #wasOpened = false;

  /**
   * `onAnswer({ question, answer, edited, number, reason })` sends an answer; `onShow(path)` shows
   * the agent.
   */
  constructor(row, { onAnswer, onShow }) {
    this.#row = row;
    this.#onAnswer = onAnswer;
    this.#onShow = onShow;
    this.#summary = make(
      "summary",
      "agentnb-question-head",
      {},
      makeMark("asks").element,
      make("strong", "agentnb-question-path", {}, row.path),
      " ",
      make("span", "agentnb-question-kind", { dir: "auto" }, asksFor(row)),
      " ",
      make("span", "agentnb-question-line", { dir: "auto" }, lineOf(row)),
    );
    this.element = make(
      "details",
      "agentnb-question",
      { "data-question": row.id, "data-kind": row.kind, "data-status": "asks" },
      this.#summary,
    );
    // The body is made when it is first opened: there may be many questions.
    this.element.addEventListener("toggle", () => {
      if (!this.element.open) return;
      this.#wasOpened = true;
      this.#fill();
      this.#fit();
    });
  }

  /** Opens it, but only the first time: the user may have closed it since. */
  openOnce() {
    if (this.#wasOpened) return;
    this.#wasOpened = true;
    this.#fill();
    this.element.open = true;
  }

  focus() {
    this.#summary.focus({ preventScroll: true });
    this.#summary.scrollIntoView({ block: "nearest" });
  }

  /** Offers the answers or not: `canAnswer` is whether the run can be steered. */
  enable(canAnswer) {
    this.#canAnswer = canAnswer;
    if (this.#field) this.#field.disabled = !canAnswer;
    for (const part of [this.#change, this.#number, this.#reason, this.#late, ...this.#buttons]) {
      if (part) part.hidden = !canAnswer;
    }
    for (const button of this.#buttons) button.disabled = this.#isSent;
    if (this.#isSent) setText(this.#state, canAnswer ? "Sent…" : "Sent; no kernel has answered.");
  }

  /** The run did not accept the answer: the person can give another. */
  failed() {
    this.#isSent = false;
    setText(this.#state, "The answer was not accepted.");
    this.enable(this.#canAnswer);
  }

  #fill() {
    if (this.#body) return;
    const row = this.#row;
    this.#body = make("div", "agentnb-question-body", {});
    this.#body.append(make("div", "agentnb-question-text", { dir: "auto" }, row.text));
    if (row.code) this.#body.append(...this.#codeToRun(row));
    else if (row.arguments) this.#body.append(...this.#argumentsGiven(row));
    if (row.tasks.length) this.#body.append(taskList(row.tasks));
    this.#body.append(this.#answers(row));
    this.element.append(this.#body);
    this.enable(this.#canAnswer);
  }

  #codeToRun(row) {
    const lines = counted(row.code.replace(/\n+$/, "").split("\n").length, "line");
    const title = `Code that ${row.path} asks to run: ${lines}`;
    const field = this.#fieldFor(row, row.code, `Code of ${row.tool}`, LONGEST_CODE);
    return [make("div", "agentnb-section-title", { dir: "auto" }, title), ...field];
  }

  #argumentsGiven(row) {
    const title = make("div", "agentnb-section-title", { dir: "auto" }, `Arguments of ${row.tool}`);
    const values = valueList(row.values, `Arguments of ${row.tool}`);
    if (row.fixed) return [title, values, make("div", "agentnb-question-error", {}, row.fixed)];
    const name = `Arguments of ${row.tool} as JSON`;
    const change = make(
      "details",
      "agentnb-question-change",
      {},
      make("summary", "", {}, "Change the arguments"),
      ...this.#fieldFor(row, row.arguments, name, LONGEST_FIELD),
    );
    change.addEventListener("toggle", () => this.#fit());
    this.#change = change;
    return [title, values, change];
  }

  #fieldFor(row, text, name, longest) {
    const id = `agentnb-${row.id}-${Math.random().toString(36).slice(2)}`;
    this.#longest = longest;
    this.#field = make("textarea", "agentnb-field agentnb-question-arguments", {
      "aria-label": name,
      "aria-describedby": id,
      rows: Math.min(text.split("\n").length, longest),
      spellcheck: "false",
      autocomplete: "off",
      dir: "ltr",
      readonly: row.fixed !== "",
    });
    this.#field.value = text;
    this.#field.addEventListener("input", () => this.#edited());
    this.#errorBox = make("div", "agentnb-question-error", { id, dir: "auto" }, this.#error);
    setText(this.#error, row.fixed);
    return [this.#field, this.#errorBox];
  }

  // Makes the field higher for long lines that wrap in it.
  #fit() {
    const field = this.#field;
    if (!field || field.scrollHeight <= field.clientHeight) return;
    const rows = Math.ceil((field.rows * field.scrollHeight) / field.clientHeight);
    field.rows = Math.min(rows, this.#longest);
  }

  #answers(row) {
    const box = make("div", "agentnb-question-answers", {});
    for (const option of row.options) {
      const button = makeButton("agentnb-answer", NAMES[option] ?? option, {
        "data-answer": option,
      });
      button.addEventListener("click", () => this.#answer(option));
      this.#buttons.push(button);
      box.append(button);
      if (option === "deny") box.append(this.#reasonField(row));
      if (option === "fewer") box.append(this.#numberField(row));
    }
    const show = makeButton("agentnb-question-show", `Show agent ${row.path}`);
    show.addEventListener("click", () => this.#onShow(row.path));
    const state = make("span", "agentnb-question-state", { role: "status" }, this.#state);
    this.#late = make("span", "agentnb-question-late", {}, row.late);
    box.append(show, this.#late, state);
    return box;
  }

  #reasonField(row) {
    this.#reason = make("input", "agentnb-field agentnb-question-reason", {
      type: "text",
      maxlength: 1000,
      placeholder: "Reason (optional)",
      "aria-label": `Reason for denying agent ${row.path}`,
      autocomplete: "off",
    });
    return this.#reason;
  }

  #numberField(row) {
    const most = Math.max(1, row.tasks.length - 1);
    this.#number = make("input", "agentnb-field agentnb-question-number", {
      type: "number",
      min: 1,
      max: most,
      value: most,
      "aria-label": "How many agents may start",
    });
    return this.#number;
  }

  get #isEdited() {
    const { code, arguments: given } = this.#row;
    return this.#field !== null && this.#field.value !== (code || given);
  }

  #edited() {
    this.#complain("");
    const words = this.#isEdited ? "Approve with changes" : NAMES.approve;
    const button = this.#buttons.find(({ dataset }) => dataset.answer === "approve");
    if (button && button.textContent !== words) button.textContent = words;
  }

  #answer(answer) {
    if (this.#isSent) return;
    const edited = answer === "approve" && this.#isEdited ? this.#changed() : null;
    const wrong = edited === null ? "" : wrongJson(edited);
    if (wrong) return this.#complain(wrong);
    const number = answer === "fewer" ? this.#wantedNumber() : null;
    if (Number.isNaN(number)) return this.#number.focus();
    const reason = answer === "deny" ? this.#reason.value.trim() || null : null;
    this.#isSent = true;
    // A disabled button would lose the keyboard focus.
    if (this.element.contains(document.activeElement)) this.#summary.focus();
    this.enable(this.#canAnswer);
    this.#onAnswer({ question: this.#row.id, answer, edited, number, reason });
  }

  // The changed arguments as JSON.
  #changed() {
    const { value } = this.#field;
    return this.#row.code ? JSON.stringify({ code: value }) : value;
  }

  #wantedNumber() {
    const field = this.#number;
    return field.checkValidity() && field.value ? Number(field.value) : Number.NaN;
  }

  #complain(words) {
    setText(this.#error, words || this.#row.fixed);
    // A screen reader announces an alert when it appears.
    setAttribute(this.#errorBox, "role", words ? "alert" : null);
    setAttribute(this.#field, "aria-invalid", words ? "true" : null);
    if (!words) return;
    const change = this.#field.closest(".agentnb-question-change");
    if (change) change.open = true;
    this.#field.focus();
  }
}

// The line by which a person tells a closed question from the others.
function lineOf({ code, values, text }) {
  const given = values.map(([name, value]) => `${name}: ${value.slice(0, LONGEST_LINE)}`);
  return (code || given.join(", ") || text).slice(0, LONGEST_LINE).replace(/\s+/g, " ");
}

function asksFor({ kind, tool, tasks }) {
  if (kind === "approval") return `asks to call ${tool}`;
  if (kind === "plan") {
    return tasks.length ? `asks to start ${counted(tasks.length, "agent")}` : "asks about its plan";
  }
  return kind === "sample" ? "asks about the sample" : "asks";
}

function valueList(values, name) {
  const pairs = values.flatMap(([key, value]) => [
    make("dt", "", { dir: "auto" }, key),
    make("dd", "", { dir: "auto" }, value),
  ]);
  const named = { role: "group", "aria-label": name, tabindex: 0 };
  return make("div", "agentnb-question-values", named, make("dl", "", {}, ...pairs));
}

function taskList(tasks) {
  const items = tasks.map((task) => make("li", "", { dir: "auto" }, task));
  const named = { "aria-label": "Tasks about to start", tabindex: 0 };
  return make("ol", "agentnb-question-tasks", named, ...items);
}

/** Why a text is not a JSON object; `""` if it is one. */
export function wrongJson(text) {
  try {
    const value = JSON.parse(text);
    const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
    return isObject ? "" : "The arguments must be a JSON object, such as {}. Nothing was sent.";
  } catch (error) {
    return `This is not JSON, so nothing was sent: ${error.message}`;
  }
}
