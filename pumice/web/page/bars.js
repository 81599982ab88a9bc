/** Draws the share of a queue in one resource. */

import { h } from "./dom.js";
import { amount, show, short } from "./quantity.js";

/** Amounts that a bar is made of, and what it is marked with; styles have the same names. */
export const PARTS = ["allocated", "inqueue", "pending"];
export const MARKS = ["guarantee", "deserved", "capability"];
/** The words of this page for the amounts of the API: a job waits, is admitted, runs. */
export const WORDS = { allocated: "in use", inqueue: "admitted", pending: "waiting" };
/** What an amount in use is compared with, the first that a queue has. */
const WHOLES = { capability: "max", deserved: "deserved", total: "in the cluster" };

/** Return a bar: amounts in use, admitted and waiting, and marks for what the queue may have. */
export function bar(resource) {
  const value = (name) => amount(resource[name]) || 0;
  const named = (name) => Boolean(resource[name]) && value(name) > 0;
  const sum = PARTS.reduce((total, name) => total + value(name), 0);
  const marked = MARKS.some(named);
  const whole = Math.max(1e-9, sum, ...MARKS.map(value), marked ? 0 : value("total"));
  const share = (part) => `${(100 * part) / whole}%`;
  let left = 0;
  const parts = PARTS.map((name) => {
    const piece = h("i", { class: name, vars: { left: share(left), width: share(value(name)) } });
    left += value(name);
    return piece;
  });
  const marks = MARKS.filter(named).map((name) => h("b", { class: name, vars: { left: share(value(name)) } }));
  const of = Object.keys(WHOLES).find(named);
  const text = [show(resource.resource, value("allocated")), ...(of ? [` of ${show(resource.resource, value(of))} ${WHOLES[of]}`] : [])];
  return h("span", { class: `share${resource.overused ? " over" : ""}`, title: words(resource), role: "img", "aria-label": words(resource) },
    h("span", { class: "share-text", "aria-hidden": "true" }, h("span", {}, short(resource.resource)), h("span", {}, text)),
    h("span", { class: "bar", "aria-hidden": "true" }, parts, marks));
}

function words(resource) {
  const told = [...PARTS, ...MARKS].filter((name) => resource[name] && resource[name] !== "0");
  const each = told.map((name) => `${WORDS[name] ?? name} ${show(resource.resource, amount(resource[name]))}`);
  const borrows = resource.overused ? "; more than it deserves, which other queues can reclaim" : "";
  return `${resource.resource}: ${each.join(", ") || "nothing"}${borrows}`;
}
