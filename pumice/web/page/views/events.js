/** A feed of what happens, newest first. */

import { h, route } from "../dom.js";
import { VirtualList } from "../list.js";
import { clock } from "../quantity.js";
import { filter } from "./common.js";

/** The feed since this page was opened, and what the service kept from before. */
export class Events {
  title = "Events";
  wants = [];
  #text = "";
  #serials = new WeakMap();
  #next = 0;

  constructor(store) {
    this.store = store;
    this.empty = h("p", { class: "note", role: "status" });
    this.list = new VirtualList({
      label: "Events", kind: "events", key: (entry) => this.#serial(entry), heads: ["Time", "Event", "About", "Message"],
      fill: (entry) => [
        h("time", { datetime: entry.at }, clock(entry.at)), h("strong", {}, entry.what), about(entry.about),
        h("span", { class: "why", title: entry.message ?? "" }, entry.message ?? ""),
      ],
      open: (entry) => { if (address(entry.about)) location.hash = address(entry.about); },
    });
    this.element = h("div", { class: "fill" }, h("div", { class: "bar-of-view" }, h("h1", {}, "Events"),
      filter("Filter by event, name or message", (text) => { this.#text = text; this.update("entries"); })),
      this.empty, this.list.element);
    this.focus = this.list.element;
    this.update("entries");
  }

  update(what) {
    if (!["entries", "live", "scope"].includes(what)) return;
    const text = this.#text;
    const shown = this.store.entries.filter((entry) => !text || [entry.what, entry.about?.name, entry.about?.namespace, entry.message]
      .some((word) => word?.toLowerCase().includes(text)));
    this.list.set(shown);
    const words = this.store.isLive ? "Nothing has happened yet." : "The stream of changes is not open.";
    this.empty.textContent = text && this.store.entries.length ? "None fits the filter." : words;
    this.empty.hidden = shown.length > 0;
  }

  #serial(entry) {
    if (!this.#serials.has(entry)) this.#serials.set(entry, (this.#next += 1));
    return this.#serials.get(entry);
  }
}

const PLACES = { Job: (ref) => ["jobs", ref.namespace, ref.name], PodGroup: (ref) => ["jobs", ref.namespace, ref.name],
  Pod: (ref) => ["jobs", ref.namespace, ref.name], Queue: (ref) => ["queues", ref.name] };

const address = (ref) => {
  const parts = PLACES[ref?.kind]?.(ref);
  return parts ? route(parts.map((part) => part ?? "")) : "";
};

function about(ref) {
  const name = ref ? `${ref.kind} ${ref.namespace ? `${ref.namespace}/` : ""}${ref.name}` : "";
  return address(ref) ? h("a", { href: address(ref) }, name) : name;
}
