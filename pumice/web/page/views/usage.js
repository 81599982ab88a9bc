/** Recorded usage: by queue over days, waits, shares against usage, and budgets. */

import { ROUND_SECONDS, chart } from "../chart.js";
import { h, link, note } from "../dom.js";
import { byResource, day, duration, moment, short, show } from "../quantity.js";
import { path, post } from "../server.js";
import { Notice } from "./common.js";

const DAYS = [7, 30, 90];
const DAY_MS = 86400000;
const SHOWN = 4;
const BUDGETS = 6;
const PAGES = 20;
const AGAIN_MS = 300000;
const percent = (value) => `${Math.round(value)} %`;
const span = (value) => (value >= 1 ? duration(value) : "0 s");

/** Return all pages of a report. Raises Refused. */
async function report(spec) {
  const found = { rows: [], shares: [], budgets: [] };
  let after = "";
  for (let page = 0; page < PAGES; page += 1) {
    const asked = { kind: "UsageReport", spec: { limit: 1000, ...spec, after } };
    const { status } = await post(path("usagereports"), asked);
    for (const [name, list] of Object.entries(found)) list.push(...(status[name] ?? []));
    after = status.next;
    if (!after) break;
  }
  return found;
}

/** The charts of a number of days. */
export class Usage {
  title = "Usage";
  wants = ["queuetrees"];
  #round = 0;
  #asked = 0;
  #found = null;
  #resource = "";

