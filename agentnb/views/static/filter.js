// Which agents the user's filter shows. Pure.

/** Whether the filter is on. `statuses` is a set; an empty one means any status. */
export function isFiltering({ text, statuses }) {
  return text.trim() !== "" || statuses.size > 0;
}

/** Whether a row matches: by path or task, and by status. */
export function matches(row, { text, statuses }) {
  if (statuses.size && !statuses.has(row.status)) return false;
  const wanted = text.trim().toLowerCase();
  if (!wanted) return true;
  return row.path.toLowerCase().includes(wanted) || String(row.task).toLowerCase().includes(wanted);
}

/** Returns two sets of paths: `matching`, and `shown`, which also has their ancestors. */
export function filtered(rows, ancestorsOf, filter) {
  const matching = new Set();
  const shown = new Set();
  for (const row of rows) {
    if (!matches(row, filter)) continue;
    matching.add(row.path);
    shown.add(row.path);
    for (const above of ancestorsOf(row.path)) shown.add(above);
  }
  return { matching, shown };
}
