import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { endWords } from "../../agentnb/views/static/announcer.js";
import { hiddenWords } from "../../agentnb/views/static/card.js";
import {
  doingNow,
  dollars,
  duration,
  elapsed,
  openFor,
  share,
  shortCount,
  textSize,
  timeTaken,
  tokenCount,
  tokensByKind,
  toolCount,
} from "../../agentnb/views/static/format.js";
import { isFinal, STATUSES, shapeOf } from "../../agentnb/views/static/status.js";
import { beginning, titleOf } from "../../agentnb/views/static/tool_calls.js";

test("token counts have at most four digits, and a tilde if they are an estimate", () => {
  const shown = [0, 987, 999.6, 1234, 35_040, 999_700, 1_234_567].map(shortCount);

  assert.deepEqual(shown, ["0", "987", "1k", "1.2k", "35k", "1M", "1.2M"]);
  assert.equal(tokenCount(1234, true), "~1.2k");
  assert.equal(tokenCount(undefined, false), "0");
});

test("an agent's tokens are listed by kind, with the share of the input that came from a cache", () => {
  const tokens = { input: 700, output: 100, cache_read: 300, cache_write: 200 };
  const words = "1.3k (700 in, 100 out, 300 read from the cache: 25 % of the input, 200 written";

  assert.equal(tokensByKind({ tokens: 1300 }, tokens), `${words} to the cache)`);
  const uncached = { input: 700, output: 100, cache_read: 0, cache_write: 0 };
  assert.equal(tokensByKind({ tokens: 800, estimated: true }, uncached), "~800 (700 in, 100 out)");
  assert.equal(tokensByKind({ tokens: 800 }, null), "800");
  assert.deepEqual([tokensByKind({ tokens: 0 }, tokens), tokensByKind(null, tokens)], ["", ""]);
});

test("a share is never rounded to nothing or to all", () => {
  const shares = [
    share(1, 1000),
    share(3, 8),
    share(996, 1000),
    share(5, 5),
    share(0, 5),
    share(1, 0),
  ];

  assert.deepEqual(shares, ["<1 %", "38 %", ">99 %", "100 %", "0 %", "0 %"]);
});

test("dollars are formatted as in the kernel", () => {
  const url = new URL("dollars.json", import.meta.url); // a test in Python also reads it
  const words = Object.entries(JSON.parse(readFileSync(url, "utf8")));

  for (const [micros, amount] of words) assert.equal(dollars(Number(micros)), amount);
  assert.deepEqual([dollars(-500_000), dollars(Number.NaN)], ["-$0.50", "$0.00"]);
});

test("durations are in the unit that suits them", () => {
  const shown = [0.34, 3.24, 59.96, 125, 3600, 4800].map(duration);

  assert.deepEqual(shown, ["340 ms", "3.2 s", "1 min", "2 min 5 s", "1 h", "1 h 20 min"]);
  assert.equal(duration(Number.NaN), "");
});

test("elapsed time is in whole seconds", () => {
  assert.deepEqual([elapsed(3.9), elapsed(61), elapsed(-1)], ["3 s", "1 min 1 s", "0 s"]);
});

test("an agent's time stops at its end and is empty before it begins", () => {
  assert.equal(timeTaken({ begun: 2, ended: 5.5 }, 100), "3.5 s");
  assert.equal(timeTaken({ begun: 2, ended: null }, 10), "8 s");
  assert.equal(timeTaken({ begun: null, ended: null }, 10), "");
});

test("a wait with a known end counts down, and then shows no time", () => {
  const row = { doing: "rate limit", until: 20 };

  assert.equal(doingNow(row, 7.5), "rate limit, 13 s left");
  assert.equal(doingNow(row, 21), "rate limit");
  assert.equal(doingNow({ doing: "", until: null }, 1), "");
});

test("a collapsed branch counts its hidden agents by status", () => {
  const statuses = ["pending", "completed", "running", "unheard-of", "running"];

  const words = hiddenWords(statuses.map((status) => ({ status })));

  assert.equal(words, "5 hidden: 2 running, 1 pending, 1 completed, 1 unheard-of");
});

test("tool calls are counted with their errors; without calls the text is empty", () => {
  assert.equal(toolCount({ tool_calls: 1, tool_errors: 0 }), "1 call");
  assert.equal(toolCount({ tool_calls: 1234, tool_errors: 2 }), "1,234 calls, 2 errors");
  assert.equal(toolCount({ tool_calls: 3, tool_errors: 1 }, "tool call"), "3 tool calls, 1 error");
  assert.deepEqual([toolCount({ tool_calls: 0 }), toolCount({}), toolCount(null)], ["", "", ""]);
});

test("the time of an open tool call is in whole seconds", () => {
  assert.deepEqual([openFor({ since: 3 }, 64.9), openFor({ since: 3 }, 2)], ["1 min 1 s", "0 s"]);
  assert.deepEqual([openFor(null, 9), openFor({}, 9)], ["", ""]);
});

test("a list of tool calls counts all, failed and open calls", () => {
  const states = ["done", "error", "open", "open", "cancelled"];

  assert.equal(titleOf(states), "5 tool calls, 1 error, 2 at work");
  assert.equal(titleOf(["done"]), "1 tool call");
  assert.equal(titleOf([]), "");
});

test("the beginning of a long text has its first lines, and no half character", () => {
  assert.equal(beginning("a\nb\nc"), "a\nb\nc");
  assert.equal(beginning("a\nb\nc\nd"), "a\nb\nc");
  assert.equal(beginning("x".repeat(500)), "x".repeat(160));
  assert.equal(beginning(`${"x".repeat(159)}😀`), "x".repeat(159));
});

test("a few ended agents are named, many are counted", () => {
  const row = (path, status) => ({ path, status });

  assert.equal(endWords([row("1.2", "failed"), row("1", "completed")]), "1.2 failed, 1 completed.");
  const many = Array.from({ length: 12 }, (_, at) => row(`${at}`, at ? "completed" : "failed"));
  assert.equal(endWords(many), "11 agents completed, 1 agent failed.");
  assert.equal(endWords([]), "");
});

test("text sizes are rounded", () => {
  assert.deepEqual([998, 12_345, 1_400_000].map(textSize), ["998 characters", "12 kB", "1.4 MB"]);
});

test("each status has a shape of its own, and so has an unknown one", () => {
  const shapes = [...STATUSES, "unheard-of"].map(shapeOf);

  assert.equal(new Set(shapes).size, STATUSES.length + 1);
  assert.equal(shapeOf("constructor"), shapeOf("unheard-of"));
  assert.deepEqual(STATUSES.filter(isFinal), STATUSES.slice(3));
});
