// Formats numbers for display, with the same words as the figures. Pure.

const UNITS = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** At most four digits: `987`, `1.2k`, `35k`, `1.2M`. */
export function shortCount(count) {
  const number = Number.isFinite(count) ? count : 0;
  for (const [size, unit] of UNITS) {
    // Use the larger unit if rounding would give a thousand of the smaller one.
    if (number < size * 0.9995) continue;
    const scaled = number / size;
    return (scaled < 99.95 ? scaled.toFixed(1).replace(/\.0$/, "") : scaled.toFixed(0)) + unit;
  }
  return number.toFixed(0);
}

/** While something is on its way; `isOff` when no kernel can send it. `what`: "a task's text is". */
export function waitingWords(isOff, what) {
  return isOff ? `No kernel answers, and ${what} not saved in the page.` : "Loading …";
}

/** `~1.2k` while it is an estimate. */
export function tokenCount(tokens, estimated) {
  return (estimated ? "~" : "") + shortCount(tokens);
}

/**
 * An agent's tokens by kind, from its row and its details: `1.2k (800 in, 100 out, 300 read from the
 * cache: 27 % of the input)`; `""` for none.
 */
export function tokensByKind(row, tokens) {
  const sum = row?.tokens ? tokenCount(row.tokens, row.estimated) : "";
  if (!tokens || !sum) return sum;
  const { input = 0, output = 0, cache_read: read = 0, cache_write: written = 0 } = tokens;
  const parts = [
    [input, "in"],
    [output, "out"],
    [read, `read from the cache: ${share(read, input + read + written)} of the input`],
    [written, "written to the cache"],
  ];
  const known = parts.filter(([count]) => count);
  const words = known.map(([count, what]) => `${wholeNumber(count)} ${what}`);
  return words.length ? `${sum} (${words.join(", ")})` : sum;
}

/** `12 %`, `<1 %`, `>99 %`, `0 %`: never rounded to nothing, nor to all. */
export function share(part, whole) {
  if (!(whole > 0) || !(part > 0)) return "0 %";
  const percent = (100 * part) / whole;
  if (percent < 1) return "<1 %";
  return percent >= 99.5 && part < whole ? ">99 %" : `${Math.round(percent)} %`;
}

/** `14:05`, and the day if it is not today's. */
export function dayAndTime(at, now = new Date()) {
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (at.toDateString() === now.toDateString()) return time;
  return `${time}, ${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** `1 agent`, `2 agents`, `1,234 agents`. */
export function counted(count, what) {
  return `${wholeNumber(count)} ${what}${count === 1 ? "" : "s"}`;
}

/** `1,234`. */
export function wholeNumber(count) {
  return Math.round(Number.isFinite(count) ? count : 0).toLocaleString("en-US");
}

const MICROS = 1_000_000;

/** An amount of micro-dollars, in the words of the header: `$4.00`, `$0.0123`, `$0.000012`. */
export function dollars(micros) {
  const whole = Math.round(Number.isFinite(micros) ? micros : 0);
  if (whole < 0) return `-${dollars(-whole)}`;
  if (whole >= MICROS) {
    const cents = toEven(whole, MICROS / 100);
    return `$${wholeNumber(Math.floor(cents / 100))}.${String(cents % 100).padStart(2, "0")}`;
  }
  const places = whole >= 1000 ? 4 : 6;
  const step = MICROS / 10 ** places;
  const text = ((toEven(whole, step) * step) / MICROS).toFixed(places);
  return `$${text.slice(0, 4)}${text.slice(4).replace(/0+$/, "")}`;
}

/** An amount in whole steps, with halves rounded to even, as the kernel does it. */
function toEven(amount, step) {
  const steps = Math.floor(amount / step);
  const rest = amount - steps * step;
  return steps + Number(2 * rest > step || (2 * rest === step && steps % 2 === 1));
}

/** A duration: `340 ms`, `3.2 s`, `2 min 5 s`, `1 h 20 min`. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 0.9995) return `${(Math.max(0, seconds) * 1000).toFixed(0)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  return longDuration(Math.round(seconds));
}

/** The time of something still going on, in whole seconds, so that it does not flicker. */
export function elapsed(seconds) {
  const whole = Math.max(0, Math.floor(Number.isFinite(seconds) ? seconds : 0));
  return whole < 60 ? `${whole} s` : longDuration(whole);
}

/** An agent's time, from its row and the run's time in seconds; `""` before it began. */
export function timeTaken(row, now) {
  if (!Number.isFinite(row.begun)) return "";
  if (Number.isFinite(row.ended)) return duration(row.ended - row.begun);
  return elapsed(now - row.begun);
}

/** The rest of an agent's wait: `39 s left`; `""` if it is unknown or over. */
export function timeLeft(row, now) {
  const left = Number.isFinite(row.until) ? Math.ceil(row.until - now) : 0;
  return left > 0 ? `${elapsed(left)} left` : "";
}

/** What an agent does or waits for, with the seconds left if known. */
export function doingNow(row, now) {
  return [row.doing, timeLeft(row, now)].filter(Boolean).join(", ");
}

/** An agent's tool calls: `3 calls, 1 error`, or with another word for `what`; `""` for none. */
export function toolCount(row, what = "call") {
  if (!row?.tool_calls) return "";
  const calls = counted(row.tool_calls, what);
  return row.tool_errors ? `${calls}, ${counted(row.tool_errors, "error")}` : calls;
}

/** The time of an open tool call, in whole seconds; `""` without one. */
export function openFor(tool, now) {
  return Number.isFinite(tool?.since) ? elapsed(now - tool.since) : "";
}

/** `998 characters`, `12 kB`, `1.4 MB`: the rough length of a text. */
export function textSize(length) {
  if (length < 10_000) return counted(length, "character");
  if (length < 999_500) return `${Math.round(length / 1000)} kB`;
  return `${(length / 1e6).toFixed(1)} MB`;
}

function longDuration(whole) {
  if (whole < 3600) {
    const rest = whole % 60;
    return `${Math.floor(whole / 60)} min${rest ? ` ${rest} s` : ""}`;
  }
  const minutes = Math.round(whole / 60);
  return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
}
