/** All nodes as a heat map: one square per node, its colour says how full it is. */

import { h, note } from "../dom.js";
import { amount, byResource, short, show } from "../quantity.js";
import { Notice, filter } from "./common.js";

const STEPS = 6;
const GAP = 2;
const [SMALLEST, LARGEST] = [8, 34];
const used = (node, resource) => amount(node.allocated?.[resource] ?? "0") / amount(node.allocatable?.[resource]);

/** Return the step of a share: 0 for an empty node, the last for a full one, -1 where there is none. */
export function step(share) {
  if (!Number.isFinite(share)) return -1;
  return share <= 0 ? 0 : Math.min(STEPS - 1, 1 + Math.floor(Math.min(share, 0.9999) * (STEPS - 1)));
}

/** The map, and what it says of the chosen node. */
export class Nodes {
  title = "Nodes";
  wants = ["nodeuses"];
  #cells = [];
  #chosen = "";
  #resource = "";
  #text = "";
  #order = "name";
  #frame = 0;
  #colours = null;

  constructor(store, _parts, query) {
    this.store = store;
    this.#resource = query.get("resource") ?? "";
    this.#chosen = query.get("node") ?? "";
    this.notice = new Notice();
    this.select = h("select", { "aria-label": "Resource", onchange: () => this.#set({ resource: this.select.value }) });
    const order = h("select", { "aria-label": "Order", onchange: (event) => this.#set({ order: event.target.value }) },
      h("option", { value: "name" }, "by name"), h("option", { value: "use" }, "fullest first"));
    this.legend = h("div", { class: "legend steps" });
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "Nodes; arrows choose one", "aria-describedby": "node-told" });
    this.frame = h("div", { class: "heat" }, this.canvas);
    this.probe = h("i", { hidden: true });
    this.told = h("div", { id: "node-told", class: "card told", "aria-live": "polite" }, note("Choose a node."));
    this.element = h("div", { class: "fill" },
      h("div", { class: "bar-of-view" }, h("h1", {}, "Nodes"), this.select, order,
        filter("Filter by name", (text) => this.#set({ text })), this.legend, this.probe),
      this.notice.element, h("div", { class: "heat-and-node" }, this.frame, this.told));
    this.focus = this.canvas;
    this.canvas.addEventListener("click", (event) => this.#choose(this.#at(event)));
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.resize = new ResizeObserver(() => this.#draw());
    this.resize.observe(this.frame);
    this.update("nodeuses");
  }

  close() {
    this.resize.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  update(what) {
    if (what === "theme") {
      this.#colours = null;
      this.#draw();
    }
    if (what !== "nodeuses") return;
    const list = this.store.list("nodeuses");
    const names = new Set(list.items.flatMap((node) => Object.keys(node.allocatable ?? {})));
    const resources = byResource(names, (name) => name);
    if (!names.has(this.#resource)) this.#resource = resources.find((name) => /gpu/i.test(name)) ?? resources[0] ?? "";
    if ([...this.select.options].map((option) => option.value).join() !== resources.join()) {
      this.select.replaceChildren(...resources.map((name) => h("option", { value: name }, short(name))));
    }
    this.select.value = this.#resource;
    this.#arrange();
  }

  #set({ resource = this.#resource, order = this.#order, text = this.#text }) {
    [this.#resource, this.#order, this.#text] = [resource, order, text];
    this.#arrange();
  }

  #arrange() {
    const list = this.store.list("nodeuses");
    const found = list.items.filter((node) => node.metadata.name.toLowerCase().includes(this.#text));
    this.#cells = found.map((node) => ({ node, share: used(node, this.#resource) }));
    if (this.#order === "use") {
      this.#cells.sort((a, b) => (b.share || -1) - (a.share || -1) || (a.node.metadata.name < b.node.metadata.name ? -1 : 1));
    }
    this.notice.tell(list, found.length, "No node.");
    this.#count();
    this.#tell();
    this.#draw();
  }

  #count() {
    const counts = new Array(STEPS).fill(0);
    this.#cells.forEach((cell) => { if (step(cell.share) >= 0) counts[step(cell.share)] += 1; });
    const bound = (at) => `${Math.round((100 * (at - 1)) / (STEPS - 1))}–${Math.round((100 * at) / (STEPS - 1))} %`;
    this.legend.replaceChildren(...counts.map((count, at) =>
      h("span", {}, h("i", { class: `step-${at}` }), `${at ? bound(at) : "empty"}: ${count}`)));
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    const width = this.frame.clientWidth - 4;
    const count = Math.max(1, this.#cells.length);
    const fitting = Math.floor(Math.sqrt((width * Math.max(120, this.frame.clientHeight - 4)) / count));
    this.size = Math.min(LARGEST, Math.max(SMALLEST, fitting));
    this.across = Math.max(1, Math.floor(width / this.size));
    const height = Math.ceil(count / this.across) * this.size;
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: this.across * this.size * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${this.across * this.size}px`, height: `${height}px` });
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.#colours ??= this.#resolved();
    this.#cells.forEach((cell, at) => this.#square(pen, cell, at, this.#colours));
  }

  /** Return the theme's colours as a canvas takes them: it knows no variables. */
  #resolved() {
    const colour = (name) => {
      this.probe.style.color = `var(${name})`;
      return getComputedStyle(this.probe).color;
    };
    const steps = Array.from({ length: STEPS }, (_, at) => colour(`--heat-${at}`));
    return { steps, none: colour("--line"), line: colour("--bad"), mark: colour("--text") };
  }

  #square(pen, { node, share }, at, { steps, none, line, mark }) {
    const [x, y] = [(at % this.across) * this.size, Math.floor(at / this.across) * this.size];
    const side = this.size - GAP;
    pen.fillStyle = step(share) < 0 ? none : steps[step(share)];
    pen.fillRect(x + 1, y + 1, side, side);
    if (node.ready === false || node.unschedulable) {
      pen.strokeStyle = line;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.moveTo(x + 1, y + 1);
      pen.lineTo(x + 1 + side, y + 1 + side);
      if (node.ready === false) {
        pen.moveTo(x + 1 + side, y + 1);
        pen.lineTo(x + 1, y + 1 + side);
      }
      pen.stroke();
    }
    if (node.metadata.name !== this.#chosen) return;
    pen.strokeStyle = mark;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, side, side);
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top].map((part) => Math.floor(part / this.size));
    return x < this.across ? x + y * this.across : -1;
  }

  #hover(event) {
    const cell = this.#cells[this.#at(event)];
    const share = cell && Number.isFinite(cell.share) ? `: ${Math.round(100 * cell.share)} %` : "";
    this.canvas.title = cell ? `${cell.node.metadata.name}${share}` : "";
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.across, ArrowUp: -this.across, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const now = this.#cells.findIndex((cell) => cell.node.metadata.name === this.#chosen);
    this.#choose(Math.min(this.#cells.length - 1, Math.max(0, now < 0 ? 0 : now + steps[event.key])), { scroll: true });
  }

  #choose(at, { scroll = false } = {}) {
    const cell = this.#cells[at];
    if (!cell) return;
    this.#chosen = cell.node.metadata.name;
    if (scroll) {
      const top = Math.floor(at / this.across) * this.size;
      const { scrollTop, clientHeight } = this.frame;
      if (top < scrollTop || top + this.size > scrollTop + clientHeight) this.frame.scrollTop = top - clientHeight / 2;
    }
    this.#tell();
    this.#draw();
  }

  #tell() {
    const cell = this.#cells.find((each) => each.node.metadata.name === this.#chosen);
    if (!cell) return;
    const { node } = cell;
    const state = [node.ready === false ? "not ready" : "ready", node.unschedulable ? "unschedulable" : ""].filter(Boolean).join(", ");
    const names = byResource(Object.keys(node.allocatable ?? {}), (name) => name);
    const told = JSON.stringify(node);
    if (this.told.told === told) return;
    this.told.told = told;
    this.told.replaceChildren(
      h("h2", {}, node.metadata.name), h("p", { class: "quiet" }, `${state} · ${node.pods ?? 0} pods`),
      h("dl", {}, names.map((name) => [
        h("dt", {}, short(name)),
        h("dd", {}, `${show(name, amount(node.allocated?.[name] ?? "0"))} of ${show(name, amount(node.allocatable[name]))}`),
      ])));
  }
}
