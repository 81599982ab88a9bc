/** Draws lines and stacked areas over time as SVG: axes with few labels, a legend with the last values. */

import { h, svg } from "./dom.js";
import { clock, moment } from "./quantity.js";

const HEIGHT = 190;
/** Drawn as wide as it is shown, so that its text keeps its size on a phone. */
const width = () => Math.max(300, Math.min(640, innerWidth - 56));
const EDGE = { left: 58, right: 8, top: 8, bottom: 22 };
const LEVELS = 4;
const TIMES = 4;
/** Labels of days on a phone. */
const FEW = 3;

const ROUND = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((times) => times * 10 ** (power - 1))).flat();
/** Tops of an axis of seconds whose quarters are easy to read. */
export const ROUND_SECONDS = [4, 20, 60, 120, 240, 600, 1200, 2400, 3600, 7200, 14400, 28800, 57600, 86400, 172800, 345600, 604800];

/**
 * Return a chart. `series`: [{ name, values, isGuide }], a value per time and null where there is none; a
 * guide is there to compare with, and its last value is not told.
 * `show` returns a value as text; `most`: the top of the axis if it is known; `round`: possible tops;
 * `label` returns a time as text; `stacked`: areas, each on top of those before it.
 */
export function chart({ title, times, series, show, most = 0, round = ROUND, label = hour, stacked = false }) {
  const WIDTH = width();
  const drawn = stacked ? sums(series) : series.map(({ values }) => values);
  const highest = Math.max(most, ...drawn.flatMap((values) => values.filter(Number.isFinite)), 0);
  const top = round.find((each) => each >= highest) ?? highest;
  const [begin, end] = [moment(times[0]), moment(times.at(-1))];
  const x = (time) => EDGE.left + ((WIDTH - EDGE.left - EDGE.right) * (moment(time) - begin)) / Math.max(1, end - begin);
  const y = (value) => HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * value) / top;
  const lines = drawn.map((values, at) => (stacked
    ? svg("path", { class: `area-${at}`, d: area(times, values, drawn[at - 1], x, y) })
    : svg("path", { class: `line-${at}`, d: path(times, values, x, y) })));
  const shown = series.filter(({ isGuide }) => !isGuide);
  const said = shown.map(({ name, values }) => `${name} ${words(values.findLast(Number.isFinite), show)}`).join(", ");
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": `${title}; now ${said}` },
    levels(top, y, show, WIDTH - EDGE.right), labels(times, x, label, label === hour || WIDTH > 420 ? TIMES : FEW), lines);
  const legend = h("div", { class: "legend" }, series.map(({ name, values, isGuide }, at) =>
    h("span", {}, h("i", { class: `key-${at}` }), isGuide ? name : `${name}: ${words(values.findLast(Number.isFinite), show)}`)));
  return h("section", { class: "card" }, h("h2", {}, title), legend, drawing);
}

const hour = (time) => clock(time).slice(0, 5);

/** Return the values of each series on top of those before it. */
function sums(series) {
  let below = series[0]?.values.map(() => 0) ?? [];
  return series.map(({ values }) => (below = values.map((value, at) => below[at] + (value || 0))));
}

/** Return the path around the area between values and those below them. */
function area(times, values, below, x, y) {
  const points = (of) => times.map((time, at) => `${x(time).toFixed(1)} ${y(of ? of[at] : 0).toFixed(1)}`);
  return `M${points(values).join("L")}L${points(below).reverse().join("L")}Z`;
}

const words = (value, show) => (Number.isFinite(value) ? show(value) : "–");

/** Return the path through the values; it begins anew behind each gap, and a lone value is a dot. */
function path(times, values, x, y) {
  let drawn = "";
  let isOn = false;
  values.forEach((value, at) => {
    if (Number.isFinite(value)) {
      drawn += `${isOn ? "L" : "M"}${x(times[at]).toFixed(1)} ${y(value).toFixed(1)}`;
      if (!isOn && !Number.isFinite(values[at + 1])) drawn += "h2";
    }
    isOn = Number.isFinite(value);
  });
  return drawn;
}

function levels(top, y, show, right) {
  return Array.from({ length: LEVELS + 1 }, (_, at) => {
    const value = (top * at) / LEVELS;
    return [
      svg("line", { class: "grid", x1: EDGE.left, x2: right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, show(value)),
    ];
  });
}

function labels(times, x, label, count) {
  return Array.from({ length: count + 1 }, (_, at) => {
    const time = times[Math.round(((times.length - 1) * at) / count)];
    const anchor = at === 0 ? "start" : at === count ? "end" : "middle";
    return svg("text", { class: "tick", x: x(time), y: HEIGHT - 6, "text-anchor": anchor }, label(time));
  });
}
