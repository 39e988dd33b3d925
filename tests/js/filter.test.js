import assert from "node:assert/strict";
import { test } from "node:test";
import { filtered, isFiltering, matches } from "../../agentnb/views/static/filter.js";

const any = { text: "", statuses: new Set() };
const row = (path, task = "", status = "running") => ({ path, task, status });

test("text matches path or task, in any letter case", () => {
  assert.ok(matches(row("1.2", "Compare the Reports"), { ...any, text: " the rep " }));
  assert.ok(matches(row("1.2"), { ...any, text: "1.2" }));
  assert.ok(!matches(row("1.2", "Compare"), { ...any, text: "contrast" }));
});

test("a row must have one of the statuses, and match the text too", () => {
  const statuses = new Set(["failed", "cancelled"]);

  assert.ok(matches(row("1", "", "failed"), { text: "", statuses }));
  assert.ok(!matches(row("1", "", "running"), { text: "", statuses }));
  assert.ok(!matches(row("1", "", "failed"), { text: "2", statuses }));
});

test("the ancestors of a match are shown but do not match", () => {
  const rows = [row("root"), row("1"), row("1.1", "find me"), row("2")];
  const above = { 1.1: ["1", "root"] };

  const { matching, shown } = filtered(rows, (path) => above[path] ?? [], { ...any, text: "find" });

  assert.deepEqual([...matching], ["1.1"]);
  assert.deepEqual([...shown].sort(), ["1", "1.1", "root"]);
});

test("blanks alone do not filter", () => {
  assert.ok(!isFiltering({ ...any, text: "  " }));
  assert.ok(isFiltering({ ...any, statuses: new Set(["failed"]) }));
});
