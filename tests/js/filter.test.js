import assert from "node:assert/strict";
import { test } from "node:test";
import { filtered, isFiltering, matches } from "../../agentnb/views/static/filter.js";

const any = { text: "", statuses: new Set() };
const row = (path, task = "", status = "running") => ({ path, task, status });

test("words are looked for in path and task, in any case", () => {
  assert.ok(matches(row("1.2", "Compare the Reports"), { ...any, text: " the rep " }));
  assert.ok(matches(row("1.2"), { ...any, text: "1.2" }));
  assert.ok(!matches(row("1.2", "Compare"), { ...any, text: "contrast" }));
});

test("of several statuses each will do, and words have to match as well", () => {
  const statuses = new Set(["failed", "cancelled"]);

  assert.ok(matches(row("1", "", "failed"), { text: "", statuses }));
  assert.ok(!matches(row("1", "", "running"), { text: "", statuses }));
  assert.ok(!matches(row("1", "", "failed"), { text: "2", statuses }));
});

test("who stands above a match is shown and does not match", () => {
  const rows = [row("root"), row("1"), row("1.1", "find me"), row("2")];
  const above = { 1.1: ["1", "root"] };

  const { matching, shown } = filtered(rows, (path) => above[path] ?? [], { ...any, text: "find" });

  assert.deepEqual([...matching], ["1.1"]);
  assert.deepEqual([...shown].sort(), ["1", "1.1", "root"]);
});

test("blanks alone filter nothing", () => {
  assert.ok(!isFiltering({ ...any, text: "  " }));
  assert.ok(isFiltering({ ...any, statuses: new Set(["failed"]) }));
});
