// The statuses of an agent: their order, which are final, and one shape for each. The shapes are those
// of the figures, in a square from -1 to 1, y downwards; holes follow the even-odd rule.

import { makeSvg } from "./dom.js";

export const STATUSES = [
  "pending",
  "running",
  "waiting",
  "completed",
  "failed",
  "cancelled",
  "exhausted",
  "interrupted",
  "skipped",
];

const FINAL = new Set(STATUSES.slice(3));

const RING =
  "M.95 0A.95.95 0 1 1-.95 0A.95.95 0 1 1 .95 0ZM.62 0A.62.62 0 1 1-.62 0A.62.62 0 1 1 .62 0Z";

const SHAPES = {
  pending: RING,
  running: "M-.75-.95L1 0L-.75.95Z",
  waiting: "M-.7-.9H-.2V.9H-.7ZM.2-.9H.7V.9H.2Z",
  completed: "M-1 0L-.65-.38L-.25.1L.68-.9L1-.58L-.25.78Z",
  failed: "M-.9-.55L-.55-.9L0-.35L.55-.9L.9-.55L.35 0L.9.55L.55.9L0 .35L-.55.9L-.9.55L-.35 0Z",
  cancelled: "M-.8-.8H.8V.8H-.8Z",
  exhausted: `${RING}M0 0L.62 0A.62.62 0 0 0 0-.62Z`,
  interrupted: "M-.25-1H.25V-.2H-.25ZM-.25.2H.25V1H-.25Z",
  skipped: "M-.9-.22H.9V.22H-.9Z",
};

// Marks in place of a status: a person has paused the agent, or it asks a person.
const MARKS = {
  paused: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0ZM-.45-.5H-.12V.5H-.45ZM.12-.5H.45V.5H.12Z",
  asks: "M-.64-.36A.64.62 0 1 1 .2 .22V.46H-.18V-.08A.26.26 0 1 0-.26-.36ZM.22 .78A.22.22 0 1 1-.22 .78A.22.22 0 1 1 .22 .78Z",
};

// For an unknown status of a newer kernel.
const OTHER_SHAPE = "M0-1L1 0L0 1L-1 0Z";

/** Whether an agent with this status has ended. */
export function isFinal(status) {
  return FINAL.has(status);
}

/** The path data of the shape of a status, or of a mark. */
export function shapeOf(status) {
  if (Object.hasOwn(MARKS, status)) return MARKS[status];
  return Object.hasOwn(SHAPES, status) ? SHAPES[status] : OTHER_SHAPE;
}

/** The mark for an agent: `asks`, `paused`, or else its status. An ended agent has its status. */
export function markOf(row) {
  if (isFinal(row.status)) return row.status;
  return row.asks ? "asks" : row.paused ? "paused" : row.status;
}

/** An agent's status in words: `running, paused`; `asks` or `paused` alone unless it is running. */
export function statusWords(row) {
  const mark = markOf(row);
  if (mark === row.status) return row.status;
  return row.status === "running" ? `running, ${mark}` : mark;
}

/** Makes a small picture of a status's shape: an `element`, and `show(status)` to change it. */
export function makeMark(status) {
  const path = makeSvg("path", { "fill-rule": "evenodd" });
  const svg = makeSvg(
    "svg",
    { class: "agentnb-mark", viewBox: "-1.05 -1.05 2.1 2.1", "aria-hidden": "true" },
    path,
  );
  let shown = null;
  const show = (next) => {
    if (next === shown) return;
    shown = next;
    path.setAttribute("d", shapeOf(next));
    svg.dataset.status = next;
  };
  show(status);
  return { element: svg, show };
}

/** Counts as pairs `[status, count]`, in the order of `STATUSES`; unknown statuses come last. */
export function statusCounts(statuses) {
  const counts = new Map();
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  const known = STATUSES.filter((status) => counts.has(status));
  const others = [...counts.keys()].filter((status) => !STATUSES.includes(status)).sort();
  return [...known, ...others].map((status) => [status, counts.get(status)]);
}
