/** A form that asks what would be: a job, another queue, more nodes, fewer nodes. Nothing touches the cluster. */

import { h, jobLink, note, route, section, table } from "../dom.js";
import { duration, expected } from "../quantity.js";
import { field } from "./field.js";
import { QueueChange } from "./queuechange.js";
import { path, post } from "../server.js";
import { shortage } from "./common.js";

const FIELDS = [
  { name: "name", label: "Name", value: "imagined" },
  { name: "namespace", label: "Namespace", value: "" },
  { name: "queue", label: "Queue", value: "default" },
  { name: "pods", label: "Pods", value: "1", type: "number" },
  { name: "min", label: "At least, as a gang", value: "", type: "number" },
  { name: "cpu", label: "CPU per pod", value: "1", type: "amount" },
  { name: "memory", label: "Memory per pod", value: "1Gi", type: "amount" },
  { name: "gpus", label: "GPUs per pod", value: "0", type: "number" },
  { name: "gpu", label: "Resource of the GPUs", value: "nvidia.com/gpu" },
];
const CLUSTER = [
  { name: "add", label: "Nodes to add", value: "0", type: "number" },
  { name: "like", label: "Like the node", value: "" },
  { name: "drain", label: "Nodes to drain, by comma", value: "" },
];

/** The form and the answer. */
export class WhatIf {
  title = "What if";
  wants = ["queuetrees"];

  constructor(store, _parts, query) {
    this.store = store;
    this.inputs = new Map();
    this.queues = h("datalist", { id: "queue-names" });
    this.change = new QueueChange(query);
    const job = this.#group("A job", FIELDS, query);
    const nodes = this.#group("Other nodes", CLUSTER, query);
    this.text = h("textarea", { rows: "12", spellcheck: "false", "aria-label": "A Job as YAML or JSON",
      placeholder: "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n…" });
    this.button = h("button", { type: "submit", class: "main" }, "Ask");
    this.answer = h("div", { class: "cards", "aria-live": "polite" });
    const form = h("form", { onsubmit: (event) => this.#ask(event) }, job, this.change.element, nodes,
      h("details", {}, h("summary", {}, "Or paste a Job, YAML or JSON; it takes the place of the fields above"), this.text), this.button);
    this.element = h("div", { class: "page" }, h("h1", {}, "What if"),
      note("The scheduler's engine decides on a copy of the cluster. Nothing is created."), this.queues,
      h("div", { class: "asking" }, form, this.answer));
    this.focus = this.inputs.get("pods");
    this.update("queuetrees");
  }

  update(what) {
    if (what !== "queuetrees") return;
    const queues = this.store.list("queuetrees").items;
    this.queues.replaceChildren(...queues.map((queue) => h("option", { value: queue.metadata.name })));
    this.change.offer(queues);
  }

  #group(title, fields, query) {
    return h("fieldset", {}, h("legend", {}, title), fields.map(({ name, label, value, type = "text" }) => {
      const given = query.get(name) ?? (name === "namespace" ? this.store.scope || this.store.own : value);
      const made = field({ name, label, type, value: given, min: type === "number" ? "0" : null, list: name === "queue" ? "queue-names" : null });
      this.inputs.set(name, made.input);
      return made.element;
    }));
  }

