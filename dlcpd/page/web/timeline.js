"use strict";
/* Draws a file of `dlcpctl trace` (docs/trace.md): the phases of each operation. */

const Timeline = (() => {
  const PHASES = [
    ["queued", "queued"], ["waits for ranks", "waits"], ["exchange", "exchange"], ["returns", "returns"]];
  const LANES = 32; // operations that are drawn; a large model has hundreds of buckets

  /** By process (a rank): title, steps, operations with their phases, reductions. Microseconds. */
  function read(events) {
    const processes = new Map();
    const of = (pid) => {
      if (!processes.has(pid)) processes.set(pid, { title: "", steps: [], operations: [], reductions: [] });
      return processes.get(pid);
    };
    const open = new Map();
    for (const event of events) {
      const to = of(event.pid);
      if (event.ph === "M" && event.name === "process_name") to.title = event.args.name;
      else if (event.ph === "X" && event.cat === "step") to.steps.push({ name: event.name, start: event.ts, end: event.ts + event.dur });
      else if (event.ph === "X" && event.cat === "reduction") to.reductions.push({ name: event.name, start: event.ts, end: event.ts + event.dur });
      else if (event.cat === "operation" && (event.ph === "b" || event.ph === "e")) nest(open, to, event);
    }
    return [...processes.values()].filter((one) => one.operations.length);
  }

  /** The outermost span of an id is the operation, the spans in it are its phases. */
  function nest(open, to, event) {
    const key = `${event.pid} ${event.id}`;
    const inside = open.get(key);
    if (event.ph === "b" && "collective" in (event.args || {})) {
      const made = { name: event.name || event.args.collective, start: event.ts, end: event.ts, told: event.args, phases: [] };
      to.operations.push(made);
      open.set(key, { made, began: new Map() });
    } else if (inside && event.ph === "b") inside.began.set(event.name, event.ts);
    else if (inside && inside.began.has(event.name)) {
      inside.made.phases.push({ name: event.name, start: inside.began.get(event.name), end: event.ts });
      inside.began.delete(event.name);
    } else if (inside) inside.made.end = event.ts;
  }

  /** Seconds in each phase, summed over operations. */
  function sums(operations) {
    const found = Object.fromEntries(PHASES.map(([name]) => [name, 0]));
    for (const one of operations)
      for (const phase of one.phases) if (phase.name in found) found[phase.name] += (phase.end - phase.start) / 1e6;
    return found;
  }

  function drawn(process) {
    const all = [...process.operations, ...process.steps];
    const first = Math.min(...all.map((one) => one.start));
    const span = Math.max(...all.map((one) => one.end)) - first || 1;
    const at = (time) => `${(100 * (time - first)) / span}%`;
    const names = [...new Set(process.operations.map((one) => one.name))];
    const edges = () => process.steps.map((step) => h("i", { class: "edge", style: { left: at(step.start) } }));
    const block = (kind, start, end, title) =>
      h("i", { class: kind, title, style: { left: at(start), width: `${(100 * (end - start)) / span}%` } });
    const axis = h("div", { class: "axis" }, ...process.steps.map((step) =>
      h("span", { style: { left: at(step.start) } }, `${step.name}, ${Say.seconds((step.end - step.start) / 1e6)}`)));
    const lanes = names.slice(0, LANES).flatMap((name) => {
      const mine = process.operations.filter((one) => one.name === name);
      const sum = process.reductions.filter((one) => one.name === name);
      return [
        h("div", { class: "label", title: name }, `${name} `, h("span", { class: "dim" }, Say.bytes(mine[0].told.bytes))),
        h("div", { class: "track", role: "img", "aria-label": spent(mine) }, ...edges(),
          ...mine.flatMap((one) => one.phases.map((phase) =>
            block(kindOf(phase.name), phase.start, phase.end, `${name}: ${phase.name} ${Say.seconds((phase.end - phase.start) / 1e6)}; ${aside(one.told)}`))),
          ...sum.map((one) => block("sum", one.start, one.end, `${name}: reduction ${Say.seconds((one.end - one.start) / 1e6)}`)))];
    });
    const more = names.length > LANES ? h("p", { class: "dim" }, `and ${names.length - LANES} more operations, in the file`) : null;
    return h("div", {},
      h("p", {}, h("b", {}, process.title), ` ${summary(process)}`),
      h("div", { class: "lanes" }, h("div", {}), axis, ...lanes), more);
  }

  const kindOf = (phase) => (PHASES.find(([name]) => name === phase) || ["", "exchange"])[1];

  const aside = (told) =>
    `${told["segments retransmitted"]} segments retransmitted, ${told["segments waived"]} waived${told.failed ? `, failed: ${told.failed}` : ""}`;

  function spent(operations) {
    const found = sums(operations);
    return `in all ${PHASES.map(([name]) => `${name} ${Say.seconds(found[name])}`).join(", ")}`;
  }

  const summary = (process) =>
    `${process.steps.length} whole steps, ${process.operations.length} operations; ${spent(process.operations)}`;

  const key = () => h("div", { class: "key" }, ...[...PHASES, ["reduction", "sum"]].map(([name, kind]) =>
    h("span", {}, h("i", { class: kind }), name)));

  return { read, drawn, key };
})();
