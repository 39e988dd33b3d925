// How the site's search orders what it finds. Most pages that have all words get the same score.
const FACTORS = [
  ["docs/how-to/", 2],
  ["notebooks/", 1.5],
  ["docs/architecture", 0.5],
  ["docs/compared", 0.5],
  ["docs/guarantees", 0.5],
  ["docs/decisions/", 0.1],
  ["CHANGELOG", 0.1],
];

// Sphinx reads this name. Other values than `score` are its own.
var Scorer = {
  score: ([page, , , , score]) =>
    score * (FACTORS.find(([start]) => page.startsWith(start))?.[1] ?? 1),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
