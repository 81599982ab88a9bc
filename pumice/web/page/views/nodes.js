/** All nodes as a heat map, grouped by what they have: a colour says how full a node is. */

import { h, note } from "../dom.js";
import { amount, byResource, short, show } from "../quantity.js";
import { Notice, filter } from "./common.js";

const STEPS = 6;
const GAP = 2;
const [SMALLEST, LARGEST] = [8, 34];
/** So many nodes are drawn with their names, and the size of such a cell. */
const NAMED = 80;
const NAMED_CELL = { width: 132, height: 38 };
const HEADING = 24;
const used = (node, resource) => amount(node.allocated?.[resource] ?? "0") / amount(node.allocatable?.[resource]);

/** Return the step of a share: 0 for an empty node, the last for a full one, -1 where there is none. */
export function step(share) {
  if (!Number.isFinite(share)) return -1;
  return share <= 0 ? 0 : Math.min(STEPS - 1, 1 + Math.floor(Math.min(share, 0.9999) * (STEPS - 1)));
}

/** Return what a node has, in the words of a heading: nodes with the same words stand together. */
function shape(node) {
  const names = byResource(Object.keys(node.allocatable ?? {}), (name) => name).filter((name) => name !== "pods");
  const gpusFirst = names.toSorted((a, b) => /gpu|npu/i.test(b) - /gpu|npu/i.test(a)).slice(0, 3);
  return gpusFirst.map((name) => `${show(name, amount(node.allocatable[name]))} ${short(name)}`).join(" · ") || "nothing allocatable";
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
  #group = "shape";
  #frame = 0;
  #colours = null;

  constructor(store, _parts, query) {
    this.store = store;
    this.#resource = query.get("resource") ?? "";
    this.#chosen = query.get("node") ?? "";
    this.notice = new Notice();
    this.select = h("select", { "aria-label": "Resource", onchange: () => this.#set({ resource: this.select.value }) });
    this.groups = h("select", { "aria-label": "Groups", onchange: (event) => this.#set({ group: event.target.value }) },
      h("option", { value: "shape" }, "by capacity"), h("option", { value: "" }, "in one group"));
    const order = h("select", { "aria-label": "Order", onchange: (event) => this.#set({ order: event.target.value }) },
      h("option", { value: "name" }, "by name"), h("option", { value: "use" }, "fullest first"));
    this.legend = h("div", { class: "legend steps" });
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "Nodes; arrows choose one", "aria-describedby": "node-told" });
    this.frame = h("div", { class: "heat" }, this.canvas);
    this.probe = h("i", { hidden: true });
    this.told = h("div", { id: "node-told", class: "card told", "aria-live": "polite" }, note("Choose a node."));
    this.element = h("div", { class: "fill" },
      h("div", { class: "bar-of-view" }, h("h1", {}, "Nodes"), this.select, this.groups, order,
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

  #set({ resource = this.#resource, group = this.#group, order = this.#order, text = this.#text }) {
    [this.#resource, this.#group, this.#order, this.#text] = [resource, group, order, text];
    this.#arrange();
  }

  #arrange() {
    const list = this.store.list("nodeuses");
    const found = list.items.filter((node) => node.metadata.name.toLowerCase().includes(this.#text));
    this.#cells = found.map((node) => ({ node, share: used(node, this.#resource), group: this.#group ? shape(node) : "" }));
    const byName = (a, b) => (a.node.metadata.name < b.node.metadata.name ? -1 : 1);
    const byUse = (a, b) => (b.share || -1) - (a.share || -1) || byName(a, b);
    const within = this.#order === "use" ? byUse : byName;
    const sizes = new Map();
    for (const { group } of this.#cells) sizes.set(group, (sizes.get(group) ?? 0) + 1);
    const byGroup = (a, b) => sizes.get(b.group) - sizes.get(a.group) || (a.group < b.group ? -1 : 1);
    this.#cells.sort((a, b) => (a.group === b.group ? within(a, b) : byGroup(a, b)));
    this.notice.tell(list, found.length, "No node.");
    this.#count();
    this.#tell();
    this.#draw();
  }

  /** Write the legend: its counts add up to the number of nodes. */
  #count() {
    const counts = new Array(STEPS).fill(0);
    let without = 0;
    for (const { share } of this.#cells) {
      if (step(share) < 0) without += 1;
      else counts[step(share)] += 1;
    }
    const bound = (at) => `${Math.round((100 * (at - 1)) / (STEPS - 1))}–${Math.round((100 * at) / (STEPS - 1))} %`;
    const away = this.#cells.filter(({ node }) => node.ready === false || node.unschedulable).length;
    this.legend.replaceChildren(h("strong", {}, `${this.#cells.length} nodes:`),
      ...counts.map((count, at) => h("span", {}, h("i", { class: `step-${at}` }), `${at ? bound(at) : "empty"}: ${count}`)),
      without ? h("span", {}, h("i", { class: "step-none" }), `without ${short(this.#resource)}: ${without}`) : "",
      away ? h("span", {}, h("i", { class: "struck" }), `of these not ready or cordoned: ${away}`) : "");
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    const width = this.frame.clientWidth - 4;
    const height = this.#layOut(width);
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `12px ${getComputedStyle(this.frame).fontFamily}`;
    pen.textBaseline = "middle";
    this.#colours ??= this.#resolved();
    pen.fillStyle = this.#colours.quiet;
    for (const { group, y, count } of this.headings) pen.fillText(`${count} × ${group}`, 1, y + HEADING / 2, width);
    this.#cells.forEach((cell) => this.#square(pen, cell, this.#colours));
  }

  /** Give each cell its place, and each group its heading; return the height of the map. */
  #layOut(width) {
    const count = Math.max(1, this.#cells.length);
    const fitting = Math.floor(Math.sqrt((width * Math.max(120, this.frame.clientHeight - 4)) / count));
    const side = Math.min(LARGEST, Math.max(SMALLEST, fitting));
    this.isNamed = count <= NAMED;
    this.size = this.isNamed ? NAMED_CELL : { width: side, height: side };
    const across = Math.max(1, Math.floor(width / this.size.width));
    this.headings = [];
    let [top, column, group] = [0, 0, null];
    for (const cell of this.#cells) {
      if (cell.group !== group) {
        if (column) top += this.size.height;
        [column, group] = [0, cell.group];
        if (group) {
          this.headings.push({ group, y: top, count: 0 });
          top += HEADING;
        }
      }
      if (column === across) [column, top] = [0, top + this.size.height];
      Object.assign(cell, { x: column * this.size.width, y: top });
      if (group) this.headings.at(-1).count += 1;
      column += 1;
    }
    return top + this.size.height;
  }

  /** Return the theme's colours as a canvas takes them: it knows no variables. */
  #resolved() {
    const colour = (name) => {
      this.probe.style.color = `var(${name})`;
      return getComputedStyle(this.probe).color;
    };
    const steps = Array.from({ length: STEPS }, (_, at) => colour(`--heat-${at}`));
    const none = colour("--line");
    return { steps, none, line: colour("--bad"), mark: colour("--text"), quiet: colour("--quiet"), ink: [...steps, none].map(ink) };
  }

  #square(pen, { node, share, x, y }, { steps, none, line, mark, ink: inks }) {
    const [width, height] = [this.size.width - GAP, this.size.height - GAP];
    const at = step(share);
    pen.fillStyle = at < 0 ? none : steps[at];
    pen.fillRect(x + 1, y + 1, width, height);
    if (this.isNamed) {
      pen.fillStyle = inks.at(at);
      pen.fillText(node.metadata.name, x + 6, y + 12, width - 10);
      pen.fillText(at < 0 ? "–" : `${Math.round(100 * share)} %`, x + 6, y + 27, width - 10);
    }
    if (node.ready === false || node.unschedulable) {
      pen.strokeStyle = line;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.moveTo(x + 1, y + 1);
      pen.lineTo(x + 1 + width, y + 1 + height);
      if (node.ready === false) {
        pen.moveTo(x + 1 + width, y + 1);
        pen.lineTo(x + 1, y + 1 + height);
      }
      pen.stroke();
    }
    if (node.metadata.name !== this.#chosen) return;
    pen.strokeStyle = mark;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, width, height);
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return this.#cells.findIndex((cell) => x >= cell.x && x < cell.x + this.size.width && y >= cell.y && y < cell.y + this.size.height);
  }

  /** Return the cell above or below another one: the nearest of the next row. */
  #beside(at, sign) {
    const from = this.#cells[at];
    let best = at;
    this.#cells.forEach((cell, index) => {
      const down = sign * (cell.y - from.y);
      if (down <= 0) return;
      const [bestDown, bestAside] = best === at ? [Infinity, 0] : [sign * (this.#cells[best].y - from.y), Math.abs(this.#cells[best].x - from.x)];
      if (down < bestDown || (down === bestDown && Math.abs(cell.x - from.x) < bestAside)) best = index;
    });
    return best;
  }

  #hover(event) {
    const cell = this.#cells[this.#at(event)];
    const share = cell && Number.isFinite(cell.share) ? `: ${Math.round(100 * cell.share)} %` : "";
    this.canvas.title = cell ? `${cell.node.metadata.name}${share}` : "";
  }

  #key(event) {
    const now = this.#cells.findIndex((cell) => cell.node.metadata.name === this.#chosen);
    const steps = {
      ArrowRight: () => now + 1, ArrowLeft: () => now - 1, ArrowDown: () => this.#beside(now, 1),
      ArrowUp: () => this.#beside(now, -1), Home: () => 0, End: () => this.#cells.length - 1,
    };
    if (!Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    const next = now < 0 ? 0 : steps[event.key]();
    this.#choose(Math.min(this.#cells.length - 1, Math.max(0, next)), { scroll: true });
  }

  #choose(at, { scroll = false } = {}) {
    const cell = this.#cells[at];
    if (!cell) return;
    this.#chosen = cell.node.metadata.name;
    if (scroll) {
      const top = cell.y;
      const { scrollTop, clientHeight } = this.frame;
      if (top < scrollTop || top + this.size.height > scrollTop + clientHeight) this.frame.scrollTop = top - clientHeight / 2;
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

/** Return black or white, whichever can be read on a colour. */
function ink(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000" : "#fff";
}
