/** A list of any length of which only the rows in sight exist; arrows move in it, Enter opens. */

import { h } from "./dom.js";

const BEYOND = 6;
let lists = 0;

/** Rows of one height. `fill(item)` returns the cells of a row, `open(item)` follows Enter. */
export class VirtualList {
  #id = `list-${(lists += 1)}`;
  #items = [];
  #rows = new Map();
  #active = -1;
  #height = 44;

  constructor({ label, kind, heads, fill, open, key, role = "grid", row = () => ({}), move = null }) {
    Object.assign(this, { fill, open, key, row, move });
    this.head = h("div", { class: "row head", role: "row", "aria-rowindex": "1" },
      heads.map((head) => h("span", { role: "columnheader" }, head)));
    this.space = h("div", { class: "space", role: "presentation" });
    this.view = h("div", { class: "rows", role: "presentation" }, this.space);
    this.element = h("div", { class: `list ${kind}`, role, "aria-label": label, tabindex: "0" },
      this.head, this.view);
    this.view.addEventListener("scroll", () => this.#paint(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.resize = new ResizeObserver(() => this.#measure());
    this.resize.observe(this.view);
  }

  /** Show these items; the row that was chosen stays chosen. */
  set(items) {
    const chosen = this.#items[this.#active];
    this.#items = items;
    this.#active = chosen ? items.findIndex((item) => this.key(item) === this.key(chosen)) : -1;
    this.element.setAttribute("aria-rowcount", String(items.length + 1));
    this.space.style.height = `${items.length * this.#height}px`;
    this.#paint();
  }

  #measure() {
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 44;
    this.#height = height;
    this.space.style.height = `${this.#items.length * height}px`;
    this.#rows.forEach((row) => row.remove());
    this.#rows.clear();
    this.#paint();
  }

  #paint() {
    const { scrollTop, clientHeight } = this.view;
    const first = Math.max(0, Math.floor(scrollTop / this.#height) - BEYOND);
    const last = Math.min(this.#items.length, Math.ceil((scrollTop + clientHeight) / this.#height) + BEYOND);
    const wanted = new Map();
    for (let at = first; at < last; at += 1) wanted.set(this.key(this.#items[at]), at);
    for (const [key, row] of this.#rows) {
      if (wanted.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
    for (const [key, at] of wanted) this.#place(key, at);
    this.#point();
  }

  #place(key, at) {
    const item = this.#items[at];
    const told = JSON.stringify([item, this.row(item)]);
    let row = this.#rows.get(key);
    if (!row) {
      row = h("div", { class: "row", role: "row" });
      row.addEventListener("click", (event) => this.#click(event, key));
      this.#rows.set(key, row);
      this.space.append(row);
    }
    row.style.transform = `translateY(${at * this.#height}px)`;
    row.setAttribute("aria-rowindex", String(at + 2));
    row.id = `${this.#id}-${at}`;
    if (row.told === told) return;
    row.told = told;
    for (const [name, value] of Object.entries(this.row(item))) {
      if (value === null) row.removeAttribute(name);
      else row.setAttribute(name, String(value));
    }
    row.replaceChildren(...this.fill(item).map((cell) => h("span", { role: "gridcell" }, cell)));
  }

  /** Write the rows in sight anew: words such as "3 min" grow old. */
  refresh() {
    this.#rows.forEach((row) => {
      if (!row.contains(document.activeElement)) row.told = "";
    });
    this.#paint();
  }

  #click(event, key) {
    this.#active = this.#items.findIndex((item) => this.key(item) === key);
    this.#point();
    if (!event.target.closest("a, button") && !String(getSelection())) this.open?.(this.#items[this.#active]);
  }

  #point() {
    for (const row of this.space.children) row.classList.remove("active");
    const row = this.#active < 0 ? null : document.getElementById(`${this.#id}-${this.#active}`);
    row?.classList.add("active");
    if (row) this.element.setAttribute("aria-activedescendant", row.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    if (event.target !== this.element) return;
    const page = Math.max(1, Math.floor(this.view.clientHeight / this.#height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const item = this.#items[this.#active];
    if (event.key in steps) this.#go(this.#active + steps[event.key]);
    else if (event.key === "Enter" && item) this.open?.(item);
    else if (!(item && this.move?.(event.key, item))) return;
    event.preventDefault();
  }

  #go(at) {
    this.#active = Math.min(this.#items.length - 1, Math.max(0, at));
    const [top, bottom] = [this.#active * this.#height, (this.#active + 1) * this.#height];
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    else if (bottom > this.view.scrollTop + this.view.clientHeight) this.view.scrollTop = bottom - this.view.clientHeight;
    this.#paint();
  }
}
