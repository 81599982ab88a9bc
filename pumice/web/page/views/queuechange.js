/** The part of the form of what-ifs that is about a queue: which one, and what changes of it. */

import { h } from "../dom.js";
import { byResource, short } from "../quantity.js";
import { field } from "./field.js";

const BOUNDS = ["capability", "deserved", "guarantee"];
const WEIGHT = "weight";
const nameOf = (bound, resource) => `${bound}.${resource}`;

/** A choice of a queue, its weight, and a row of amounts for each resource; an empty field changes nothing. */
export class QueueChange {
  #queues = [];
  #rows = new Map();
  #inputs = new Map();

  /** Begin with the words of a link, before any queue is known. */
  constructor(query) {
    this.given = query;
    this.choice = h("select", { name: "change", onchange: () => this.#show() });
    const weight = field({ name: WEIGHT, label: "Weight", type: "number", min: "1", max: "65535", value: query.get(WEIGHT) ?? "" });
    this.#inputs.set(WEIGHT, weight.input);
    this.amounts = h("div", { class: "amounts" });
    this.parts = [weight.element, this.amounts];
    this.element = h("fieldset", {}, h("legend", {}, "A changed queue"), h("label", {}, "Queue that changes", this.choice), this.parts);
    const chosen = query.get("change") ?? "";
    this.#offer(chosen ? [chosen] : [], chosen);
    const named = [...query.keys()].filter((key) => BOUNDS.some((bound) => key.startsWith(`${bound}.`)));
    this.#add(named.map((key) => key.slice(key.indexOf(".") + 1)));
    this.#show();
  }

  /** Offer the queues of a tree, and fields for the resources that they have. What is written stays. */
  offer(queues) {
    this.#queues = queues;
    const chosen = this.choice.value;
    const names = queues.map((queue) => queue.metadata.name);
    this.#offer(!chosen || names.includes(chosen) ? names : [chosen, ...names], chosen);
    this.#add(queues.flatMap((queue) => (queue.resources ?? []).map((each) => each.resource)));
    this.#show();
  }

  #offer(names, chosen) {
    const wanted = ["", ...names];
    // A list that is open in the browser is not made anew under the user's hand.
    if (wanted.join() === [...this.choice.options].map((option) => option.value).join()) return;
    this.choice.replaceChildren(...wanted.map((name) => h("option", { value: name }, name || "none")));
    this.choice.value = chosen;
  }

  #add(resources) {
    const fresh = [...new Set(resources)].filter((resource) => resource && !this.#rows.has(resource));
    for (const resource of fresh) this.#rows.set(resource, BOUNDS.map((bound) => this.#amount(bound, resource)));
    if (!fresh.length) return;
    const order = byResource(this.#rows.keys(), (resource) => resource).map((resource) => this.#rows.get(resource));
    // A row that moves would lose the focus of a field in it.
    const focused = document.activeElement;
    this.amounts.replaceChildren(...order.flat());
    if (this.amounts.contains(focused)) focused.focus();
  }

  #amount(bound, resource) {
    const name = nameOf(bound, resource);
    const { input, element } = field({ name, label: `${short(resource)}: ${bound}`, type: "amount", title: resource, value: this.given.get(name) ?? "" });
    this.#inputs.set(name, input);
    return element;
  }

  /** Show the fields for the queue that is chosen, and in each of them what it has now. */
  #show() {
    const queue = this.#queues.find((each) => each.metadata.name === this.choice.value);
    const resources = new Map((queue?.resources ?? []).map((each) => [each.resource, each]));
    for (const part of this.parts) part.hidden = !this.choice.value;
    for (const [name, input] of this.#inputs) {
      input.disabled = !this.choice.value; // what is not shown is not checked
      const [bound, resource] = [name.slice(0, name.indexOf(".")), name.slice(name.indexOf(".") + 1)];
      const now = name === WEIGHT ? queue?.weight : resources.get(resource)?.[bound];
      input.placeholder = now ? `now ${now}` : queue ? "none now" : "";
    }
  }

  #written() {
    const all = [...this.#inputs].map(([name, input]) => [name, input.value.trim()]);
    return new Map(this.choice.value ? all.filter(([, value]) => value) : []);
  }

  /** Return the words of a link to this. */
  words() {
    const change = this.choice.value;
    return change ? { change, ...Object.fromEntries(this.#written()) } : {};
  }

  /** Return the change as the API takes it, null when no queue is chosen. */
  spec() {
    if (!this.choice.value) return null;
    const written = this.#written();
    const amounts = (bound) => Object.fromEntries([...this.#rows.keys()]
      .map((resource) => [resource, written.get(nameOf(bound, resource))]).filter(([, value]) => value));
    const weight = written.get(WEIGHT);
    return {
      name: this.choice.value,
      ...(weight ? { weight: Number(weight) } : {}),
      ...Object.fromEntries(BOUNDS.map((bound) => [bound, amounts(bound)])),
    };
  }
}
