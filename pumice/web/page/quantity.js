/** Reads and writes quantities of Kubernetes, durations and moments. */

const POWERS = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};
const FORM = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?i?)$/;
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const FEW = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** Return the number that a quantity stands for, NaN for no quantity. */
export function amount(text) {
  const found = FORM.exec(text ?? "");
  const power = found ? POWERS[found[2]] : undefined;
  return power === undefined ? NaN : Number(found[1]) * power;
}

/** Return an amount of a resource for a person. */
export function show(resource, value) {
  if (Number.isNaN(value)) return "–";
  if (!isBytes(resource)) return FEW.format(value);
  let step = 0;
  let rest = value;
  while (rest >= 1024 && step < BINARY.length - 1) {
    rest /= 1024;
    step += 1;
  }
  return `${FEW.format(rest)} ${BINARY[step]}B`;
}

/** Return amounts of several resources as one text. */
export function showAll(amounts) {
  return byResource(Object.entries(amounts ?? {}), ([name]) => name)
    .map(([name, text]) => `${short(name)} ${show(name, amount(text))}`)
    .join(", ");
}

const isBytes = (resource) => /memory|storage/.test(resource);

/** Return a resource's name without its domain. */
export const short = (resource) => resource.slice(resource.lastIndexOf("/") + 1);

const rank = (name) => ["cpu", "memory"].indexOf(name) + 1 || (/gpu/i.test(name) ? 3 : name === "pods" ? 5 : 4);

/** Return things sorted by the resource that they are about: CPU, memory, GPUs, the rest. */
export function byResource(things, name) {
  return [...things].sort((a, b) => rank(name(a)) - rank(name(b)) || (name(a) < name(b) ? -1 : 1));
}

/** Return a duration in its two largest units. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 1) return `${FEW.format(Math.max(0, seconds))} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => whole >= size);
  const words = [];
  let rest = whole;
  for (const [size, unit] of units.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    if (count) words.push(`${count} ${unit}`);
    rest -= count * size;
  }
  return words.join(" ");
}

/** Return Unix milliseconds of a time, NaN for none. */
export const moment = (time) => (time ? Date.parse(time) : NaN);

/** Return how long ago a time is. */
export function since(time, now = Date.now()) {
  const then = moment(time);
  return Number.isNaN(then) ? "–" : duration((now - then) / 1000);
}

/** Return how far a time lies ahead. */
export function until(time, now = Date.now()) {
  const then = moment(time);
  if (Number.isNaN(then)) return "–";
  return then <= now ? "now" : `in ${duration((then - now) / 1000)}`;
}

/** Return the time of day, with the day when it is another one. */
export function clock(time) {
  const then = moment(time);
  if (Number.isNaN(then)) return "–";
  const near = Math.abs(Date.now() - then) < 43200000;
  return (near ? CLOCK : DAY).format(then);
}

const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** Return the day (UTC) of a time. */
export const day = (time) => DATE.format(moment(time));

/** What the durations behind a forecast come from, the best source first; as in the terminal. */
const BASES = {
  annotation: "by what the jobs state",
  deadline: "by the deadlines of the jobs",
  history: "by how long similar jobs ran",
  others: "a guess: by how long other jobs ran here",
  default: "a guess: no similar job has ended here",
};

/** Return in words where the durations behind a forecast come from, the weakest source alone. */
export function basis(text) {
  if (!text) return "";
  const [names, ...left] = text.split("; ");
  const known = names.split(", ").filter((name) => Object.hasOwn(BASES, name));
  const weakest = Object.keys(BASES).findLast((name) => known.includes(name));
  return [weakest ? BASES[weakest] : names, ...left].join("; ");
}

/** Return how far a time of a forecast lies ahead, with "~" where durations are guessed. */
export function forecast(start, time, now = Date.now()) {
  const guessed = start?.basis?.split("; ")[0].split(", ").some((basis) => basis === "others" || basis === "default");
  return guessed ? until(time, now).replace("in ", "in ~") : until(time, now);
}

/** Return when a job is expected to start, as one text. */
export function expected(start, now = Date.now()) {
  if (!start) return "–";
  if (!start.median) return start.unknown || "–";
  const late = start.latest ? `${forecast(start, start.latest, now)} with 90 %` : start.unknown;
  return `${forecast(start, start.median, now)}${late ? `; ${late}` : ""}`;
}
