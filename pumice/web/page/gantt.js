/** Draws the lives of pods: a row for each pod, a span for each wait, bind and run on one axis of time. */

import { h } from "./dom.js";
import { clock, duration, moment } from "./quantity.js";

const ROWS = 40;
const TICKS = 4;
/** What a span is called in the legend, by its style. */
const SPANS = { waits: "waits", bound: "bound", running: "runs", evicted: "evicted" };

/** Return the style of an entry. */
export const kindOf = (entry) => entry.what.toLowerCase().replace(/[^a-z]/g, "");

/** Return how many seconds an entry has lasted, until now if it goes on; null for a moment. */
export const lasted = (entry) => (entry.goesOn ? (Date.now() - moment(entry.at)) / 1000 : entry.seconds ?? null);

/** Return the chart of the pods that entries are about, and nothing without entries. */
export function gantt(entries, job) {
  if (!entries.length) return [];
  const rows = [...Map.groupBy(entries, (entry) => entry.about.name)];
  const begin = Math.min(...entries.map((entry) => moment(entry.at)));
  const end = Math.max(...entries.map((entry) => moment(entry.at) + 1000 * (lasted(entry) ?? 0)));
  const scale = { begin, whole: Math.max(1000, end - begin) };
  const body = h("ol", { class: "gantt" }, rows.slice(0, ROWS).map(([name, some]) => row(name, some, job, scale)));
  const rest = rows.slice(ROWS);
  const more = rest.length ? h("button", { type: "button", onclick: () => {
    body.append(...rest.map(([name, some]) => row(name, some, job, scale)));
    more.remove();
  } }, `Show ${rest.length} more pods`) : null;
  return [legend(), axis(scale), body, more];
}

function row(name, entries, job, { begin, whole }) {
  const short = name.startsWith(`${job}-`) ? name.slice(job.length + 1) : name;
  const spans = entries.map((entry) => h("i", { class: kindOf(entry), title: words(entry), vars: {
    left: `${(100 * (moment(entry.at) - begin)) / whole}%`,
    width: `${(100000 * (lasted(entry) ?? 0)) / whole}%`,
  } }));
  return h("li", { "aria-label": `${name}: ${entries.map(words).join(", ")}` },
    h("span", { class: "pod", title: name }, short), h("span", { class: "life", "aria-hidden": "true" }, spans));
}

function words(entry) {
  const seconds = lasted(entry);
  return `${entry.what}${seconds == null ? ` at ${clock(entry.at)}` : ` ${duration(seconds)}`}${entry.message ? ` (${entry.message})` : ""}`;
}

function legend() {
  return h("div", { class: "legend", "aria-hidden": "true" },
    Object.entries(SPANS).map(([kind, word]) => h("span", {}, h("i", { class: kind }), word)));
}

function axis({ begin, whole }) {
  const ticks = Array.from({ length: TICKS + 1 }, (_, at) => h("time", {}, clock(new Date(begin + (whole * at) / TICKS).toISOString())));
  return h("div", { class: "gantt-axis", "aria-hidden": "true" }, ticks);
}
