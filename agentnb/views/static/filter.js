// Which agents the user's filter shows. Pure.

/** Whether anything is filtered at all. `statuses` is a set; empty means any. */
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

/** The paths that match, and `shown`: those and all their ancestors. */
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
