// Questions and pauses, as far as they need no page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { wrongJson } from "../../agentnb/views/static/question.js";
import { isFinal, markOf, statusWords } from "../../agentnb/views/static/status.js";
import { Store } from "../../agentnb/views/static/store.js";

const row = (fields) => ({ status: "waiting", asks: false, paused: "", ...fields });

test("an agent that asks is marked so even if it is paused; an ended agent has its status", () => {
  assert.equal(markOf(row({ asks: true, paused: "here" })), "asks");
  assert.equal(markOf(row({ paused: "above" })), "paused");
  assert.equal(markOf(row({})), "waiting");
  assert.equal(markOf(row({ status: "failed", asks: true, paused: "here" })), "failed");
  assert.ok(isFinal("failed"));
});

test("the status of a running agent comes before its pause", () => {
  assert.equal(statusWords(row({ status: "running", paused: "here" })), "running, paused");
  assert.equal(statusWords(row({ paused: "here" })), "paused");
  assert.equal(statusWords(row({ status: "running" })), "running");
});

test("only a JSON object is valid as arguments", () => {
  assert.equal(wrongJson('{"path": "/b", "n": 12345678901234567890}'), "");
  for (const text of ["", "{", "[]", "null", '"a"', "{'a': 1}", "NaN"]) {
    assert.match(wrongJson(text), /[Nn]othing was sent/, text);
  }
});

test("a frame without questions changes none, and a new question is reported once", () => {
  const store = new Store();
  const frame = (seq, base, fields) => store.take({ seq, base, agents: [], ...fields }, 0);

  assert.deepEqual(frame(1, null, { questions: [{ id: "q1" }] }).asked, []); // it was there before
  assert.deepEqual(frame(2, 1, { questions: [{ id: "q1" }, { id: "q2" }] }).asked, [{ id: "q2" }]);
  assert.deepEqual(frame(3, 2, {}).asked, []);
  assert.deepEqual(
    store.questions.map(({ id }) => id),
    ["q1", "q2"],
  );
  assert.deepEqual(frame(4, null, { questions: [{ id: "q2" }], marks: [1, 2] }).asked, []);
  assert.deepEqual([store.questions.length, store.marks], [1, [1, 2]]);
});
