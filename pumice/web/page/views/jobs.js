/** All jobs that wait, in the order of their queues, and all gangs that run. */

import { h } from "../dom.js";
import { Notice, filter, fits, pendingList, runningList } from "./common.js";

/** A list of jobs with a filter. */
class Jobs {
  #text = "";

  constructor(store, { title, name, list, empty }) {
    Object.assign(this, { store, title, wants: [name], name, list, empty });
    this.notice = new Notice();
    this.count = h("span", { class: "quiet", role: "status" });
    const input = filter("Filter by name, queue or reason", (text) => {
      this.#text = text;
      this.update(name);
    });
    this.element = h("div", { class: "fill" },
      h("div", { class: "bar-of-view" }, h("h1", {}, title), this.count, input), this.notice.element, list.element);
    this.focus = list.element;
    this.update(name);
  }

  update(what) {
    if (what === "tick") this.list.refresh();
    if (what !== this.name && what !== "scope") return;
    const list = this.store.list(this.name);
    const shown = list.items.filter((job) => fits(job, this.#text));
    this.count.textContent = list.loaded ? `${shown.length} of ${list.items.length}` : "";
    this.list.set(shown);
    this.notice.tell(list, shown.length, this.#text ? "None fits the filter." : this.empty);
  }
}

/** Return the view of jobs that wait. */
export const pending = (store) => new Jobs(store, {
  title: "Waiting", name: "pendingjobs", list: pendingList("Jobs that wait"), empty: "No job waits.",
});

/** Return the view of gangs that run. */
export const running = (store) => new Jobs(store, {
  title: "Running", name: "runningjobs", list: runningList("Gangs that run"), empty: "No gang runs.",
});
