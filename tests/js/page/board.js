// Shows a made-up board. The address may have `kind` (`tasks` or `threads`), `rows` (their number), `cut`
// (as many rows as a saved page holds), `alone` (no kernel) and `dark`. `window.page` drives it and plays
// the kernel.

import widget from "/agentnb/views/static/board_panel.js";
import { fakeModel } from "./fake_model.js";
import * as madeUp from "./made_up_board.js";

const asked = new URLSearchParams(location.search);
const kind = asked.get("kind") ?? "threads";
const count = Number(asked.get("rows") ?? 12);
const rows = kind === "tasks" ? madeUp.madeUpTasks(count) : madeUp.madeUpThreads(count);
const full = (seq) => ({ type: "frame", seq, base: null, rows, order: rows.map(({ id }) => id) });
const cut = Number(asked.get("cut") ?? 0);
const snapshot = {
  ...full(1),
  ...(cut && { rows: rows.slice(0, cut), left_out: `${count - cut} more rows` }),
};
const model = fakeModel({ snapshot, kind });
let seq = 1;

document.body.dataset.jpThemeLight = String(!asked.has("dark"));

/** The messages that answer `read`, by thread. */
const lines = new Map();

const answerTo = (message) => {
  if (asked.has("alone")) return;
  const { type, view } = message;
  if (type === "hello") model.tell(full(seq));
  if (type === "read" && message.thread !== null) tellConversation(message);
  if (type === "open" && message.id !== null) {
    const row = rows.find(({ id }) => id === message.id);
    model.tell({ type: "task", view, id: message.id, task: madeUp.madeUpTask(row) });
  }
  if (type === "calls")
    model.tell({ type: "calls", view, run: message.run, tools: madeUp.madeUpCalls() });
};

// Answers later, like a kernel.
model.answer = (message) => void setTimeout(() => answerTo(message));

function tellConversation({ view, thread, most }) {
  const row = rows.find(({ id }) => id === thread) ?? { name: "reviewer", status: "working" };
  const all = lines.get(thread) ?? madeUp.madeUpConversation(row);
  const { name, status } = row;
  const shown = all.slice(-most);
  const above = all.length - shown.length;
  const head = { type: "conversation", view, thread, n: 0, name, status, is_there: true, above };
  model.tell({ ...head, order: shown.map(({ id }) => id), lines: shown });
}

/** Changes rows. Returns the ms from the beginning of the browser's frame to the end of its paint. */
function step(changed, order = null) {
  for (const row of changed) {
    const at = rows.findIndex(({ id }) => id === row.id);
    if (at >= 0) rows[at] = row;
    else rows.unshift(row);
  }
  seq += 1;
  const frame = { type: "frame", seq, base: seq - 1, rows: changed, order };
  return new Promise((resolve) => {
    let begun = 0;
    const painted = new MessageChannel();
    painted.port1.onmessage = () => resolve(performance.now() - begun);
    requestAnimationFrame(() => {
      begun = performance.now();
    });
    model.tell(frame);
    requestAnimationFrame(() => painted.port2.postMessage(null));
  });
}

const { initialize, render } = widget();
initialize({ model: model.proxy() });
const close = render({ model: model.proxy(), el: document.getElementById("view") });

window.page = { model, step, rows, lines, close, madeUp };
