import assert from "node:assert/strict";
import { test } from "node:test";
import {
  hasNoAnswer,
  judgePaths,
  orderedRows,
  placeOfAgent,
  rowStatus,
} from "../../agentnb/views/static/map_rows.js";
import { MapStore } from "../../agentnb/views/static/map_store.js";

const of = (...statuses) => statuses.map((status) => status && { status });

test("a row's judges are consecutive agents, and each agent maps back to its row", () => {
  assert.deepEqual(judgePaths(0, 1), ["1"]);
  assert.deepEqual(judgePaths(2, 3), ["7", "8", "9"]);
  assert.deepEqual(placeOfAgent("8", 3), { row: 2, judge: 1 });
  assert.deepEqual(placeOfAgent("8.4", 3), { row: 2, judge: 1 });
  assert.equal(placeOfAgent("root", 3), null);
});

test("a row is open until all its judges have ended, and then has the worst of their statuses", () => {
  assert.equal(rowStatus(of(undefined, undefined)), "pending");
  assert.equal(rowStatus(of("completed", undefined)), "running");
  assert.equal(rowStatus(of("failed", "running")), "running");
  assert.equal(rowStatus(of("completed", "waiting")), "waiting");
  assert.equal(rowStatus(of("completed", "completed")), "completed");
  assert.equal(rowStatus(of("cancelled", "failed", "completed")), "failed");
});

test("a row whose judges did not all begin has no answer after the run", () => {
  assert.equal(rowStatus(of("completed", undefined), true), "cancelled");
  assert.equal(rowStatus(of("exhausted", undefined), true), "exhausted");
});

test("rows without an answer are first or alone, in the order of the table", () => {
  const statuses = ["completed", "failed", "pending", "running", "exhausted", "completed"];

  assert.deepEqual(orderedRows(statuses, "failures"), [1, 4, 0, 2, 3, 5]);
  assert.deepEqual(orderedRows(statuses, "failed"), [1, 4]);
  assert.deepEqual(orderedRows(statuses, "all"), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(statuses.map(hasNoAnswer), [false, true, false, false, true, false]);
});

test("the store keeps a full frame's table when later frames change agents", () => {
  const store = new MapStore();
  const frame = { done: false, status: "running", at: 1 };
  const agents = [{ path: "1", status: "running" }];
  store.take({ ...frame, seq: 1, base: null, agents, rows: 2, judges: 3, labels: ["a", 4] }, 0);

  const ended = { path: "1", status: "completed", answer: "late" };
  const change = store.take({ ...frame, seq: 2, base: 1, agents: [ended] }, 0);

  assert.equal(change.outcome, "changes");
  assert.deepEqual([store.size, store.judges, store.labels], [2, 3, ["a", "4"]]);
  assert.equal(store.rows.get("1").answer, "late");
  assert.equal(store.take({ ...frame, seq: 9, base: 8, agents: [] }, 0).outcome, "gap");
});