  #value(name) {
    return this.inputs.get(name).value.trim();
  }

  async #ask(event) {
    event.preventDefault();
    this.#remember();
    this.button.disabled = true;
    try {
      const spec = await this.#spec();
      const namespace = spec.job?.metadata?.namespace || this.#value("namespace") || "default";
      const body = { apiVersion: "visibility.pumice.dev/v1alpha1", kind: "WhatIf", metadata: { namespace }, spec };
      // A field that is misspelt would be answered about as if it were not there.
      const { status } = await post(`${path("whatifs", namespace)}?fieldValidation=Strict`, body);
      this.answer.replaceChildren(...answered(status ?? {}, spec).filter(Boolean));
    } catch (error) {
      this.answer.replaceChildren(h("p", { class: "note bad" }, error.message));
    }
    this.button.disabled = false;
    // On a phone the answer is below the form: show it without a search for it.
    this.answer.scrollIntoView({ block: "nearest" });
    if (this.answer.getBoundingClientRect().top > innerHeight / 2) this.answer.scrollIntoView({ block: "start" });
  }

  /** Put the fields into the address, so that the question can be shared. */
  #remember() {
    const changed = [...FIELDS, ...CLUSTER].filter(({ name, value }) => this.#value(name) !== value);
    const words = { ...Object.fromEntries(changed.map(({ name }) => [name, this.#value(name)])), ...this.change.words() };
    history.replaceState(null, "", route(["what-if"], words));
  }

  async #spec() {
    const pasted = this.text.value.trim();
    const job = pasted ? await post("web/yaml", pasted, "application/yaml") : this.#job();
    const count = Number(this.#value("add"));
    const changeQueue = this.change.spec();
    const drained = this.#value("drain").split(",").map((name) => name.trim()).filter(Boolean);
    return {
      ...(job ? { job } : {}),
      ...(changeQueue ? { changeQueue } : {}),
      ...(count ? { addNodes: [{ count, like: this.#value("like") }] } : {}),
      ...(drained.length ? { drainNodes: drained } : {}),
    };
  }

  /** Return the Job that the fields describe, null for no pods: then only the queue and nodes change. */
  #job() {
    const replicas = Number(this.#value("pods"));
    if (!replicas) return null;
    const requests = { cpu: this.#value("cpu"), memory: this.#value("memory") };
    const gpus = Number(this.#value("gpus"));
    if (gpus) requests[this.#value("gpu")] = String(gpus);
    const resources = { requests, limits: gpus ? { [this.#value("gpu")]: String(gpus) } : {} };
    const container = { name: "main", image: "imagined", resources };
    const template = { spec: { containers: [container], restartPolicy: "Never" } };
    return {
      apiVersion: "batch.volcano.sh/v1alpha1", kind: "Job",
      metadata: { name: this.#value("name"), namespace: this.#value("namespace") || "default" },
      spec: {
        schedulerName: "volcano", queue: this.#value("queue"), minAvailable: Number(this.#value("min")) || replicas,
        tasks: [{ name: "main", replicas, template }],
      },
    };
  }
}

function answered(said, asked) {
  const word = said.startsNow ? "It starts now." : said.gate ? `It waits at the gate “${said.gate}”.` : changed(asked);
  const gone = (pod) => [`${pod.namespace}/${pod.name}`, pod.job ?? "", pod.queue ?? ""];
  const late = (delay) => [jobLink(delay.job), delay.queue ?? "", delay.seconds == null ? "not known" : duration(delay.seconds)];
  const lost = (each) => [jobLink(each.job), each.queue ?? "", each.pods, each.stops ? "fewer than it needs" : "enough to go on"];
  const left = (name) => (said.remaining?.[name] ? h("p", { class: "quiet" }, `and ${said.remaining[name]} more`) : null);
  const rows = (name, title, heads, row) =>
    section(title, said[name]?.length ? table(title, heads, said[name].map(row)) : null, left(name));
  return [
    section("Answer", h("p", { class: `verdict ${said.startsNow ? "good" : ""}` }, word),
      said.message ? h("p", {}, said.message) : null,
      said.shortages?.length ? h("ul", {}, said.shortages.map((each) => h("li", {}, shortage(each)))) : null,
      said.expectedStart && !said.startsNow ? h("p", {}, `Expected start: ${expected(said.expectedStart)}`) : null,
      said.drainedPods ? h("p", {}, drained(said)) : null,
      said.hidden ? h("p", { class: "quiet" }, `${said.hidden} more in namespaces that you may not see`) : null,
      said.decidedInMs ? h("p", { class: "quiet" }, `decided in ${Math.round(said.decidedInMs)} ms`) : null),
    rows("placements", "Where", ["Task", "Node", "Pods"], (each) => [each.task, each.node, each.pods]),
    rows("losing", "Lose pods", ["Job", "Queue", "Pods without a place", "Left"], lost),
    rows("evictions", "Evicted", ["Pod", "Job", "Queue"], gone),
    rows("delays", "Delayed", ["Job", "Queue", "By"], late),
    rows("starting", "Would start", ["Job"], (job) => [jobLink(job)]),
  ];
}

const pods = (count) => `${count} ${count === 1 ? "pod" : "pods"}`;

/** Return what a question without a job is about. */
function changed(asked) {
  const nodes = asked.addNodes || asked.drainNodes;
  if (!asked.changeQueue) return "The nodes change.";
  return `The queue ${asked.changeQueue.name}${nodes ? " and the nodes change." : " changes."}`;
}

/** Return what becomes of the pods on drained nodes. */
function drained(said) {
  const { drainedPods: moving, unplacedPods: left = 0 } = said;
  const one = moving === 1;
  const moves = `${pods(moving)} ${one ? "moves" : "move"}`;
  if (!left) return `${moves}; ${one ? "it finds a place" : "all find a place"}.`;
  if (left === moving) return `${moves}; ${one ? "it finds no place" : "none finds a place"}.`;
  return `${moves}; ${left} ${left === 1 ? "finds" : "find"} no place.`;
}
