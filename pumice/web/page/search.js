/** The search field: queues, jobs and nodes by a part of their names. */

import { h, route, title } from "./dom.js";

const MOST = 20;
const LISTS = ["queuetrees", "pendingjobs", "runningjobs", "nodeuses"];

/** Return hits for a text, those that begin with it first. */
export function search(lists, text) {
  const words = text.toLowerCase();
  const named = (list, kind, target) => lists(list).items.flatMap((item) => {
    const { namespace = "" } = item.metadata;
    const name = title(item);
    const at = name.toLowerCase().indexOf(words);
    const beside = at < 0 && namespace && `${namespace}/${name}`.toLowerCase().includes(words);
    return at < 0 && !beside ? [] : [{ kind, namespace, name, at: beside ? 999 : at, target: target(item.metadata) }];
  });
  const job = ({ namespace, name }) => route(["jobs", namespace, name]);
  return [
    ...named("queuetrees", "queue", ({ name }) => route(["queues", name])),
    ...named("pendingjobs", "waiting", job), ...named("runningjobs", "running", job),
    ...named("nodeuses", "node", ({ name }) => route(["nodes"], { node: name })),
  ].sort((a, b) => a.at - b.at || a.name.length - b.name.length || (a.name < b.name ? -1 : 1)).slice(0, MOST);
}

/** The combobox of the header. */
export class Search {
  #hits = [];
  #active = -1;

  constructor(store, input, list) {
    Object.assign(this, { store, input, list });
    input.addEventListener("input", () => this.#find());
    input.addEventListener("focus", () => store.wantAlso(LISTS));
    input.addEventListener("blur", () => setTimeout(() => this.#close()));
    input.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("pointerdown", (event) => event.preventDefault());
  }

  /** Look again: a list that was asked for has come. */
  update(what) {
    if (LISTS.includes(what) && !this.list.hidden) this.#find();
  }

  #find() {
    const text = this.input.value.trim();
    this.#hits = text ? search((name) => this.store.list(name), text) : [];
    this.#active = this.#hits.length ? 0 : -1;
    this.#paint();
  }

  #paint() {
    const text = this.input.value.trim();
    this.list.replaceChildren(...this.#hits.map((hit, at) =>
      h("li", { id: `hit-${at}`, role: "option", "aria-selected": String(at === this.#active), onclick: () => this.#go(at) },
        h("span", { class: "badge" }, hit.kind), h("span", { class: "quiet" }, hit.namespace ? `${hit.namespace}/` : ""), hit.name)));
    if (text && !this.#hits.length) this.list.replaceChildren(h("li", { class: "note" }, "Nothing has this name."));
    this.list.hidden = !text;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    if (this.#active >= 0) this.input.setAttribute("aria-activedescendant", `hit-${this.#active}`);
    else this.input.removeAttribute("aria-activedescendant");
    document.getElementById(`hit-${this.#active}`)?.scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps && this.#hits.length) {
      this.#active = (this.#active + steps[event.key] + this.#hits.length) % this.#hits.length;
      this.#paint();
      event.preventDefault();
    } else if (event.key === "Enter") {
      this.#go(this.#active);
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.input.blur();
    }
  }

  #go(at) {
    const hit = this.#hits[at];
    if (!hit) return;
    location.hash = hit.target;
    this.input.value = "";
    this.input.blur();
  }

  #close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.store.wantAlso([]);
  }
}
