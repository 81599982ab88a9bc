/** The tree of queues with their shares, and one queue with its line. */

import { MARKS, PARTS, WORDS, bar } from "../bars.js";
import { h, link, route } from "../dom.js";
import { VirtualList } from "../list.js";
import { byResource } from "../quantity.js";
import { Notice, pendingList, runningList } from "./common.js";

const COLUMNS = 3;
const sorted = (queue) => byResource(queue.resources ?? [], (each) => each.resource);
const nameOf = (queue) => queue.metadata.name;

/** All queues as a tree whose branches close. */
export class Queues {
  title = "Queues";
  wants = ["queuetrees"];
  #closed = new Set();
  #columns = [];

  constructor(store) {
    this.store = store;
    this.notice = new Notice();
    this.list = new VirtualList({
      label: "Queues", kind: "queues", role: "treegrid", key: nameOf,
      heads: ["Queue", "Running", "Admitted", "Waiting", "In use, of the limit or the deserved share"],
      fill: (queue) => this.#cells(queue),
      row: (queue) => ({
        "aria-level": (queue.depth ?? 0) + 1,
        "aria-expanded": queue.children?.length ? !this.#closed.has(nameOf(queue)) : null,
        "data-columns": this.#columns.join(),
      }),
      open: (queue) => { location.hash = route(["queues", nameOf(queue)]); },
      move: (key, queue) => this.#move(key, queue),
    });
    this.element = h("div", { class: "fill" },
      h("div", { class: "bar-of-view" }, h("h1", {}, "Queues"), legend()), this.notice.element, this.list.element);
    this.focus = this.list.element;
    this.update("queuetrees");
  }

  update(what) {
    if (what !== "queuetrees") return;
    const list = this.store.list("queuetrees");
    const names = new Set(list.items.flatMap((queue) => (queue.resources ?? []).map((each) => each.resource)));
    this.#columns = byResource(names, (name) => name).slice(0, COLUMNS);
    const shown = this.#open(list.items);
    this.list.set(shown);
    this.notice.tell(list, shown.length, "There is no queue.");
  }

  /** Return the queues of which no parent is closed; each stands behind its parent. */
  #open(queues) {
    const hidden = new Set();
    return queues.filter((queue) => {
      if (queue.parent && (this.#closed.has(queue.parent) || hidden.has(queue.parent))) hidden.add(nameOf(queue));
      return !hidden.has(nameOf(queue));
    });
  }

  #cells(queue) {
    const name = nameOf(queue);
    const closed = this.#closed.has(name);
    const toggle = queue.children?.length
      ? h("button", { type: "button", class: "toggle", tabindex: "-1", "aria-label": `${closed ? "Open" : "Close"} ${name}`,
        onclick: () => this.#toggle(name) }, closed ? "▸" : "▾")
      : h("span", { class: "toggle" });
    const resources = new Map((queue.resources ?? []).map((each) => [each.resource, each]));
    const shares = this.#columns.map((column) => {
      const resource = resources.get(column);
      return resource ? bar(resource) : h("span", { class: "share" });
    });
    return [
      h("span", { class: "branch", vars: { "--depth": String(queue.depth ?? 0) } }, toggle, link(["queues", name], name),
        queue.state && queue.state !== "Open" ? h("span", { class: "badge" }, queue.state) : null),
      queue.runningJobs ?? 0, queue.inqueueJobs ?? 0, queue.pendingJobs ?? 0,
      h("span", { class: "shares" }, shares),
    ];
  }

  #toggle(name) {
    if (!this.#closed.delete(name)) this.#closed.add(name);
    this.update("queuetrees");
    this.list.refresh();
  }

  #move(key, queue) {
    const closed = this.#closed.has(nameOf(queue));
    const turns = queue.children?.length && ((key === "ArrowLeft" && !closed) || (key === "ArrowRight" && closed));
    if (turns) this.#toggle(nameOf(queue));
    return Boolean(turns);
  }
}

function legend() {
  const parts = PARTS.map((name) => h("span", {}, h("i", { class: name }), WORDS[name]));
  const marks = MARKS.map((name) => h("span", {}, h("b", { class: name }), name));
  return h("div", { class: "legend", "aria-hidden": "true" }, parts, marks);
}

/** One queue: all its resources, its line, and the gangs that run in it. */
export class Queue {
  wants = ["queuetrees", "pendingjobs", "runningjobs"];

  constructor(store, [name]) {
    Object.assign(this, { store, name, title: name });
    this.facts = h("p", { class: "facts" });
    this.shares = h("div", { class: "shares wide" });
    this.lists = {
      pendingjobs: pendingList(`Line of queue ${name}`), runningjobs: runningList(`Gangs that run in queue ${name}`),
    };
    this.notice = new Notice();
    this.tabs = this.#tabs();
    this.panel = h("div", { class: "fill", role: "tabpanel", "aria-label": "Jobs of the queue" });
    this.element = h("div", { class: "fill" },
      h("div", { class: "bar-of-view" }, h("h1", {}, name), this.facts), this.shares, this.tabs, this.notice.element, this.panel);
    this.#choose("pendingjobs");
    this.focus = this.lists.pendingjobs.element;
    this.wants.forEach((what) => this.update(what));
  }

  #tabs() {
    const tab = (list) => h("button", { type: "button", role: "tab", "data-list": list, onclick: () => this.#choose(list) });
    return h("div", { role: "tablist", class: "tabs", onkeydown: (event) => this.#turn(event) }, tab("pendingjobs"), tab("runningjobs"));
  }

  #turn(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    this.#choose(this.chosen === "pendingjobs" ? "runningjobs" : "pendingjobs");
    this.tabs.querySelector('[aria-selected="true"]').focus();
  }

  #choose(list) {
    this.chosen = list;
    this.panel.replaceChildren(this.lists[list].element);
    for (const tab of this.tabs.children) {
      tab.setAttribute("aria-selected", String(tab.dataset.list === list));
      tab.tabIndex = tab.dataset.list === list ? 0 : -1;
    }
    this.update(list);
  }

  update(what) {
    if (what === "tick") this.lists[this.chosen].refresh();
    if (what === "queuetrees") this.#head();
    if (what === "scope") this.wants.forEach((each) => this.update(each));
    if (what in this.lists) this.#line(what);
  }

  #head() {
    const list = this.store.list("queuetrees");
    const queue = list.items.find((each) => nameOf(each) === this.name);
    const missing = list.error?.message ?? (list.loaded ? "There is no such queue." : "");
    if (!queue) return void (this.facts.textContent = missing);
    const path = queue.parent ? ["below ", link(["queues", queue.parent], queue.parent), " · "] : [];
    this.facts.replaceChildren(...path, `${queue.state || "Open"} · weight ${queue.weight ?? 1}`);
    this.shares.replaceChildren(...sorted(queue).map(bar));
  }

  #line(what) {
    const list = this.store.list(what);
    const jobs = list.items.filter((job) => job.queue === this.name);
    if (what === "pendingjobs") jobs.sort((a, b) => (a.position || Infinity) - (b.position || Infinity) || 0);
    this.lists[what].set(jobs);
    const words = { pendingjobs: "Line", runningjobs: "Running" };
    this.tabs.querySelector(`[data-list="${what}"]`).textContent = `${words[what]} (${jobs.length})`;
    if (what === this.chosen) this.notice.tell(list, jobs.length, what === "pendingjobs" ? "No job waits here." : "No gang runs here.");
  }
}
