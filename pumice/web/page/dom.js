/** Makes elements, from text alone: no name that comes from the cluster is ever read as markup. */

const ABSENT = new Set([null, undefined, false]);

/** Return an element; attributes `on…` are listeners, `vars` are CSS properties. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (ABSENT.has(value)) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") Object.entries(value).forEach((pair) => element.style.setProperty(...pair));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => !ABSENT.has(child)).map(node));
  return element;
}

const node = (child) => (child instanceof Node ? child : String(child));

/** Return a link to a view; each part of its path is quoted. */
export function link(parts, ...children) {
  return h("a", { href: route(parts) }, ...children);
}

/** Return the fragment that names a view, with its query. */
export function route(parts, query = {}) {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  const path = parts.map(encodeURIComponent).join("/");
  return `#/${path}${words.size ? `?${words}` : ""}`;
}

/** Return what users call a job: `rayjob/train`, or its name if a Job of Volcano made it. */
export function title(job) {
  const { name } = job.metadata ?? job;
  if (name !== job.podGroup || !job.owner || job.owner.kind === "PodGroup") return name;
  return `${job.owner.kind.toLowerCase()}/${job.owner.name}`;
}

/** Return what users call a job as a link, with its namespace before it. */
export function jobLink(job) {
  const { namespace = "", name } = job.metadata ?? job;
  return link(["jobs", namespace, name], h("span", { class: "quiet" }, `${namespace}/`), title(job));
}

/** Return a note in the place of a list: why there is nothing to see. */
export function note(...children) {
  return h("p", { class: "note" }, ...children);
}

/** Return a table with a caption for readers that see none. */
export function table(caption, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

/** Return a section with a heading, or null when it would be empty. */
export function section(title, ...children) {
  const shown = children.flat().filter((child) => !ABSENT.has(child));
  return shown.length ? h("section", { class: "card" }, h("h2", {}, title), ...shown) : null;
}

/** Return an element of an SVG drawing. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children.flat(Infinity).filter((child) => !ABSENT.has(child)).map(node));
  return element;
}
