import assert from "node:assert/strict";
import { test } from "node:test";
import { comparePaths, Store } from "../../agentnb/views/static/store.js";

const agent = (path, fields = {}) => ({
  path,
  parent: path === "root" ? null : "root",
  status: "running",
  task: `Task ${path}`,
  ...fields,
});

function frame(seq, agents, fields = {}) {
  return {
    type: "frame",
    seq,
    base: seq - 1,
    at: seq,
    done: false,
    status: "running",
    agents,
    ...fields,
  };
}

function begun() {
  const store = new Store();
  store.take(frame(1, [agent("root"), agent("1", { tokens: 5 })], { base: null }), 0);
  return store;
}

test("a frame that follows the last one changes only the fields that it has", () => {
  const store = begun();

  const change = store.take(frame(2, [{ path: "1", tokens: 9 }]), 0);

  assert.equal(change.outcome, "changes");
  assert.deepEqual(change.paths, ["1"]);
  assert.equal(change.added, false);
  assert.equal(store.rows.get("1").tokens, 9);
  assert.equal(store.rows.get("1").task, "Task 1");
});

test("after a gap no frame is applied until a full one comes", () => {
  const store = begun();

  assert.equal(store.take(frame(3, [{ path: "1", tokens: 9 }]), 0).outcome, "gap");
  assert.equal(store.take(frame(4, [{ path: "1", tokens: 10 }]), 0).outcome, "gap");
  assert.equal(store.gap, true);
  assert.equal(store.rows.get("1").tokens, 5);

  const full = frame(4, [agent("root"), agent("1", { tokens: 10 })], { base: null });
  assert.equal(store.take(full, 0).outcome, "full");
  assert.equal(store.gap, false);
  assert.equal(store.take(frame(5, [{ path: "1", tokens: 11 }]), 0).outcome, "changes");
  assert.equal(store.rows.get("1").tokens, 11);
});

test("a repeated frame changes nothing", () => {
  const store = begun();
  const again = frame(1, [agent("root", { task: "another" })], { base: null });

  assert.equal(store.take(again, 0).outcome, "stale");
  assert.equal(store.rows.get("root").task, "Task root");
});

test("a full frame replaces everything", () => {
  const store = begun();

  store.take(frame(7, [agent("root"), agent("2")], { base: null }), 0);

  assert.deepEqual([...store.rows.keys()], ["root", "2"]);
  assert.deepEqual(store.childrenOf("root"), ["2"]);
});

test("malformed frames do not throw", () => {
  const store = begun();
  for (const odd of [
    undefined,
    null,
    {},
    { seq: "2" },
    frame(2, null),
    frame(3, [{}, null, { path: 4 }]),
  ]) {
    store.take(odd, 0);
  }
  assert.equal(store.rows.size, 2);
});

test("siblings are in the order of their numbers, whatever order they arrived in", () => {
  const store = begun();

  store.take(frame(2, [agent("10"), agent("2"), agent("9")]), 0);

  assert.deepEqual(store.childrenOf("root"), ["1", "2", "9", "10"]);
  assert.deepEqual(["1.10", "root", "1.9", "2", "1"].sort(comparePaths), [
    "root",
    "1",
    "1.9",
    "1.10",
    "2",
  ]);
});

test("ancestors go up to the root, and an agent that is its own parent causes no endless loop", () => {
  const store = begun();
  store.take(frame(2, [agent("1.1", { parent: "1" }), agent("odd", { parent: "odd" })]), 0);

  assert.deepEqual(store.ancestorsOf("1.1"), ["1", "root"]);
  assert.ok(store.ancestorsOf("odd").length <= 1);
  assert.deepEqual(store.ancestorsOf("unheard of"), []);
});

test("an agent that has ended is reported once", () => {
  const store = begun();

  const ended = store.take(frame(2, [{ path: "1", status: "failed" }]), 0).ended;
  const again = store.take(frame(3, [{ path: "1", tokens: 1 }]), 0).ended;

  assert.deepEqual(
    ended.map(({ path }) => path),
    ["1"],
  );
  assert.deepEqual(again, []);
});

test("a full frame reports the agents that have ended since the last known state", () => {
  const store = begun();

  const full = frame(9, [agent("root"), agent("1", { status: "completed" })], { base: null });

  assert.deepEqual(
    store.take(full, 0).ended.map(({ path }) => path),
    ["1"],
  );
});

test("the run's time follows the page's clock and stops when the run has ended", () => {
  const store = new Store();
  store.take(frame(1, [agent("root")], { base: null, at: 10 }), 4_000);
  assert.equal(store.time(7_500), 10, "it stands until the kernel has spoken");
  store.start(5_000);
  assert.equal(store.time(7_500), 12.5);

  store.take(frame(2, [], { at: 13, done: true }), 8_000);
  assert.equal(store.time(60_000), 13);
});

test("the time of a run that was loaded while it went on stands", () => {
  const store = new Store();
  store.take(frame(1, [agent("root")], { base: null, at: 10, still: 1_700_000_000 }), 4_000);
  store.start(5_000);

  assert.deepEqual([store.time(60_000), store.still], [10, 1_700_000_000]);
});

const CUT = { base: null, left_out: "2 more agents: 2 completed", made: 1_700_000_000 };

test("a saved frame that was cut gives way to a whole one of the same number", () => {
  const store = new Store();
  store.take(frame(4, [agent("root")], CUT), 0);
  assert.deepEqual([store.leftOut, store.made], [CUT.left_out, CUT.made]);

  const whole = frame(4, [agent("root"), agent("1")], { base: null });
  assert.equal(store.take(whole, 0).outcome, "full");
  assert.deepEqual([store.rows.size, store.leftOut, store.made], [2, "", 0]);
  assert.equal(store.take(whole, 0).outcome, "stale");
});

test("a cut frame takes nothing from a page that has all", () => {
  const store = begun();
  const { size } = store.rows;

  assert.equal(store.take(frame(store.seq, [agent("root")], CUT), 0).outcome, "stale");
  assert.equal(store.take(frame(store.seq + 1, [agent("root")], CUT), 0).outcome, "gap");
  assert.equal(store.rows.size, size);
  assert.equal(store.gap, true);
});

test("a frame of the same number corrects the clock", () => {
  const store = new Store();
  store.start(0);
  store.take(frame(1, [agent("root")], { base: null, at: 10 }), 0);

  assert.equal(
    store.take(frame(1, [agent("root")], { base: null, at: 60 }), 1_000).outcome,
    "stale",
  );
  assert.equal(store.time(2_000), 61);
});

test("the end of a run is reported once, and not if the run had ended before the first frame", () => {
  const store = begun();
  const last = { base: null, done: true, status: "completed" };

  assert.equal(store.take(frame(2, [agent("root")], last), 0).finished, true);
  assert.equal(store.take(frame(3, [agent("root")], last), 0).finished, false);
  assert.equal(new Store().take(frame(3, [agent("root")], last), 0).finished, false);
});
