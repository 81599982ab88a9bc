/** Begins: the views behind the fragments, the header, the keys, the theme. */

import { h, link, note, route } from "./dom.js";
import { Search } from "./search.js";
import { get } from "./server.js";
import { Store } from "./store.js";
import { Events } from "./views/events.js";
import { History } from "./views/history.js";
import { Job } from "./views/job.js";
import { pending, running } from "./views/jobs.js";
import { Nodes } from "./views/nodes.js";
import { Queue, Queues } from "./views/queues.js";
import { Usage } from "./views/usage.js";
import { WhatIf } from "./views/whatif.js";

const TICK_MS = 10000;
const VIEWS = [
  ["queues", "Queues"], ["waiting", "Waiting"], ["running", "Running"], ["nodes", "Nodes"], ["history", "History"], ["usage", "Usage"],
  ["what-if", "What if"], ["events", "Events"],
];
const PLACES = {
  queues: (parts) => (parts.length ? new Queue(store, parts) : new Queues(store)),
  waiting: () => pending(store),
  running: () => running(store),
  nodes: (parts, query) => new Nodes(store, parts, query),
  jobs: (parts) => new Job(store, parts),
  "what-if": (parts, query) => new WhatIf(store, parts, query),
  history: () => new History(store),
  usage: () => new Usage(store),
  events: () => new Events(store),
};
const KEYS = [
  ["/", "search"], ["1 – 8", "the views, in their order"], ["↑ ↓", "move in a list, a map or what was found"],
  ["← →", "close and open a branch of the tree"], ["Enter", "open"], ["Esc", "leave the search, a dialog; else go back"],
  ["t", "light, dark or as the system has it"], ["?", "these keys"],
];
const THEMES = ["auto", "light", "dark"];

const at = (id) => document.getElementById(id);
const main = at("main");
let view = null;
/** Whether the page has opened the tree of queues without being asked to. */
let isFirst = false;

const store = new Store((what, detail) => {
  view?.update?.(what, detail);
  finder.update(what);
  if (what === "live") tellLive();
  if (what === "pendingjobs" || what === "runningjobs") offerScopes();
  if (what === "pendingjobs") narrow();
  if (what === "queuetrees") leaveQueues();
});
const finder = new Search(store, at("search"), at("found"));
store.own = "default";

function place() {
  const [path, words = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decoded);
  return { name, parts: parts.filter(Boolean), query: new URLSearchParams(words) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function go() {
  const { name, parts, query } = place();
  if (!Object.hasOwn(PLACES, name) || (name === "jobs" && parts.length !== 2)) {
    isFirst = true;
    return void location.replace(route(["queues"], { ns: query.get("ns") ?? "" }));
  }
  if (query.has("ns") && query.get("ns") !== store.scope) show(query.get("ns"));
  keepScope();
  view?.close?.();
  view = PLACES[name](parts, query);
  document.title = `${view.title} · Pumice`;
  main.replaceChildren(view.element);
  store.want(view.wants);
  for (const each of at("views").children) {
    if (each.dataset.view === name) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  if (document.activeElement?.id !== "search") view.focus?.focus({ preventScroll: true });
}

/** Show one namespace, or all for "". */
function show(scope) {
  store.follow(scope);
  offerScopes();
  keepScope();
}

/** Have the namespace in the address, so that a link shows the same to its reader. */
function keepScope() {
  const { name, parts, query } = place();
  if ((query.get("ns") ?? "") === store.scope) return;
  query.set("ns", store.scope);
  history.replaceState(null, "", route([name, ...parts], Object.fromEntries(query)));
}

function tellLive() {
  const element = at("live");
  element.textContent = store.isLive ? "live" : "every 5 s";
  element.classList.toggle("on", store.isLive);
}

/** A user who may not see all namespaces is shown his own. */
function narrow() {
  if (store.list("pendingjobs").error?.status !== 403 || store.scope) return;
  show(store.own);
}

/** The tree is of the whole cluster: a user who may not see it begins with jobs. */
function leaveQueues() {
  if (store.list("queuetrees").error?.status === 403 && isFirst && place().name === "queues") {
    isFirst = false;
    location.replace("#/waiting");
  }
}

function offerScopes() {
  const select = at("scope");
  const jobs = [...store.list("pendingjobs").items, ...store.list("runningjobs").items];
  const known = new Set([...select.options].map((option) => option.value).filter(Boolean));
  for (const name of [store.own, store.scope, ...jobs.map((job) => job.metadata.namespace)]) if (name) known.add(name);
  const names = ["", ...[...known].sort()];
  if (names.join() !== [...select.options].map((option) => option.value).join()) {
    select.replaceChildren(...names.map((name) => h("option", { value: name }, name || "all namespaces")));
  }
  select.value = store.scope;
}

function dress(theme) {
  document.documentElement.dataset.theme = theme;
  at("theme").textContent = theme;
  at("theme").setAttribute("aria-label", `Theme: ${theme}`);
  view?.update?.("theme");
}

function turnTheme() {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  dress(next);
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || at("keys").open) return;
  const { target } = event;
  if (target.closest("input, textarea, select")) return;
  const number = Number(event.key);
  if (event.key === "/") at("search").focus();
  else if (event.key === "?") at("keys").showModal();
  else if (event.key === "t") turnTheme();
  else if (event.key === "Escape") history.back();
  else if (number >= 1 && number <= VIEWS.length) location.hash = `#/${VIEWS[number - 1][0]}`;
  else return;
  event.preventDefault();
}

async function begin() {
  at("views").replaceChildren(...VIEWS.map(([name, title]) => {
    const each = link([name], title);
    each.dataset.view = name;
    return each;
  }));
  at("keys-list").replaceChildren(...KEYS.flatMap(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)]));
  const kept = localStorage.getItem("theme");
  dress(THEMES.includes(kept) ? kept : "auto");
  at("theme").addEventListener("click", turnTheme);
  at("help").addEventListener("click", () => at("keys").showModal());
  at("scope").addEventListener("change", (event) => show(event.target.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.update?.("theme"));
  document.addEventListener("keydown", press);
  addEventListener("hashchange", go);
  setInterval(() => document.hidden || view?.update?.("tick"), TICK_MS);
  go();
  try {
    const given = await get("web/context");
    store.own = given.namespace;
    at("live").title = given.server;
  } catch (error) {
    main.replaceChildren(note(error.message));
    return;
  }
  if (!store.isFollowing) store.follow(store.scope);
  // Whether all namespaces may be seen is learnt from the list that matters most.
  store.once("pendingjobs");
  offerScopes();
}

begin();