  constructor(store) {
    this.store = store;
    this.notice = new Notice();
    this.days = h("select", { "aria-label": "Days", onchange: () => this.#ask() },
      DAYS.map((days) => h("option", { value: days, selected: days === 30 }, `${days} days`)));
    this.resources = h("select", { "aria-label": "Resource", onchange: () => this.#choose() });
    this.charts = h("div", { class: "cards" });
    this.element = h("div", { class: "page", tabindex: "-1" },
      h("div", { class: "bar-of-view" }, h("h1", {}, "Usage"), this.days, this.resources), this.notice.element, this.charts);
    this.focus = this.element;
    this.#ask();
  }

  update(what) {
    if (what === "tick" && performance.now() - this.#asked > AGAIN_MS) this.#ask();
    if (what === "theme") this.#show();
  }

  close() {
    this.#round += 1;
  }

  async #ask() {
    const round = ++this.#round;
    this.#asked = performance.now();
    this.notice.tell({ loaded: Boolean(this.#found) }, 1, "");
    try {
      const found = await this.#reports({});
      if (round !== this.#round) return;
      this.#found = found;
      this.notice.tell({ loaded: true }, found.usage.length, "Accounting has recorded no usage in this time.");
      this.#offer();
      this.#show();
    } catch (error) {
      if (round !== this.#round) return;
      this.notice.tell({ error }, 0, "");
      this.charts.replaceChildren();
    }
  }

  /** Return what the charts need; a user who may not see all usage is shown his own. */
  async #reports(own) {
    const since = new Date(Math.floor(Date.now() / DAY_MS - this.days.value + 1) * DAY_MS).toISOString();
    try {
      // One after the other: the server computes one report of a user at a time.
      const usage = await report({ report: "usage", by: ["queue", "day"], since, ...own });
      const waits = await report({ report: "waits", by: ["day"], since, ...own });
      const shares = await report({ report: "shares", ...own });
      const budgets = await report({ report: "budgets", ...own });
      const burned = [];
      for (const budget of worst(budgets.budgets)) burned.push(await this.#burned(budget));
      return { since, own: Boolean(own.mine), usage: usage.rows, waits: waits.rows, shares: shares.shares, burned };
    } catch (error) {
      if (error.status !== 403 || own.mine) throw error;
      return this.#reports({ mine: true });
    }
  }

  /** Return a budget with the hours that were used by the end of each day of its period. */
  async #burned(budget) {
    const { user = "", namespace = "", begin } = budget;
    const { rows } = await report({ report: "usage", by: ["queue", "day"], since: begin, user, namespace });
    const inside = this.#below(budget.queue);
    const used = new Map();
    for (const { group, values } of rows) {
      if (group.resource !== budget.resource || !inside(group.queue)) continue;
      used.set(group.day, (used.get(group.day) ?? 0) + values.amountHours);
    }
    return { ...budget, used };
  }

  /** Return whether a queue is another one or below it. */
  #below(name) {
    const parents = new Map(this.store.list("queuetrees").items.map((queue) => [queue.metadata.name, queue.parent]));
    return (queue) => {
      for (let each = queue; each; each = parents.get(each)) if (each === name) return true;
      return name === "root";
    };
  }

  #offer() {
    const names = byResource(new Set(this.#found.usage.map(({ group }) => group.resource)), (name) => name).filter((name) => name !== "pods");
    this.#resource = names.includes(this.#resource) ? this.#resource : names.find((name) => /gpu/i.test(name)) ?? names[0] ?? "";
    this.resources.replaceChildren(...names.map((name) => h("option", { value: name, selected: name === this.#resource }, short(name))));
    this.resources.hidden = !names.length;
  }

  #choose() {
    this.#resource = this.resources.value;
    this.#show();
  }

  #show() {
    if (!this.#found) return;
    const { since, own, usage, waits, shares, burned } = this.#found;
    const times = days(since, new Date().toISOString());
    const hours = (value) => `${show(this.#resource, value)} h`;
    this.charts.replaceChildren(...[
      own ? note("Shown is what belongs to you: you may not see the usage of others.") : null,
      chart({ title: `${short(this.#resource)} hours a day, by queue`, times, show: hours, label: day, stacked: true,
        series: byQueue(usage.filter(({ group }) => group.resource === this.#resource), times) }),
      chart({ title: "Waits of jobs, by the day of their submission", times, show: span, round: ROUND_SECONDS, label: day, series: [
        { name: "half waited at most", values: ofDays(waits, times, "p50Seconds") },
        { name: "nine of ten at most", values: ofDays(waits, times, "p90Seconds") },
      ] }),
      ...burned.map(burnDown),
      shares.length ? sharesCard(shares) : null,
    ].filter(Boolean));
  }
}

/** Return the days of a time, as their begins. */
function days(begin, end) {
  const count = Math.max(1, Math.ceil((moment(end) - moment(begin)) / DAY_MS));
  return Array.from({ length: count }, (_, at) => new Date(moment(begin) + at * DAY_MS).toISOString());
}

const dateOf = (time) => time.slice(0, 10);

function ofDays(rows, times, column) {
  const known = new Map(rows.map(({ group, values }) => [group.day, values[column]]));
  return times.map((time) => known.get(dateOf(time)) ?? null);
}

/** Return a series for each queue that used most, and one for the others. */
function byQueue(rows, times) {
  const totals = new Map();
  for (const { group, values } of rows) totals.set(group.queue, (totals.get(group.queue) ?? 0) + values.amountHours);
  const names = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a) || (a < b ? -1 : 1));
  const first = new Set(names.slice(0, SHOWN));
  const series = [...first, ...(names.length > SHOWN ? ["others"] : [])];
  const sums = new Map(series.map((name) => [name, new Map()]));
  for (const { group, values } of rows) {
    const of = sums.get(first.has(group.queue) ? group.queue : "others");
    of.set(group.day, (of.get(group.day) ?? 0) + values.amountHours);
  }
  return series.map((name) => ({ name, values: times.map((time) => sums.get(name).get(dateOf(time)) ?? 0) }));
}

const worst = (budgets) => budgets.toSorted((a, b) => b.usedHours / b.amountHours - a.usedHours / a.amountHours).slice(0, BUDGETS);

/** Return what is left of a budget at the end of each day, and what would be at an even pace. */
function burnDown(budget) {
  const times = [...days(budget.begin, budget.end), budget.end];
  const now = Date.now();
  let left = budget.amountHours;
  const values = times.map((time, at) => {
    if (at) left -= budget.used.get(dateOf(times[at - 1])) ?? 0;
    return moment(time) - DAY_MS < now ? (100 * Math.max(0, left)) / budget.amountHours : null;
  });
  const who = [budget.user && `user ${budget.user}`, budget.namespace && `namespace ${budget.namespace}`].filter(Boolean).join(" in ");
  const words = `${show(budget.resource, budget.usedHours)} of ${show(budget.resource, budget.amountHours)} ${short(budget.resource)} hours used`;
  const ends = budget.usedHours >= budget.amountHours ? "used up" : budget.usedUp ? `used up on ${day(budget.usedUp)} at the present rate` : "";
  const card = chart({ title: `Budget ${budget.budget}${who ? `: ${who}` : ""}`, times, show: percent, most: 100, label: day, series: [
    { name: "left", values }, { name: "at an even pace", isGuide: true, values: times.map((_, at) => 100 - (100 * at) / (times.length - 1)) },
  ] });
  card.append(h("p", {}, [words, ends].filter(Boolean).join("; ")));
  return card;
}

/** Return bars of the usage of queues and users, with a mark at their share. */
function sharesCard(shares) {
  const rows = shares.filter(({ queue, depth }) => depth || queue !== "root").map((row) => {
    const [used, share] = [100 * (row.effectiveUsage ?? 0), 100 * (row.normShares ?? 0)];
    const name = row.user ? h("span", {}, row.user) : link(["queues", row.queue], row.queue);
    const words = `${percent(used)} used, a share of ${percent(share)}`;
    return h("li", {}, h("span", { class: "branch", vars: { "--depth": String(row.depth ?? 0) } }, name), h("span", {}, words),
      h("span", { class: "bar", role: "img", "aria-label": words },
        h("i", { class: "allocated", vars: { left: "0%", width: `${Math.min(100, used)}%` } }),
        h("b", { class: "deserved", vars: { left: `${Math.min(99.5, share)}%` } })));
  });
  return h("section", { class: "card" }, h("h2", {}, "Usage against share, among siblings"), h("ul", { class: "used" }, rows));
}
