/** The last hours as curves: what was in use, how many jobs waited, and for how long. */

import { ROUND_SECONDS, chart } from "../chart.js";
import { h } from "../dom.js";
import { amount, byResource, duration, short } from "../quantity.js";
import { Notice } from "./common.js";

const AGAIN_MS = 60000;
const SHOWN = 4;
const percent = (value) => `${Math.round(value)} %`;
const count = (value) => String(Math.round(value * 10) / 10);
const span = (value) => (value >= 1 ? duration(value) : "0 s");

/** The charts, asked for again each minute. */
export class History {
  title = "History";
  wants = ["usagehistories"];
  #asked = performance.now();

  constructor(store) {
    this.store = store;
    this.notice = new Notice();
    this.charts = h("div", { class: "cards" });
    this.element = h("div", { class: "page" }, h("h1", {}, "History"), this.notice.element, this.charts);
    this.focus = this.element;
    this.element.tabIndex = -1;
    this.update("usagehistories");
  }

  update(what) {
    if (what === "tick" && performance.now() - this.#asked > AGAIN_MS) {
      this.#asked = performance.now();
      this.store.touch(this.wants);
    }
    if (what === "usagehistories") this.#show();
  }

  #show() {
    const list = this.store.list("usagehistories");
    const [history] = list.items;
    this.notice.tell(list, list.items.length, "There is no history yet.");
    if (!history?.points?.length) return void this.charts.replaceChildren();
    const points = history.points;
    const times = points.map((point) => point.at);
    const pick = (name) => points.map((point) => point[name] ?? null);
    this.charts.replaceChildren(
      chart({ title: "In use, of what the nodes have now", times, series: shares(history), show: percent, most: 100 }),
      chart({ title: "Jobs", times, show: count, series: [
        { name: "waiting", values: points.map((point) => point.waiting ?? 0) },
        { name: "started in 5 min", values: points.map((point) => point.started ?? 0) },
      ] }),
      chart({ title: "Waits of jobs that started", times, show: span, round: ROUND_SECONDS, series: [
        { name: "half waited at most", values: pick("waitedP50Seconds") }, { name: "nine of ten at most", values: pick("waitedP90Seconds") },
      ] }),
      ...(history.isPartial ? [h("p", { class: "note" }, "More jobs ran than are remembered: the early part shows too little.")] : []),
    );
  }
}

/** Return a series per resource: the share in use, in percent. */
function shares({ total = {}, points }) {
  const known = byResource(Object.keys(total), (name) => name).filter((name) => name !== "pods");
  const used = known.filter((name) => points.some((point) => point.inUse?.[name]));
  return (used.length ? used : known).slice(0, SHOWN).map((name) => ({
    name: short(name),
    values: points.map((point) => (100 * amount(point.inUse?.[name] ?? "0")) / amount(total[name])),
  }));
}
