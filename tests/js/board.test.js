// The parts of a board that need no page: its store, keys and texts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { placeAfterKey } from "../../agentnb/views/static/board_keys.js";
import { taskRowWords, threadRowWords } from "../../agentnb/views/static/board_rows.js";
import { BoardStore, matchingRows } from "../../agentnb/views/static/board_store.js";

const row = (id, fields = {}) => ({ id, title: `Task ${id}`, status: "pending", ...fields });
const frame = (seq, rows, order = null, base = seq - 1) => ({ seq, base, rows, order });

function filled(...ids) {
  const store = new BoardStore();
  const rows = ids.map((id) => row(id));
  store.take(frame(1, rows, ids, null));
  return store;
}

test("a frame changes rows, and the order only if it has one", () => {
  const store = filled("t1", "t2");

  assert.equal(store.take(frame(2, [row("t2", { status: "blocked" })])).outcome, "changes");
  assert.deepEqual(store.order, ["t1", "t2"]);
  assert.equal(store.rows.get("t2").status, "blocked");
  store.take(frame(3, [row("t3")], ["t3", "t1"]));
  assert.deepEqual(store.order, ["t3", "t1"]);
  assert.equal(store.rows.has("t2"), false);
});

test("a frame that does not follow the last one is a gap until a full frame comes", () => {
  const store = filled("t1");

  assert.equal(store.take(frame(4, [row("t4")], ["t4"])).outcome, "gap");
  assert.deepEqual([store.gap, store.order], [true, ["t1"]]);
  assert.equal(store.take(frame(1, [], [], null)).outcome, "full");
  assert.equal(store.gap, false);
});

test("an older frame and a repeated one are stale", () => {
  const store = filled("t1");
  store.take(frame(2, []));

  assert.equal(store.take(frame(1, [], [], null)).outcome, "stale");
  assert.equal(store.take(frame(2, [row("t9")], ["t9"], null)).outcome, "stale");
  assert.equal(store.take({}).outcome, "stale");
  assert.equal(store.take(undefined).outcome, "stale");
});

test("a saved frame that was cut gives way to a whole one, and takes nothing from it", () => {
  const store = new BoardStore();
  const cut = { ...frame(4, [row("t1")], ["t1"], null), left_out: "1 more row: 1 pending" };
  const whole = frame(4, [row("t1"), row("t2")], ["t1", "t2"], null);
  store.take(cut);
  assert.equal(store.leftOut, cut.left_out);

  assert.equal(store.take(whole).outcome, "full");
  assert.equal(store.take(cut).outcome, "stale");
  assert.equal(store.take({ ...cut, seq: 5 }).outcome, "gap");
  assert.deepEqual([store.order, store.leftOut, store.gap], [["t1", "t2"], "", true]);
});

test("a cut frame that is renewed, and changes to it, stay cut", () => {
  const store = new BoardStore();
  const cut = { ...frame(4, [row("t1")], ["t1"], null), left_out: "1 more row: 1 pending" };
  store.take(cut);

  assert.equal(store.take({ ...cut, seq: 5, left_out: "2 more" }).outcome, "full");
  assert.equal(store.take(frame(6, [row("t9")], ["t9", "t1", "t2"])).outcome, "changes");
  assert.deepEqual([store.order, store.leftOut], [["t9", "t1"], "2 more"]);
  assert.equal(store.take(frame(6, [row("t1")], ["t1"], null)).outcome, "full");
});

test("a search finds rows by text and by status", () => {
  const store = filled("t1", "t2");
  store.take(frame(2, [row("t2", { status: "blocked", agent: "Reviewer", note: "late" })]));
  const found = (text, status = "") => matchingRows(store, { text, status }).map(({ id }) => id);

  assert.deepEqual(found(""), ["t1", "t2"]);
  assert.deepEqual(found(" reviewer "), ["t2"]);
  assert.deepEqual(found("task", "pending"), ["t1"]);
  assert.deepEqual(found("LATE", "pending"), []);
});

test("keys move through the list and stop at its ends", () => {
  const go = (key, at, more = {}) => placeAfterKey({ key, ...more }, at, 10, 4);

  assert.deepEqual([go("ArrowDown", 0), go("ArrowDown", 9), go("ArrowDown", -1)], [1, 9, 0]);
  assert.deepEqual([go("ArrowUp", 3), go("ArrowUp", 0), go("ArrowUp", -1)], [2, 0, 0]);
  assert.deepEqual([go("Home", 5), go("End", 5)], [0, 9]);
  assert.deepEqual([go("PageDown", 5), go("PageDown", 8), go("PageUp", 2)], [9, 9, 0]);
  assert.deepEqual([go("a", 1), go("ArrowDown", 1, { ctrlKey: true })], [null, null]);
  assert.equal(placeAfterKey({ key: "End" }, -1, 0, 4), null);
});

test("a task's row shows priority, agent and notes only if there is something to show", () => {
  const plain = { agent: "", notes: 0, note: "" };
  const words = taskRowWords(row("t1", { ...plain, priority: "medium", status: "in_progress" }));
  assert.deepEqual(words, {
    first: "t1 ",
    name: "Task t1",
    right: "",
    strong: "in progress",
    rest: "",
  });
  const noted = { priority: "high", agent: "reviewer", notes: 1, note: "late" };
  const { right, rest } = taskRowWords(row("t1", noted));
  assert.deepEqual([right, rest], ["high priority", " · reviewer · 1 note: late"]);
});

test("a thread's row shows its agent's status, task and queue", () => {
  const thread = { name: "a", kind: "", model: "", task: "", status: "idle", queued: 0 };
  const words = (fields) => Object.values(threadRowWords({ ...thread, ...fields })).join("|");

  assert.equal(words({}), "|a|idle||conversation");
  const agent = { kind: "persistent", model: "demo/m" };
  assert.equal(words(agent), "|a|idle||demo/m · persistent");
  const working = { ...agent, task: "Look", status: "working", queued: 1 };
  assert.equal(words(working), "|a|working, 1 queued|Look| · demo/m · persistent");
  assert.equal(words({ status: "queued", queued: 2 }), "|a|queued (2)||conversation");
});
