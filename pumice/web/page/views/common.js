/** Parts that several views share: why a list is empty, a filter, cells of jobs. */

import { h, jobLink, link, route, title } from "../dom.js";
import { VirtualList } from "../list.js";
import { amount, basis, expected, forecast, show, showAll, short, since, until } from "../quantity.js";

/** A line that says that a list is on its way, is empty, or is refused; hidden else. */
export class Notice {
  element = h("p", { class: "note", role: "status", hidden: true });

  /** Say how it stands with a list of which `shown` items are in sight. */
  tell(list, shown, empty) {
    const words = list.error ? list.error.message : !list.loaded ? "Loading …" : shown ? "" : empty;
    this.element.classList.toggle("bad", Boolean(list.error));
    if (this.element.textContent !== words) this.element.textContent = words;
    this.element.hidden = !words;
  }
}

/** Return an input that calls `change` with what is typed, in lower case. */
export function filter(label, change) {
  return h("input", { type: "search", placeholder: label, "aria-label": label, autocomplete: "off",
    spellcheck: "false", oninput: (event) => change(event.target.value.toLowerCase()) });
}

/** Return whether one of a job's words contains a text. */
export const fits = (job, text) =>
  !text || [job.metadata.namespace, job.metadata.name, title(job), job.queue, job.gate, job.message]
    .some((word) => word?.toLowerCase().includes(text));

/** Return the key of a job in a list. */
const keyOf = (object) => `${object.metadata.namespace ?? ""}/${object.metadata.name}`;

/** Go to the page of a job. */
const openJob = (job) => {
  location.hash = route(["jobs", job.metadata.namespace, job.metadata.name]);
};

/** Return amounts that are short as one text. */
export const shortage = (short_) =>
  `${short(short_.resource)}: ${show(short_.resource, amount(short_.requested))} wanted, ${show(short_.resource, amount(short_.free))} free`;

/** Return why a job waits in the few words that a row has room for; its title has the whole message. */
const briefly = (job) => job.shortages?.map(shortage).join("; ") || job.message || "–";

const badge = (text) => h("span", { class: "badge", "data-gate": text }, text || "–");
const queueLink = (name) => link(["queues", name], name);
const plain = (kind, text, title = text) => h("span", { class: kind, title }, text);

const startOf = (start) => (start?.median ? forecast(start, start.median) : start?.unknown || "–");
const whenTitle = (start) => [expected(start), basis(start?.basis)].filter(Boolean).join("; ");

/** Return a list of jobs that wait. */
export const pendingList = (label) => new VirtualList({
  label, kind: "pending", key: keyOf, open: openJob,
  heads: ["#", "Job", "Queue", "Gate", "Why", "Waits", "Expected start", "90 % by"],
  fill: (job) => [
    job.position || "–", jobLink(job), queueLink(job.queue), badge(job.gate),
    plain("why", briefly(job), job.message || briefly(job)),
    since(job.waitingSince), plain("start", startOf(job.expectedStart), whenTitle(job.expectedStart)),
    forecast(job.expectedStart, job.expectedStart?.latest),
  ],
});

/** Return a list of gangs that run. */
export const runningList = (label) => new VirtualList({
  label, kind: "running", key: keyOf, open: openJob,
  heads: ["Job", "Queue", "Pods", "Nodes", "Holds", "Runs", "Expected end"],
  fill: (job) => [
    jobLink(job), queueLink(job.queue), `${job.pods ?? 0} (min ${job.minAvailable ?? 0})`, job.nodes ?? 0,
    plain("why", showAll(job.allocated) || "–"), since(job.runningSince), until(job.expectedEnd),
  ],
});
