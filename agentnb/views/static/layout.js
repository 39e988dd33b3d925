// Places the agents: the column is the level, the row is that of the first child, and each leaf has
// a row of its own. So a growing tree only pushes down the agents below. Pure, in units of columns
// and rows; `scale.js` converts them to pixels.

/** Share of a column that a card fills; the rest holds the lines. */
export const CARD_WIDTH = 0.86;
/** Share of a row that a card fills. */
export const CARD_HEIGHT = 0.88;

/**
 * Places the agents that are not in a collapsed branch.
 *
 * `shown(path)` is false for agents to leave out, with all below them. `exists(path)` is false for
 * agents that do not exist at the shown time: their places stay free, so that a replay does not
 * jump.
 *
 * Returns `items` in the order of the outline, each with `path`, `parent`, `column`, `row`, `level`
 * (from 1), `position` (from 1) among its `size` siblings, and `expanded` (`null` without
 * children); and the numbers of `columns` and `rows`.
 */
export function arrange(childrenOf, { folded, shown = () => true, exists = () => true }) {
  const items = [];
  let rows = 0;
  let columns = 0;
  const open = [];
  const push = (parent, column) => {
    const children = childrenOf(parent).filter(shown);
    const size = children.filter(exists).length;
    let position = size;
    for (const path of [...children].reverse()) {
      const here = exists(path);
      open.push({ path, parent, column, position, size, here });
      if (here) position -= 1;
    }
    return { any: children.length > 0, size };
  };
  push(null, 0);
  while (open.length) {
    const { here, ...item } = open.pop();
    item.row = rows;
    item.level = item.column + 1;
    columns = Math.max(columns, item.column + 1);
    const closed = folded.has(item.path);
    const below = closed
      ? { any: false, size: childrenOf(item.path).filter(shown).filter(exists).length }
      : push(item.path, item.column + 1);
    item.expanded = below.size ? !closed : null;
    if (!below.any) rows += 1;
    if (here) items.push(item);
  }
  return { items, rows, columns };
}

/** The lines between parents and children, as SVG path data in columns and rows. */
export function connect(items) {
  const rowOf = new Map(items.map((item) => [item.path, item.row]));
  const last = new Map();
  const parts = [];
  for (const { parent, row, column } of items) {
    if (!rowOf.has(parent)) continue;
    const begin = row === rowOf.get(parent) ? column - 1 + CARD_WIDTH : column - 0.07;
    parts.push(`M${round(begin)} ${round(middle(row))}H${column}`);
    last.set(parent, { row, column });
  }
  for (const [parent, { row, column }] of last) {
    const above = rowOf.get(parent);
    if (row === above) continue;
    parts.push(
      `M${round(column - 1 + CARD_WIDTH)} ${round(middle(above))}H${round(column - 0.07)}`,
    );
    parts.push(`M${round(column - 0.07)} ${round(middle(above))}V${round(middle(row))}`);
  }
  return parts.join("");
}

/** Paths of all agents below one, also in collapsed branches. */
export function descendants(childrenOf, path) {
  const found = [];
  const open = [...childrenOf(path)];
  while (open.length) {
    const next = open.pop();
    found.push(next);
    open.push(...childrenOf(next));
  }
  return found;
}

function middle(row) {
  return row + CARD_HEIGHT / 2;
}

function round(number) {
  return Math.round(number * 1000) / 1000;
}
