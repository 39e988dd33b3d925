// The rows of a map: their agents, their status, their order. Rows and judges count from 0. Pure.

import { isFinal } from "./status.js";

const WORST_FIRST = ["failed", "exhausted", "cancelled", "interrupted", "skipped"];

/** What the table shows: failures first, failures alone, or all in the table's order. */
export const ROW_ORDERS = ["failures", "failed", "all"];

/** The paths of the agents of a row, in the order of the judges. */
export function judgePaths(row, judges) {
  return Array.from({ length: judges }, (_, judge) => String(row * judges + judge + 1));
}

/** The row and judge to which an agent belongs, itself or by its ancestor; `null` for the root. */
export function placeOfAgent(path, judges) {
  const number = Number(path.split(".")[0]);
  if (!Number.isInteger(number) || number < 1) return null;
  return { row: Math.floor((number - 1) / judges), judge: (number - 1) % judges };
}

/** The status of a row, from those of its agents; an agent that has not begun is `undefined`. */
export function rowStatus(agents, isOver = false) {
  const begun = agents.filter(Boolean);
  if (!begun.length) return "pending";
  const open = begun.filter(({ status }) => !isFinal(status));
  const isWhole = begun.length === agents.length || isOver;
  if (open.length || !isWhole) {
    const statuses = new Set(open.map(({ status }) => status));
    if (!statuses.size || statuses.has("running")) return "running";
    return statuses.has("waiting") ? "waiting" : "pending";
  }
  const worst = WORST_FIRST.find((bad) => begun.some(({ status }) => status === bad));
  if (worst) return worst;
  return begun.length === agents.length ? "completed" : "cancelled";
}

/** Whether a row has ended without all its answers. */
export function hasNoAnswer(status) {
  return isFinal(status) && status !== "completed";
}

/** The numbers of the rows to show, in `order`, from the status of each row. */
export function orderedRows(statuses, order) {
  const all = statuses.map((_, row) => row);
  if (order === "all") return all;
  const failed = all.filter((row) => hasNoAnswer(statuses[row]));
  if (order === "failed") return failed;
  return [...failed, ...all.filter((row) => !hasNoAnswer(statuses[row]))];
}
