/** Keeps the lists that views show, and asks for those again that have changed and are shown. */

import { Changes, get, path } from "./server.js";

const REST_MS = 1000;
const POLL_MS = 5000;
const ENTRIES_MOST = 1000;
const CLUSTER_WIDE = new Set(["queuetrees", "nodeuses", "usagehistories"]);
/** A list rests this many times as long as it took, so that a slow line is not kept busy. */
const REST_TIMES = 4;

class List {
  items = [];
  error = null;
  loaded = false;
  busy = false;
  stale = true;
  next = 0;
}

/** Everything that is known; `changed` is called with the name of what is new. */
export class Store {
  scope = "";
  isLive = false;
  entries = [];
  lists = new Map();
  #told = new Set();
  #wanted = new Set();
  #extra = new Set();
  #timer = 0;
  #round = 0;

  constructor(changed) {
    this.changed = changed;
    this.changes = new Changes({
      changed: (names) => this.touch(names),
      happened: (entry) => this.#happened(entry),
      live: (is) => this.#live(is),
    });
    setInterval(() => this.isLive || this.touch([...this.lists.keys()]), POLL_MS);
    document.addEventListener("visibilitychange", () => this.#pump());
  }

  /** Return a list, known or not. */
  list(name) {
    if (!this.lists.has(name)) this.lists.set(name, new List());
    return this.lists.get(name);
  }

  /** Show one namespace, or all for "". */
  follow(scope) {
    this.scope = scope;
    this.#round += 1;
    this.entries = [];
    this.#told.clear();
    for (const name of this.lists.keys()) if (!CLUSTER_WIDE.has(name)) this.lists.set(name, new List());
    this.changes.follow(scope);
    this.changed("scope");
    this.#pump();
  }

  /** Return whether it has begun to ask. */
  get isFollowing() {
    return this.#round > 0;
  }

  /** Keep these lists fresh: those of the view that is shown. */
  want(names) {
    this.#wanted = new Set(names);
    this.#pump();
  }

  /** Keep more lists fresh, for as long as a search goes on. */
  wantAlso(names) {
    this.#extra = new Set(names);
    this.#pump();
  }

  /** Ask for a list once, whether it is shown or not. */
  once(name) {
    const list = this.list(name);
    if (list.stale && !list.busy) this.#load(name, list);
  }

  /** Mark lists as changed. */
  touch(names) {
    for (const name of names) this.list(name).stale = true;
    this.changed("touched", names);
    this.#pump();
  }

  #live(is) {
    // What changed while nothing was received is unknown.
    if (is) this.touch([...this.lists.keys()]);
    this.isLive = is;
    this.changed("live");
  }

  /** Keep an entry; a stream that is opened again begins with entries that are known. */
  #happened(entry) {
    const told = JSON.stringify(entry);
    if (!entry || this.#told.has(told)) return;
    this.#told.add(told);
    this.entries.unshift(entry);
    if (this.entries.length > ENTRIES_MOST) this.#told.delete(JSON.stringify(this.entries.pop()));
    this.changed("entries", entry);
  }

  #pump() {
    clearTimeout(this.#timer);
    if (document.hidden || !this.isFollowing) return;
    const now = performance.now();
    let soonest = Infinity;
    for (const name of new Set([...this.#wanted, ...this.#extra])) {
      const list = this.list(name);
      if (!list.stale || list.busy) continue;
      if (list.next <= now) this.#load(name, list);
      else soonest = Math.min(soonest, list.next - now);
    }
    if (soonest < Infinity) this.#timer = setTimeout(() => this.#pump(), soonest + 1);
  }

  async #load(name, list) {
    const [begun, round] = [performance.now(), this.#round];
    list.busy = true;
    list.stale = false;
    try {
      const answer = await get(path(name, CLUSTER_WIDE.has(name) ? "" : this.scope));
      const items = answer.items ?? [];
      // The version is that of the whole list: with it each row would look new at each turn.
      for (const item of items) delete item.metadata.resourceVersion;
      Object.assign(list, { items, error: null });
    } catch (error) {
      // A server that is away, or does not know the cluster yet, is asked again without being told.
      Object.assign(list, { error, stale: list.stale || error.passes });
    }
    const ended = performance.now();
    Object.assign(list, { loaded: true, busy: false });
    const rest = list.error?.passes ? POLL_MS : REST_MS;
    list.next = ended + Math.max(rest, REST_TIMES * (ended - begun));
    if (round === this.#round || CLUSTER_WIDE.has(name)) this.changed(name);
    this.#pump();
  }
}
