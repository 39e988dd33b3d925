// Shows a made-up map. The address may have `rows` and `judges` (their numbers), `dark` and `done`.
// `window.page` drives it.

import widget from "/agentnb/views/static/map_panel.js";
import { fakeModel } from "./fake_model.js";
import { madeUpDetails } from "./made_up.js";

const asked = new URLSearchParams(location.search);
const size = Number(asked.get("rows") ?? 40);
const judges = Number(asked.get("judges") ?? 1);
const done = asked.has("done");

const HOSTILE = '<img src=x onerror="alert(1)"><b>bold</b> [link](javascript:alert(2))';
const SAID = [
  "The parcel came two days late and nobody at the hotline knew where it was",
  "Great service, thank you!",
  "Das Gerät war beim Auspacken schon zerkratzt, ich möchte mein Geld zurück",
  "I was charged twice for the same order and have been waiting for the refund since March",
];
const ANSWERS = [
  "label: late, score: 2",
  "label: none, score: 5",
  "label: damaged, score: 1, reason: the casing was scratched when it was unpacked",
  "label: money, score: 1",
];

/** One agent in nine has failed; in an open run, the last ones have not begun. */
function agentOf(number) {
  const path = String(number);
  const row = Math.floor((number - 1) / judges);
  if (!done && row > size * 0.8) return null;
  const begun = { path, begun: row * 0.05 };
  if (!done && row > size * 0.75)
    return { ...begun, status: "running", doing: "", tokens: 12, estimated: true };
  const ended = { ...begun, ended: begun.begun + 2.5, tokens: 80 + (number % 50) };
  if (number % 9 === 4)
    return {
      ...ended,
      status: "failed",
      error: `label: Input should be 'late' or 'none' ${HOSTILE}`,
    };
  const answer = row === 0 ? HOSTILE : ANSWERS[(row + (number % 7 === 0)) % ANSWERS.length];
  return { ...ended, status: "completed", answer };
}

const agents = Array.from({ length: size * judges }, (_, at) => agentOf(at + 1)).filter(Boolean);
const labels = Array.from({ length: size }, (_, row) =>
  row === 0 ? HOSTILE : SAID[row % SAID.length],
);
const status = done ? "completed" : "running";
const root = { path: "root", status, begun: 0 };
const snapshot = {
  ...{ type: "frame", seq: 1, base: null, at: 60, done, status, agents: [root, ...agents] },
  ...{ rows: size, judges, labels, questions: [], marks: [] },
};
const model = fakeModel({ snapshot });
const { initialize, render } = widget();
let looks = 0;

document.body.dataset.jpThemeLight = String(!asked.has("dark"));

model.answer = (message) => {
  if (message.type === "hello") setTimeout(() => model.tell(snapshot));
  if (message.type !== "details") return;
  looks += 1;
  const one = agents.find(({ path }) => path === message.agent);
  if (!one) return;
  const row = Math.floor((Number(one.path) - 1) / judges);
  const known = { task: `Which complaint is in: ${labels[row]}`, model: "demo/model-1", doing: "" };
  const look = madeUpDetails(
    message,
    { agents: [{ error: null, attempt: 1, ...known, ...one }] },
    looks,
  );
  setTimeout(() => model.tell({ ...look, n: 0, text: one.answer ?? "" }));
};

/** Calls `act`. Returns the ms from the beginning of the browser's frame that draws it to its paint. */
function timed(act) {
  return new Promise((resolve) => {
    let begun = 0;
    const painted = new MessageChannel();
    painted.port1.onmessage = () => resolve(performance.now() - begun);
    requestAnimationFrame(() => {
      begun = performance.now();
    });
    act();
    requestAnimationFrame(() => painted.port2.postMessage(null));
  });
}

initialize({ model: model.proxy() });
const el = document.getElementById("view");
const close = render({ model: model.proxy(), el });

window.page = { model, timed, close, render, agents, labels };
