"use strict";
/* Draws a report of `dlcpctl report`: sections of sentences, charts and tables. */

(() => {
  const COLOURS = ["blue", "orange", "purple", "green", "grey", "red"];
  const OTHERS = { gloo: "orange", bound: "text", waited: "red" };
  const report = JSON.parse(document.getElementById("report").textContent);
  const main = document.querySelector("main");

  const draw = {
    table: ({ header, rows }) => h("div", { class: "body" }, table(
      header.map((name, at) => [name.replaceAll("_", " "), kindOf(rows.map((row) => row[at]))]),
      rows.map((row) => row.map((value) => (typeof value === "number" ? Say.number(value, 4) : verdict(value)))))),

    ranges({ rows, unit, line }) {
      const show = (value) => (unit === "s" ? Say.seconds(value) : Say.number(value));
      return ranges(rows.map((row) => (
        { ...row, text: show(row.mid), spread: `${show(row.low)} to ${show(row.high)}` })), line);
    },

    lines({ title, labels, columns, unit, x }) {
      const place = h("div", { class: "chart" });
      requestAnimationFrame(() => lines(place, { title, unit, x, height: 220, series: labels.map((label, at) => (
        { label, colour: OTHERS[label] || COLOURS[at % COLOURS.length], dash: label === "bound" })) }).set(columns));
      return place;
    },

    timeline: ({ events }) => h("div", {}, Timeline.key(), ...Timeline.read(events).map(Timeline.drawn)),
  };

  function kindOf(values) {
    if (values.every((value) => value === null || typeof value === "number")) return "";
    return values.some((value) => String(value).length > 60) ? "long" : "left";
  }

  const BAD = ["BROKEN", "FALLS SHORT"];
  const verdict = (value) => (BAD.includes(value) ? h("span", { class: "bad" }, value)
    : value === "held" || value === "holds" ? h("span", { class: "good" }, value) : value);

  /** A sentence; bad news is highlighted. */
  function sentence(text) {
    const bad = /^(BROKEN|FALLS SHORT|WRONG)|no gain|ABOVE/.test(text);
    return h("li", { class: bad ? "bad" : "" }, text);
  }

  /** Keys and values of a map and of the maps in it. */
  function flat(map, before = "") {
    return Object.entries(map).flatMap(([key, value]) =>
      value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value, `${before}${key}.`)
        : [[`${before}${key}`, Array.isArray(value) ? value.join(", ") || null : value === "" ? null : String(value)]]);
  }

  document.querySelector("header span").textContent = report.made;
  for (const one of report.sections) {
    main.append(h("section", { class: "head" }, h("h2", {}, one.title), h("ul", {}, ...one.sentences.map(sentence))));
    for (const block of one.blocks) main.append(h("section", {}, h("h2", {}, block.title), draw[block.kind](block)));
    if (Object.keys(one.made).length)
      main.append(h("section", {}, h("details", {}, h("summary", {}, "How it was made"), h("div", { class: "body" }, table([["", "left"], ["", "long"]], flat(one.made))))));
  }
})();
