// Made-up boards: what the kernel would send for a session with `count` threads or tasks.

const NAMES = ["reviewer", "claude-sonnet-5-5", "careful", "writer", "table-reader", "checker"];
const TITLES = [
  "Compare the yearly reports of the three waterworks",
  "Check the sources of chapter 4",
  "Write a summary for the mayor, one page, no jargon",
  "Find out why the March figures differ",
  "Translate the glossary",
  "Collect open questions",
];
const THREAD_STATES = ["working", "idle", "idle", "queued", "idle", "interrupted", "idle"];
const TASK_STATES = ["pending", "in_progress", "blocked", "completed", "archived"];
const PRIORITIES = ["medium", "high", "low", "medium"];

export function madeUpThreads(count) {
  return Array.from({ length: count }, (_, at) => {
    const status = THREAD_STATES[at % THREAD_STATES.length];
    const isAgent = at % 5 !== 4;
    const name = NAMES[at % NAMES.length];
    return {
      id: `nb_20261123_abcdef.${at + 1}`,
      name: isAgent
        ? name + (at < NAMES.length ? "" : `-${at}`)
        : `Which river is longest? (${at})`,
      kind: isAgent ? (at % 3 === 2 ? "ephemeral" : "persistent") : "",
      model: isAgent ? "anthropic/claude-sonnet-5-5" : "",
      task: status === "working" ? TITLES[at % TITLES.length] : "",
      status,
      queued: status === "queued" ? 2 : 0,
    };
  });
}

export function madeUpTasks(count) {
  const rows = Array.from({ length: count }, (_, at) => ({
    id: `t${at + 1}`,
    title: TITLES[at % TITLES.length],
    status: TASK_STATES[at % TASK_STATES.length],
    priority: PRIORITIES[at % PRIORITIES.length],
    agent: at % 5 ? NAMES[at % NAMES.length] : "",
    notes: at % 4,
    note: at % 4 ? "Two of the three are read. The third is a scan, which takes longer." : "",
  }));
  const place = ({ status }) => TASK_STATES.indexOf(status);
  return rows.sort((one, other) => place(one) - place(other));
}

export function madeUpTask(row) {
  return {
    title: row.title,
    status: row.status,
    priority: row.priority,
    agent: row.agent,
    model: row.agent ? "anthropic/claude-sonnet-5-5" : "",
    thread: row.agent ? "nb_20261123_abcdef.1" : null,
    creator: "a person",
    prompt:
      "Compare the three reports: income, outgoings, and what was spent on the mains.\n\n" +
      "Say for each figure on which page it stands. If two reports count differently, say how.",
    notes: Array.from({ length: row.notes }, (_, at) => ({
      author: at % 2 ? "" : row.agent,
      text: at % 2 ? "Leave out the year 2019: its books were never closed." : row.note,
    })),
    older: 0,
  };
}

const ANSWER = [
  ["p", {}, "I have read ", ["strong", {}, "two of the three"], " reports:"],
  [
    "table",
    {},
    [
      "thead",
      {},
      ["tr", {}, ["th", {}, "report"], ["th", {}, "outgoings"], ["th", { align: "right" }, "page"]],
    ],
    [
      "tbody",
      {},
      ["tr", {}, ["td", {}, "North"], ["td", {}, "1.2 M"], ["td", { align: "right" }, "14"]],
      ["tr", {}, ["td", {}, "South"], ["td", {}, "0.9 M"], ["td", { align: "right" }, "11"]],
    ],
  ],
  ["ul", {}, ["li", {}, "The mains took a third."], ["li", {}, "See ", ["code", {}, "p. 14"], "."]],
  [
    "p",
    {},
    ["a", { href: "https://example.org/report" }, "The report of the North"],
    " has the rest.",
  ],
];

export function madeUpLine(id, fields) {
  return {
    ...{ id, who: "person", author: "person", kind: "message", text: "", rich: null, run: "" },
    ...{ tools: "", queued: false, ...fields },
  };
}

export function madeUpConversation(row) {
  const assignment =
    '[TASK SYSTEM] A new task is assigned to you.\nTitle: "Compare the yearly reports"\n' +
    "Created by: system\nPriority: high\n\n--- BEGIN TASK ---\nCompare the three reports.\n--- END TASK ---";
  return [
    madeUpLine(1, {
      who: "system",
      author: "task system",
      kind: "task_assignment",
      text: assignment,
    }),
    madeUpLine(2, {
      ...{ who: "agent", author: row.name, rich: ANSWER, run: "a".repeat(32) },
      tools: "3 tool calls, 1 error",
    }),
    madeUpLine(3, { text: "Which of the two figures for the mains do you doubt?\nAnd why?" }),
    ...(row.status === "queued" ? [madeUpLine(4, { text: "And the third?", queued: true })] : []),
  ];
}

export function madeUpCalls() {
  const call = { begun: 1, duration_ms: 1200, said: "", input_cut: null, result_cut: null };
  return [1, 2, 3].map((n) => ({
    ...call,
    ...{ n, name: "read_page", status: n === 2 ? "error" : "done" },
    ...{ input: `{"report": "North", "page": ${n}}`, result: "Outgoings: 1.2 M, of these …" },
  }));
}
