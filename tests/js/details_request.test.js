import assert from "node:assert/strict";
import { test } from "node:test";
import { DetailsRequest } from "../../agentnb/views/static/details_request.js";
import { HandClock } from "./clock.js";

function requesting() {
  const sent = [];
  const clock = new HandClock();
  return { sent, clock, request: new DetailsRequest((request) => sent.push(request), clock) };
}

test("while a request is open only the latest one is kept, and sent after the answer", () => {
  const { sent, request: one } = requesting();

  for (const request of ["a", "b", "c"]) one.want(request);
  assert.deepEqual(sent, ["a"]);
  one.answered();
  assert.deepEqual(sent, ["a", "c"]);
  one.answered();
  assert.deepEqual(sent, ["a", "c"]);
});

test("a request without an answer is sent again at growing intervals", () => {
  const { sent, clock, request: one } = requesting();
  one.want("a");

  clock.pass(2_000);
  assert.equal(sent.length, 2);
  clock.pass(3_999);
  assert.equal(sent.length, 2);
  clock.pass(1);
  assert.equal(sent.length, 3);
  clock.pass(600_000);
  assert.ok(sent.length < 30);
});

test("the request that is sent again is the latest one", () => {
  const { sent, clock, request: one } = requesting();
  one.want("a");
  one.want("b");

  clock.pass(2_000);

  assert.deepEqual(sent, ["a", "b"]);
});

test("after a stop no request is sent", () => {
  const { sent, clock, request: one } = requesting();
  one.want("a");
  one.want("b");

  one.stop();
  clock.pass(600_000);

  assert.deepEqual(sent, ["a"]);
  assert.equal(clock.waiting, 0);
});
