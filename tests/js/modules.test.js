// The form that allows the modules to be joined, without a build tool, into the one that anywidget
// takes: by removing the imports and the word `export`.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const FOLDER = new URL("../../agentnb/views/static/", import.meta.url);
const ENTRIES = {
  "board_panel.js": ["initialize", "render"],
  "keeper.js": ["initialize"],
  "map_panel.js": ["initialize", "render"],
  "markup.js": ["initialize", "render"],
  "panel.js": ["initialize", "render"],
  "text_field.js": ["render"],
};
const IMPORT = /^import \{([^}]*)\} from "\.\/([a-z_]+\.js)";$/gm;

const sources = new Map(
  readdirSync(FOLDER)
    .filter((name) => name.endsWith(".js"))
    .map((name) => [name, readFileSync(new URL(name, FOLDER), "utf8")]),
);

function joined(entry) {
  const done = new Set();
  const parts = [];
  const add = (name) => {
    if (done.has(name)) return;
    done.add(name);
    for (const [, , needed] of sources.get(name).matchAll(IMPORT)) add(needed);
    parts.push(
      sources
        .get(name)
        .replace(IMPORT, "")
        .replace(/^export (?!default)/gm, ""),
    );
  };
  add(entry);
  return { text: parts.join("\n"), names: done };
}

test("every module is imported from an entry module, directly or indirectly", () => {
  const reached = new Set(Object.keys(ENTRIES).flatMap((entry) => [...joined(entry).names]));
  assert.deepEqual([...reached].sort(), [...sources.keys()].sort());
});

for (const [entry, functions] of Object.entries(ENTRIES)) {
  test(`${entry}, joined, loads without a page and returns the functions of a widget`, async () => {
    const url = `data:text/javascript;base64,${Buffer.from(joined(entry).text).toString("base64")}`;

    const { default: widget } = await import(url);

    assert.deepEqual(Object.keys(widget()), functions);
  });
}

test("imports do not rename, and only entry modules have a default export", () => {
  for (const [name, source] of sources) {
    const plain = source.replace(IMPORT, (_, names) => {
      assert.doesNotMatch(names, / as /, name);
      return "";
    });
    assert.doesNotMatch(plain, /^\s*import\b/m, name);
    assert.doesNotMatch(plain, /^export (?!function |const |class |default )/m, name);
    if (!Object.hasOwn(ENTRIES, name)) assert.doesNotMatch(plain, /export default/, name);
  }
});

test("no top-level name is in two modules", () => {
  const seen = new Map();
  for (const [name, source] of sources) {
    const names = source.matchAll(
      /^(?:export )?(?:async )?(?:function|const|let|class) ([A-Za-z_$]+)/gm,
    );
    for (const [, top] of names) {
      assert.equal(seen.get(top), undefined, `${top} is in ${seen.get(top)} and ${name}`);
      seen.set(top, name);
    }
  }
});

test("no module has an address on the network or parses text as markup", () => {
  for (const [name, source] of sources) {
    // The kernel made this one's markup, and has escaped all foreign text in it.
    const own = name === "markup.js" ? 'shown.innerHTML = said ?? model.get("value");' : "";
    assert.doesNotMatch(
      source.replace(own, ""),
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/,
      name,
    );
    assert.doesNotMatch(source.replace("http://www.w3.org/2000/svg", ""), /https?:\/\//, name);
  }
});
