import assert from "node:assert/strict";
import { test } from "node:test";
import { keyMeaning } from "../../agentnb/views/static/keys.js";

const ITEMS = [
  { path: "root", parent: null, expanded: true },
  { path: "1", parent: "root", expanded: false },
  { path: "2", parent: "root", expanded: true },
  { path: "2.1", parent: "2", expanded: null },
];
const press = (key, path, fields = {}) => keyMeaning({ key, ...fields }, ITEMS, path);

test("up and down follow the outline and stop at its ends", () => {
  assert.deepEqual(press("ArrowDown", "1"), { go: "2" });
  assert.deepEqual(press("ArrowUp", "2.1"), { go: "2" });
  assert.deepEqual(press("ArrowDown", "2.1"), { stay: true });
  assert.deepEqual(press("ArrowUp", "root"), { stay: true });
});

test("right expands a collapsed branch and enters an expanded one", () => {
  assert.deepEqual(press("ArrowRight", "1"), { unfold: ["1"] });
  assert.deepEqual(press("ArrowRight", "2"), { go: "2.1" });
  assert.deepEqual(press("ArrowRight", "2.1"), { stay: true });
});

test("left collapses an expanded branch and leaves a collapsed one", () => {
  assert.deepEqual(press("ArrowLeft", "2"), { fold: "2" });
  assert.deepEqual(press("ArrowLeft", "1"), { go: "root" });
  assert.deepEqual(press("ArrowLeft", "2.1"), { go: "2" });
});

test("home, end and the asterisk follow the tree pattern", () => {
  assert.deepEqual(press("Home", "2.1"), { go: "root" });
  assert.deepEqual(press("End", "root"), { go: "2.1" });
  assert.deepEqual(press("*", "1"), { unfold: ["1", "2"] });
});

test("the browser's keys are not handled", () => {
  assert.equal(press("ArrowDown", "1", { ctrlKey: true }), null);
  assert.equal(press("a", "1"), null);
  assert.equal(press("Tab", "1"), null);
});

test("from an agent that is gone, the first key goes to the first agent", () => {
  assert.deepEqual(press("ArrowDown", "9"), { go: "root" });
  assert.equal(keyMeaning({ key: "ArrowDown" }, [], "9"), null);
});

test("zoom and fit have their own keys", () => {
  assert.deepEqual(
    ["+", "-", "0", "f"].map((key) => press(key, "1")),
    [{ zoom: 1 }, { zoom: -1 }, { zoom: 0 }, { fit: true }],
  );
  assert.equal(press("f", "1", { ctrlKey: true }), null);
});
