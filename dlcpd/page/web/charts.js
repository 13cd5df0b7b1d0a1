"use strict";
/* Drawing for the status page and reports. Received text becomes text nodes, never HTML. */

/** An element. `more`: class, title, style (a map of properties), and on (a map of handlers). */
function h(tag, more, ...children) {
  const made = document.createElement(tag);
  const { class: name, title, style, on, ...rest } = more || {};
  if (name) made.className = name;
  if (title) made.title = title;
  for (const [key, value] of Object.entries(style || {})) made.style.setProperty(key, value);
  for (const [key, value] of Object.entries(on || {})) made.addEventListener(key, value);
  for (const [key, value] of Object.entries(rest)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/**
 * A table. `columns`: [head, class]; rows: lists of text, numbers, elements or null (unknown).
 * look.css draws its rows as cards in a narrow window, where each cell has the name of its column.
 */
function table(columns, rows) {
  const cell = (tag, value, kind, more) =>
    h(tag, { class: kind, title: kind === "name" && typeof value === "string" ? value : "", ...more },
      value === null || value === undefined ? "-" : value instanceof Node ? value : String(value));
  return h("table", { class: "cards" },
    h("thead", {}, h("tr", {}, ...columns.map(([head, kind]) => cell("th", head, kind)))),
    h("tbody", {}, ...rows.map((row) =>
      h("tr", {}, ...row.map((value, at) => cell("td", value, columns[at][1], { "data-column": columns[at][0] }))))));
}

const Say = {
  percent(share) {
    if (share === null || share === undefined || !Number.isFinite(share)) return "-";
    const value = 100 * share;
    if (value === 0) return "0 %";
    return value < 0.01 ? "<0.01 %" : `${value.toFixed(value < 10 ? 2 : 1)} %`;
  },
  seconds(value) {
    if (value === null || value === undefined) return "-";
    if (value === 0) return "0";
    if (value < 1e-3) return `${(value * 1e6).toFixed(0)} us`;
    if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 2 : 1)} ms`;
    if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
    return value < 7200 ? `${(value / 60).toFixed(0)} min` : `${(value / 3600).toFixed(1)} h`;
  },
  bytes(value) {
    if (value === null || value === undefined) return "-";
    for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
      if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
    return `${value} B`;
  },
  number(value, digits = 3) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "-";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
  },
};

/** A colour of look.css, for a canvas. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * Lines over x. series: [{label, colour, dash}]; `unit` follows values; `time`: x is seconds
 * of the epoch. `set([xs, ys, ...])` draws; null is a gap. `title`: what the chart shows, for
 * screen readers, which get it with the range and the newest value of each line.
 */
const WHOLE = [1, 2, 5].flatMap((digit) => Array.from({ length: 9 }, (_, zeros) => digit * 10 ** zeros)).sort((a, b) => a - b);

function lines(place, { title, series, unit = "", time = false, x = "", height = 170 }) {
  let plot = null;
  let data = [[], ...series.map(() => [])];
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
  const show = (value) => (value === null || value === undefined ? "-" : `${Say.number(value)}${unit}`);
  function made() {
    const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    return new uPlot({
      width: Math.max(place.clientWidth, 200), height, scales: {
        x: { time },
        y: { range: (_, low, high) => (low === null ? [0, 1] : [Math.min(0, low), high > 0 ? high * 1.08 : 1]) } },
      axes: [
        { ...axis, size: 26, label: x || undefined, labelSize: 15, labelFont: "11px system-ui", space: 70,
          ...(time ? { values: (_, ticks) => ticks.map(clock) } : { incrs: WHOLE }) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => show(tick)) }],
      cursor: { y: false, points: { size: 6 } },
      series: [{ label: time ? "at" : x || "x", value: (_, value) => (value === null ? "-" : time ? clock(value) : Say.number(value)) }, ...series.map((one) => ({
        label: one.label, stroke: colour(one.colour), width: 1.6, dash: one.dash ? [6, 4] : undefined,
        points: { show: (_, index) => data[index].filter((y) => y !== null).length < 3, size: 5 },
        value: (_, value) => show(value) }))],
    }, data, place);
  }
  function tell() {
    const said = series.map((one, at) => {
      const known = data[at + 1].filter((y) => y !== null && y !== undefined);
      if (!known.length) return `${one.label} unknown`;
      const least = known.reduce((a, b) => Math.min(a, b)), most = known.reduce((a, b) => Math.max(a, b));
      return `${one.label} from ${show(least)} to ${show(most)}, at last ${show(known.at(-1))}`;
    });
    const canvas = plot.root.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title}: ${said.join("; ")}`);
  }
  function anew() {
    if (plot) plot.destroy();
    plot = made();
    tell();
    requestAnimationFrame(last);
  }
  // Without a pointer on the chart, the legend shows the newest values.
  const last = () => { if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: data[0].length - 1 }); };
  anew();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
  new ResizeObserver(() => {
    const width = Math.max(place.clientWidth, 200);
    if (width !== plot.width) plot.setSize({ width, height }), requestAnimationFrame(last);
  }).observe(place);
  return { set(values) { data = values; plot.setData(data); tell(); requestAnimationFrame(last); } };
}

/** Ranges with a mark: rows of {label, low, mid, high, colour, text, spread}. All from 0 on one scale. */
function ranges(rows, line) {
  const most = Math.max(...rows.map((row) => row.high), line || 0, 1e-12);
  const at = (value) => `${(100 * value) / most}%`;
  return h("div", { class: "ranges" }, ...rows.flatMap((row) => [
    h("div", { class: "label", title: row.label }, row.label),
    h("div", { class: "track", role: "img", "aria-label": row.spread },
      h("i", { style: { left: at(row.low), width: at(row.high - row.low), background: `var(--${row.colour})` } }),
      line ? h("i", { class: "edge", style: { left: at(line) } }) : null,
      h("b", { style: { left: at(row.mid) } })),
    h("span", {}, row.text)]));
}

/** A share 0..1 as a bar. */
function bar(share) {
  const shown = Math.min(Math.max(share, 0), 1);
  return h("span", { class: "bar" }, h("i", { class: share >= 0.9 ? "full" : "", style: { width: `${100 * shown}%` } }));
}
