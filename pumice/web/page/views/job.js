/** One job: why it waits, what would help, and its life so far. */

import { h, jobLink, link, section, table } from "../dom.js";
import { amount, basis, clock, duration, expected, moment, short, show, showAll, until } from "../quantity.js";
import { gantt, kindOf, lasted } from "../gantt.js";
import { get, path } from "../server.js";

const SIGNS = { Passed: "✓", Failed: "✕", NotReached: "·" };
const REST_MS = 1000;
const AWAY_MS = 5000;

/** The page of a job, asked for again when lists change. */
export class Job {
  wants = [];
  #timer = 0;
  #busy = false;
  #again = false;
  #closed = false;

  constructor(store, [namespace, name]) {
    Object.assign(this, { store, namespace, name, title: name });
    this.told = h("div", { class: "cards" }, h("p", { class: "note", role: "status" }, "Loading …"));
    this.element = h("div", { class: "page" },
      h("h1", {}, h("span", { class: "quiet" }, `${namespace}/`), name), this.told);
    this.focus = this.element;
    this.element.tabIndex = -1;
    this.#load();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  update(what) {
    if (what === "touched" || (what === "tick" && !this.store.isLive)) this.#soon(REST_MS);
  }

  #soon(ms) {
    if (this.#busy) this.#again = true;
    else if (!this.#timer) this.#timer = setTimeout(() => this.#load(), ms);
  }

  async #load() {
    this.#timer = 0;
    this.#busy = true;
    const asked = ["explanations", "timelines"].map((resource) => get(path(resource, this.namespace, this.name)));
    const [explanation, timeline] = await Promise.allSettled(asked);
    this.#busy = false;
    if (this.#closed) return;
    this.#show(explanation, timeline);
    const isAway = explanation.reason?.passes || timeline.reason?.passes;
    if (this.#again) this.#soon(REST_MS);
    else if (isAway) this.#soon(AWAY_MS);
    this.#again = false;
  }

  #show(explanation, timeline) {
    const told = JSON.stringify([explanation.value, timeline.value, explanation.reason?.message]);
    if (this.told.told === told) return;
    this.told.told = told;
    if (!explanation.value && !timeline.value) {
      const why = explanation.reason.message;
      this.told.replaceChildren(h("p", { class: "note bad", role: "status" }, why));
      return;
    }
    const scrolled = this.element.scrollTop;
    this.told.replaceChildren(...[
      ...(explanation.value ? explained(explanation.value) : []),
      ...(timeline.value ? lived(timeline.value) : []),
    ].filter(Boolean));
    this.element.scrollTop = scrolled;
  }
}

function explained(said) {
  return [summary(said), gates(said), nodes(said), lacks(said), holders(said), help(said)];
}

/** Return whether an owner is the Job of Volcano of that name; another kind may have the name too. */
const isItself = ({ apiVersion = "", name }, metadata) =>
  name === metadata.name && (!apiVersion || apiVersion.startsWith("batch.volcano.sh/"));

/** Return the kind and name of a job's workload, nothing if that is the job itself. */
const ownerOf = ({ owner, metadata }) =>
  owner && owner.kind !== "PodGroup" && !isItself(owner, metadata) && `${owner.kind} ${owner.name}`;

function summary(said) {
  const facts = [
    ["Workload", ownerOf(said)],
    ["Queue", said.queue ? link(["queues", said.queue], said.queue) : "–"],
    ["Phase", phase(said.phase)],
    ["Place in line", said.position],
    ["Expected start", said.expectedStart && expected(said.expectedStart)],
    ["From", basis(said.expectedStart?.basis)],
    ["Decided", said.decidedAt && clock(said.decidedAt)],
    ...(said.latest ? [["Since", `${said.latest.gate ? `stopped at ${said.latest.gate}` : "nothing stops it"} (${clock(said.latest.at)})`]] : []),
  ];
  return section(`${said.about?.kind ?? "Job"} at a glance`,
    h("dl", { class: "facts" }, facts.filter(([, value]) => value)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
}

/** The phases of a PodGroup that this page has other words for. */
const PHASES = { Pending: "Pending (waiting)", Inqueue: "Inqueue (admitted)" };
const phase = (name) => PHASES[name] ?? (name || "–");

function gates(said) {
  const each = (gate) => h("li", { class: `gate ${gate.state}` },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[gate.state] ?? "·"),
    h("strong", {}, gate.name), h("span", { class: "quiet" }, ` ${gate.state === "NotReached" ? "not reached" : gate.state.toLowerCase()} `),
    gate.message ? h("span", {}, gate.message) : null);
  return section("Gates", said.gates?.length ? h("ol", { class: "gates" }, said.gates.map(each)) : null);
}

function nodes(said) {
  const most = Math.max(1, said.nodes ?? 0, ...(said.reasons ?? []).map((each) => each.nodes));
  const each = ({ reason, nodes: count }) => h("li", {},
    h("span", { class: "reason" }, reason), h("span", { class: "count" }, count),
    h("span", { class: "meter", "aria-hidden": "true" }, h("i", { vars: { width: `${(100 * count) / most}%` } })));
  return section(`Nodes by reason (${said.nodes ?? 0} looked at)`, said.reasons?.length ? h("ul", { class: "reasons" }, said.reasons.map(each)) : null);
}

function lacks(said) {
  const row = (each) => [short(each.resource), show(each.resource, amount(each.requested)), show(each.resource, amount(each.free))];
  return section("Short", said.shortages?.length ? table("What is short", ["Resource", "Wanted", "Free"], said.shortages.map(row)) : null);
}

/** Return who holds something in the form of a job of a list. */
const jobOf = ({ job, owner }) => ({ metadata: job, owner, podGroup: job.kind === "PodGroup" ? job.name : "" });

function holders(said) {
  const row = (each) => [jobLink(jobOf(each)), each.queue || "–", showAll(each.holds), until(each.expectedEnd)];
  const rows = (said.holders ?? []).map(row);
  const more = said.remainingHolders ? h("p", { class: "quiet" }, `and ${said.remainingHolders} that hold less`) : null;
  const hidden = said.hiddenHolders ? h("p", { class: "quiet" }, `and ${said.hiddenHolders} in namespaces that you may not see`) : null;
  return section("Held by", rows.length ? table("Jobs that hold it", ["Job", "Queue", "Holds", "Ends"], rows) : null, more, hidden);
}

function help(said) {
  const changes = said.wouldHelp?.length ? h("ul", {}, said.wouldHelp.map((change) => h("li", {}, change))) : null;
  const next = said.nextEvent ? h("p", {}, h("strong", {}, "Next: "), said.nextEvent) : null;
  return section("Each of these would help", changes, next);
}

function lived(life) {
  const entries = life.entries ?? [];
  const begin = moment(entries[0]?.at);
  const ends = entries.map((entry) => moment(entry.at) + 1000 * (lasted(entry) ?? 0));
  const whole = Math.max(1, Math.max(...ends) - begin);
  const own = entries.filter((entry) => entry.about?.kind !== "Pod");
  const pods = entries.filter((entry) => entry.about?.kind === "Pod");
  const list = (some) => h("ol", { class: "timeline" }, some.map((entry) => line(entry, begin, whole)));
  const hidden = life.hiddenPods ? h("p", { class: "quiet" }, `${life.hiddenPods} pods are left out`) : null;
  return [
    section(`Timeline${life.phase ? ` · ${life.gone ? "gone, deleted while " : ""}${life.phase}` : ""}`, own.length ? list(own) : null),
    wide(section("Pods", ...gantt(pods, life.metadata.name), hidden,
      pods.length ? h("details", {}, h("summary", {}, `What happened to them, ${pods.length} entries`), list(pods)) : null)),
  ];
}

/** Give a card the whole width of the page. */
function wide(card) {
  card?.classList.add("wide");
  return card;
}

function line(entry, begin, whole) {
  const seconds = lasted(entry);
  return h("li", { class: `entry ${kindOf(entry)}` },
    h("time", { datetime: entry.at, title: entry.at }, `${entry.approximate ? "~" : ""}${clock(entry.at)}`),
    h("strong", {}, entry.what),
    h("span", { class: "span", "aria-hidden": "true" }, h("i", { vars: {
      left: `${(100 * (moment(entry.at) - begin)) / whole}%`, width: `${(100000 * (seconds ?? 0)) / whole}%`,
    } })),
    h("span", { class: "lasted" }, seconds == null ? "" : `${entry.goesOn ? "> " : ""}${duration(seconds)}`),
    h("span", { class: "said" }, entry.about?.kind === "Pod" ? `${entry.about.name} ` : "", entry.message ?? ""));
}
