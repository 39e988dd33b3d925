// Made-up runs of a given size: the same for the same seed, at most 3 levels deep, with mixed statuses.

const WORDS =
  "compare the yearly reports and list what changed since then with sources and a short table of figures for each region or month".split(
    " ",
  );

/** Returns a function that gives numbers from 0 to 1, the same for the same seed. */
export function dice(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** The paths of a tree of `count` agents. */
export function paths(count) {
  const wide = Math.max(2, Math.round((count - 1) ** (1 / 3)));
  if (count < 1) return [];
  const found = ["root"];
  for (let a = 1; found.length < count; a += 1) {
    found.push(`${a}`);
    for (let b = 1; b <= wide - (a % 2) && found.length < count; b += 1) {
      found.push(`${a}.${b}`);
      for (let c = 1; c <= wide - (b % 3) && found.length < count; c += 1)
        found.push(`${a}.${b}.${c}`);
    }
  }
  return found;
}

/** A row as the kernel sends it. */
export function row(path, roll, fields = {}) {
  const depth = path === "root" ? 0 : path.split(".").length;
  const parent = depth === 0 ? null : depth === 1 ? "root" : path.slice(0, path.lastIndexOf("."));
  const begin = Math.floor(roll() * 10);
  const task = Array.from(
    { length: 6 + Math.floor(roll() * 10) },
    (_, at) => WORDS[(begin + at) % WORDS.length],
  );
  return {
    ...{ path, parent, depth, task: task.join(" "), model: "demo/model-1", status: "running" },
    ...{ tokens: Math.floor(roll() * 9000), estimated: true, begun: depth * 2, ended: null },
    ...{ doing: "", until: null, stalled: false, attempt: 1, error: null, notes: 0 },
    ...fields,
  };
}

/** A full frame of a run of `count` agents at its 60th second. */
export function madeUpFrame(count, { seed = 7, done = false } = {}) {
  const roll = dice(seed);
  const all = paths(count);
  const agents = all.map((path) => {
    const base = row(path, roll);
    return Object.assign(base, path === "root" ? rootState(done) : state(roll(), base, done));
  });
  const status = done ? "completed" : "running";
  return { type: "frame", seq: 1, base: null, at: 60, done, status, agents };
}

function rootState(done) {
  return done
    ? { status: "completed", ended: 60, estimated: false, doing: "" }
    : { doing: "waiting for its sub-agents" };
}

function state(chance, { begun }, done) {
  const ended = { ended: begun + 3 + chance * 40, estimated: false };
  if (chance < 0.45 || (done && chance < 0.8)) return { status: "completed", ...ended };
  if (chance < 0.82 && !done) {
    if (chance < 0.5) return { doing: "no text for 30 s", stalled: true };
    if (chance < 0.55) return { doing: "second attempt after: overloaded", attempt: 2 };
    return {};
  }
  if (chance < 0.87 && !done)
    return { status: "waiting", doing: "rate limit", until: 72, tokens: 0 };
  if (chance < 0.9 && !done) return { status: "pending", begun: null, tokens: 0, estimated: false };
  const error = "The server answered 500 (internal error) in the middle of the text.";
  if (chance < 0.94) return { status: "failed", ...ended, error };
  if (chance < 0.96) return { status: "cancelled", ...ended };
  if (chance < 0.98) return { status: "exhausted", ...ended };
  if (chance < 0.99) return { status: "interrupted", ...ended };
  return { status: "skipped", begun: null, tokens: 0, estimated: false };
}

/** The next frame: a `share` of the agents have more tokens, and a few of them end. */
export function nextFrame(frame, before, { share = 0.05, seed = 1 } = {}) {
  const roll = dice(seed + frame.seq);
  const agents = [];
  const wanted = Math.max(1, Math.round(before.length * share));
  for (let turn = 0; agents.length < wanted && turn < 20 * wanted; turn += 1) {
    const one = before[Math.floor(roll() * before.length)];
    if (agents.some(({ path }) => path === one.path)) continue;
    const ends = roll() < 0.05 && one.status === "running" && one.path !== "root";
    one.tokens += 12 + Math.floor(roll() * 40);
    const fields = { path: one.path, tokens: one.tokens };
    if (ends) Object.assign(fields, { status: "completed", ended: frame.at, estimated: false });
    Object.assign(one, fields);
    agents.push(fields);
  }
  const { seq, at } = frame;
  return {
    type: "frame",
    seq: seq + 1,
    base: seq,
    at: at + 0.1,
    done: false,
    status: "running",
    agents,
  };
}

/** The kernel's answer to `details`. */
export function madeUpDetails({ view, agent, call, at }, frame, n) {
  const one = frame.agents.find(({ path }) => path === agent);
  const text = Array.from(
    { length: 12 },
    (_, line) => `Line ${line + 1} of ${agent}: ${one.task}.`,
  );
  const message = `Task: ${one.task}\n\nAnswer it directly, thorough and to the point.`;
  const calls = [1, 2].map((number) => ({
    ...{ n: number, model: one.model, attempt: 1, is_synthesis: number === 2, status: "done" },
    ...{ tokens: 1200 * number, duration_ms: 3400, stop_reason: "end_turn", error: null },
  }));
  return {
    ...{ type: "details", view, n, reset: true, agent, at, task: `${one.task}. All of it.` },
    ...{ model: one.model, status: one.status, attempt: one.attempt, doing: one.doing },
    tokens: { input: 1234, output: 567, cache_read: 0, cache_write: 0 },
    ...{ cost: "about $0.0123 (estimate)", begun: one.begun, ended: one.ended, error: one.error },
    ...{ notes: ["A second block in the reply was ignored."], calls, call: call ?? 2 },
    following: call === null,
    prompt: {
      system: "<soul>\nCareful.\n</soul>\n<task>\nCompare.\n</task>",
      messages: [{ role: "user", text: message }],
    },
    text: text.join("\n"),
  };
}
