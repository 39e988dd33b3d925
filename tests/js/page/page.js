// Shows a made-up run. The address may have `agents` (their number), `alone` (no kernel), `dark`, `done`,
// `early` (before its first frame), `live` (frames come by themselves), `loaded` (no controls), `questions` (as
// JSON). `window.page` drives it.

import widget from "/agentnb/views/static/panel.js";
import { fakeModel } from "./fake_model.js";
import { madeUpDetails, madeUpFrame, nextFrame } from "./made_up.js";

const asked = new URLSearchParams(location.search);
const done = asked.has("done");
let frame = madeUpFrame(Number(asked.get("agents") ?? 30), { done });
let looks = 0;
const rows = structuredClone(frame.agents);
const questions = JSON.parse(asked.get("questions") ?? "[]");
const snapshot = asked.has("early") ? {} : { ...frame, questions };
const model = fakeModel({ snapshot, controls: !asked.has("loaded") });
const { initialize, render } = widget();

document.body.dataset.jpThemeLight = String(!asked.has("dark"));

model.answer = (message) => {
  if (message.type === "hello" && !asked.has("alone") && !asked.has("early"))
    setTimeout(() => model.tell({ ...frame, base: null, agents: rows }));
  if (message.type !== "details" || asked.has("alone")) return;
  if (!rows.some(({ path }) => path === message.agent)) return;
  looks += 1;
  const look = madeUpDetails(message, { agents: rows }, looks);
  setTimeout(() => {
    if (message.at !== null) model.tell(replayAt(message));
    model.tell(look);
  });
};

function replayAt({ view, at }) {
  const here = rows.filter(({ begun }) => begun !== null && begun <= at);
  const agents = here.map((one) =>
    one.ended !== null && one.ended <= at
      ? one
      : { ...one, status: "running", ended: null, error: null, estimated: true },
  );
  return { type: "replay", view, n: looks, at, agents };
}

/**
 * Draws the next frame of the run. Returns the ms from the beginning of the browser's frame that draws
 * it to the end of style, layout and paint: without the wait for that frame.
 */
function step(share = 0.05) {
  frame = nextFrame(frame, rows, { share });
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

initialize({ model: model.proxy() });
const el = document.getElementById("view");
const close = render({ model: model.proxy(), el });
if (asked.has("live")) setInterval(step, 100);

window.page = { model, step, close, render, rows, frame: () => frame, looks: () => looks };
