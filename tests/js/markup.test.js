// Our own markup in a page: the newest that came, whether as a message or as the model's value.

import assert from "node:assert/strict";
import { test } from "node:test";
import widget from "../../agentnb/views/static/markup.js";

function page(value) {
  const heard = [];
  const model = {
    get: () => value,
    on: (name, callback) => heard.push({ name, callback }),
    off: (name, callback) => {
      const at = heard.findIndex((each) => each.name === name && each.callback === callback);
      heard.splice(at, 1);
    },
  };
  const part = widget();
  part.initialize({ model });
  const tell = (name, ...said) => {
    for (const each of heard.filter((other) => other.name === name)) each.callback(...said);
  };
  return {
    heard,
    open() {
      const shown = [];
      const close = part.render({ model, el: { append: (made) => shown.push(made) } });
      return { words: () => shown[0].innerHTML, close };
    },
    message: (words) => tell("msg:custom", { value: words }, []),
    state(words) {
      value = words;
      tell("change:value", model, words);
    },
  };
}

globalThis.document = { createElement: () => ({}) };

test("the model's value is shown, and each new one", () => {
  const { open, state } = page("saved");
  const view = open();
  assert.equal(view.words(), "saved");

  state("set");
  assert.equal(view.words(), "set");
});

test("a message is shown in all views, also in one that opens later", () => {
  const { open, message } = page("saved");
  const view = open();

  message("newer");
  assert.equal(view.words(), "newer");
  assert.equal(open().words(), "newer");
});

test("a value that comes later shows what a lost message had", () => {
  const { open, message, state } = page("saved");
  const view = open();

  message("running");
  state("completed");
  assert.equal(view.words(), "completed");
  message("newer");
  assert.equal(view.words(), "newer");
});

test("a message of nothing leaves nothing", () => {
  const { open, message } = page("saved");
  const view = open();

  message("");
  assert.equal(view.words(), "");
});

test("a closed view hears nothing more", () => {
  const { heard, open, message } = page("saved");
  const before = heard.length;
  const view = open();

  view.close();
  message("newer");

  assert.equal(view.words(), "saved");
  assert.equal(heard.length, before);
});
