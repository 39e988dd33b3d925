import assert from "node:assert/strict";
import { test } from "node:test";
import { arrange, connect, descendants } from "../../agentnb/views/static/layout.js";
import { paneHeight } from "../../agentnb/views/static/pane.js";
import {
  extentAt,
  fittingSqueeze,
  fittingZoom,
  nextZoom,
  sizesAt,
} from "../../agentnb/views/static/scale.js";

const TREE = { null: ["root"], root: ["1", "2"], 1: ["1.1", "1.2"], 2: ["2.1"] };
const childrenOf = (path) => TREE[path] ?? [];
const places = ({ items }) =>
  Object.fromEntries(items.map(({ path, column, row }) => [path, [column, row]]));

test("each leaf has its own row, and a parent is in the row of its first child", () => {
  const arranged = arrange(childrenOf, { folded: new Set() });

  assert.deepEqual(places(arranged), {
    ...{ root: [0, 0], 1: [1, 0], 1.1: [2, 0], 1.2: [2, 1], 2: [1, 2], 2.1: [2, 2] },
  });
  assert.deepEqual([arranged.columns, arranged.rows], [3, 3]);
});

test("agents are in the order of the outline, with their level and their place among siblings", () => {
  const { items } = arrange(childrenOf, { folded: new Set() });

  assert.deepEqual(
    items.map(({ path }) => path),
    ["root", "1", "1.1", "1.2", "2", "2.1"],
  );
  const { level, position, size } = items[3];
  assert.deepEqual({ level, position, size }, { level: 3, position: 2, size: 2 });
});

test("a collapsed branch takes one row and can be expanded", () => {
  const arranged = arrange(childrenOf, { folded: new Set(["1"]) });

  assert.deepEqual(Object.keys(places(arranged)).sort(), ["1", "2", "2.1", "root"]);
  assert.equal(arranged.rows, 2);
  const expanded = Object.fromEntries(arranged.items.map((item) => [item.path, item.expanded]));
  assert.deepEqual(expanded, { root: true, 1: false, 2: true, 2.1: null });
});

test("a new agent moves only the agents below it", () => {
  const before = places(arrange(childrenOf, { folded: new Set() }));
  const grown = (path) => (path === "2" ? ["2.1", "2.2"] : childrenOf(path));

  const after = places(arrange(grown, { folded: new Set() }));

  for (const [path, place] of Object.entries(before)) assert.deepEqual(after[path], place);
});

test("an agent that does not exist yet keeps its place free and is not counted", () => {
  const exists = (path) => path !== "1.1" && path !== "2.1";
  const { items } = arrange(childrenOf, { folded: new Set(), exists });
  const found = Object.fromEntries(items.map((item) => [item.path, item]));

  assert.equal(found["1.1"], undefined);
  assert.equal(found["1.2"].row, 1);
  assert.deepEqual([found["1.2"].position, found["1.2"].size], [1, 1]);
  assert.equal(found[2].expanded, null);
});

test("lines go from a parent to each visible child", () => {
  const { items } = arrange(childrenOf, { folded: new Set(["2"]) });

  assert.equal((connect(items).match(/H\d(?!\.)/g) ?? []).length, 4);
});

test("a chain of ten thousand agents is laid out", () => {
  const chain = (path) => (path === null ? [0] : path < 9_999 ? [path + 1] : []);

  const { items, rows, columns } = arrange(chain, { folded: new Set() });

  assert.deepEqual([items.length, rows, columns], [10_000, 1, 10_000]);
  assert.equal(descendants(chain, 0).length, 9_999);
});

test("letters stay legible while cards shrink and show less", () => {
  const lines = [1, 0.6, 0.33, 0.18].map((zoom) => sizesAt(zoom).lines);

  assert.deepEqual(lines, [3, 2, 1, 0]);
  for (const zoom of [2, 1, 0.6, 0.33, 0.25]) assert.ok(sizesAt(zoom).font >= 10, `at ${zoom}`);
});

const fitted = (extent, { width, height }) => {
  const zoom = fittingZoom(extent, height);
  const sizes = sizesAt(zoom, fittingSqueeze(extent, zoom, width));
  return { zoom, sizes, ...extentAt(extent, sizes) };
};

test("a tree that fits is shown whole, and never enlarged", () => {
  const room = { width: 700, height: 418 };
  for (const [columns, rows] of [
    [1, 1],
    [3, 4],
    [4, 9],
    [5, 20],
    [2, 22],
  ]) {
    const { zoom, width, height } = fitted({ columns, rows }, room);

    assert.ok(width <= room.width && height <= room.height, `${columns} x ${rows}`);
    assert.ok(zoom <= 1);
  }
  assert.equal(fitted({ columns: 3, rows: 4 }, room).zoom, 1);
});

test("a tree that is too wide has narrower cards and keeps its rows", () => {
  const { zoom, sizes, width } = fitted({ columns: 4, rows: 2 }, { width: 480, height: 300 });

  assert.equal(zoom, 1);
  assert.ok(sizes.column < sizesAt(1).column);
  assert.equal(sizes.lines, 3);
  assert.ok(width <= 480);
});

test("a tree that is too high has low cards, as wide as the room allows", () => {
  const { sizes, width } = fitted({ columns: 3, rows: 38 }, { width: 700, height: 418 });

  assert.equal(sizes.lines, 1);
  assert.equal(sizes.isNarrow, false);
  assert.equal(sizes.column, sizesAt(1).column);
  assert.ok(width <= 700);
});

test("a tree that is too large for legible letters stays legible and scrolls", () => {
  const { sizes, width, height } = fitted({ columns: 9, rows: 400 }, { width: 480, height: 300 });

  assert.ok(sizes.font >= 10.5);
  assert.ok(sizes.lines >= 1);
  assert.ok(width > 480 && height > 300);
});

test("while a tree grows, its fitting zoom never grows and changes only a few times", () => {
  const zooms = new Set();
  let last = 1;
  for (let rows = 1; rows < 300; rows += 1) {
    const zoom = fittingZoom({ rows }, 418);
    assert.ok(zoom <= last);
    last = zoom;
    zooms.add(zoom);
  }
  assert.ok(zooms.size <= 9, `${zooms.size} sizes`);
});

const BOUNDS = { least: 220, most: 420 };

test("the pane grows in steps while the run continues, and never shrinks", () => {
  const heights = [];
  let before = 0;
  for (const needed of [80, 150, 220, 230, 300, 310, 200, 390, 4_000]) {
    before = paneHeight(needed, { ...BOUNDS, before, isOver: false });
    heights.push(before);
  }

  assert.deepEqual(heights, [220, 220, 220, 310, 310, 310, 310, 400, 420]);
});

test("after the run the pane is as high as the tree, within its bounds", () => {
  const height = (needed, before = 0) => paneHeight(needed, { ...BOUNDS, before, isOver: true });

  assert.deepEqual([height(80), height(266.6), height(4_000)], [220, 267, 420]);
  assert.equal(height(80, 300), 300);
});

test("zoom steps end in both directions", () => {
  let zoom = 1;
  for (let step = 0; step < 50; step += 1) zoom = nextZoom(zoom, 1);
  assert.equal(zoom, 2);
  for (let step = 0; step < 50; step += 1) zoom = nextZoom(zoom, -1);
  assert.equal(zoom, 0.12);
  assert.equal(nextZoom(0.5, 1), 0.6);
});
