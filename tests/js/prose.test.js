import assert from "node:assert/strict";
import { test } from "node:test";
import { pieces } from "../../agentnb/views/static/prose.js";

const blocks = (parts) => {
  let length = 0;
  const found = [""];
  for (const part of parts) {
    for (const { fresh, text } of pieces(part, length)) {
      if (fresh) found.push("");
      found[found.length - 1] += text;
      length = found.at(-1).length;
    }
  }
  return found;
};

test("a short text is one block", () => {
  assert.deepEqual(blocks(["one\ntwo"]), ["one\ntwo"]);
});

test("a long text is cut at line ends, and only those are left out", () => {
  const text = Array.from({ length: 2_000 }, (_, line) => `line ${line}`).join("\n");

  const found = blocks([text]);

  assert.ok(found.length > 3);
  assert.equal(found.join("\n"), text);
  assert.ok(found.every((block) => block.length < 5_000));
});

test("a text that arrives in small parts is cut into blocks too", () => {
  const text = Array.from({ length: 2_000 }, (_, line) => `line ${line}`).join("\n");

  const found = blocks(text.match(/[\s\S]{1,7}/g));

  assert.equal(found.join("\n"), text);
  assert.ok(found.every((block) => block.length < 5_000));
});

test("a very long line is cut too, between characters", () => {
  const line = "\u{1f600}".repeat(30_001);

  const found = blocks(["x", line]);

  assert.equal(found.join(""), `x${line}`);
  assert.ok(found.every((block) => block.isWellFormed() && block.length <= 16_001));
});
