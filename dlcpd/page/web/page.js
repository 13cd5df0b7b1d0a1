"use strict";
/* The status page: polls /status, and keeps the charts' data in this tab. */

const EVERY = 2000; // milliseconds between polls
const KEPT = 900; // points of a chart: half an hour
const ALARMS = 8; // lines that are shown
const RECENT = 60; // seconds of "last minute"
const part = (id) => document.querySelector(id);

const page = {
  token: sessionStorage.getItem("token") || "",
  reports: [], // of the last minute: {at (seconds), report}
  history: new Map(), // by session: {job, rank, columns}
  chosen: "",
  trace: null,
};

/* ---- asking -------------------------------------------------------------------------------- */

async function ask(what) {
  const headers = page.token ? { Authorization: `Bearer ${page.token}` } : {};
  const answer = await fetch(what, { headers, cache: "no-store" });
  const found = await answer.json();
  if (answer.ok) return found;
  throw Object.assign(new Error(found.error), { status: answer.status });
}

async function look() {
  try {
    show(await ask("status"));
  } catch (error) {
    missed(error);
  }
  setTimeout(look, EVERY);
}

function missed(error) {
  document.body.classList.add("stale");
  part("#token").hidden = error.status !== 401;
  const last = page.reports.at(-1);
  const since = last ? ` What is shown is of ${clock(last.at)}.` : "";
  let text = "";
  if (error.status === 503) text = `${error.message}. Asking again every 2 s.${since}`;
  else if (error.status === undefined) text = `dlcpctl page does not answer: it has ended, or cannot be reached. Start it again; this page goes on by itself.${since}`;
  else if (error.status !== 401) text = `${error.message}.`;
  notice(text);
  part("#state").textContent = "no answer";
}

function notice(text) {
  part("#notice").textContent = text;
  part("#notice").hidden = !text;
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

/* ---- numbers ------------------------------------------------------------------------------- */

const known = (report, session) => (report.engine.sessions || {})[String(session.session)] || {};
const pathsOf = (engine) => (engine.peers || []).flatMap((peer) => peer.paths);
const total = (rows, key) => rows.reduce((sum, row) => sum + (row[key] || 0), 0);
const classesOf = (paths) => paths.flatMap((path) => Object.entries(path.classes || {}));
const bytesOf = (paths) => classesOf(paths).reduce((sum, [, space]) => sum + (space.bytes || 0), 0);
const same = (report, then) => then && then.pid === report.pid; // else its counts restarted

/** later - earlier, of counts that only grow; null where one is not known. */
function grown(later, earlier) {
  if (later === undefined || earlier === undefined || later < earlier) return null;
  return later - earlier;
}

const share = (part, whole) => (part === null || !whole ? null : part / whole);

/** Add a point to each session's charts. */
function remember(at, report, before) {
  const span = before ? at - before.at : 0;
  for (const session of report.sessions) {
    const engine = known(report, session), paths = pathsOf(engine), totals = engine.totals || {};
    const key = `${report.pid} ${session.session}`;
    if (!page.history.has(key)) page.history.set(key, { columns: [[], [], [], [], [], []] });
    const then = before && same(report, before.report) ? known(before.report, session) : {};
    const was = then.totals || {}, old = pathsOf(then);
    const segments = grown(totals.sent, was.sent), packets = grown(total(paths, "sent"), old.length ? total(old, "sent") : undefined);
    const percent = (value) => (value === null ? null : 100 * value);
    const bits = grown(bytesOf(paths), old.length ? bytesOf(old) : undefined);
    const operations = grown(engine.submitted, then.submitted);
    const point = [
      at,
      packets === null ? null : percent(share(grown(total(paths, "lost"), total(old, "lost")), packets)),
      percent(share(grown(totals.waived, was.waived), segments)),
      percent(share(grown(totals.allowed, was.allowed), segments)),
      bits === null || !span ? null : (8 * bits) / span / 1e6,
      operations === null || !span ? null : operations / span];
    page.history.get(key).columns.forEach((column, index) => {
      column.push(point[index]);
      if (column.length > KEPT) column.shift();
    });
  }
  const here = new Set(report.sessions.map((session) => `${report.pid} ${session.session}`));
  for (const key of page.history.keys()) if (!here.has(key)) page.history.delete(key);
}

/* ---- showing ------------------------------------------------------------------------------- */

function show({ report, alarms, socket, job }) {
  const at = Date.now() / 1000, before = page.reports.at(-1);
  remember(at, report, before);
  page.reports.push({ at, report });
  while (page.reports[0].at < at - RECENT) page.reports.shift();
  document.body.classList.remove("stale");
  part("#token").hidden = true;
  notice("");
  document.title = alarms.length ? `(${alarms.length}) ${report.host} - dlcpd` : `${report.host} - dlcpd`;
  part("#host").textContent = report.host;
  part("#state").textContent = job ? `${job.hosts} of ${job.asked} hosts answer`
    : `dlcpd ${report.version}, ${report.health.ready ? "serving" : report.health.text} for ${Say.seconds(report.uptime)}, data path ${report.features.data_path || "unknown"}, process ${report.pid}`;
  part("#when").textContent = `at ${clock(at)}`;
  choose(report);
  showAlarms(alarms, report);
  showLate(report);
  showSessions(report, socket);
  showHeat(report);
  showChosen(report);
}

const put = (section, ...children) => part(`${section} .body`).replaceChildren(...children.filter((child) => child !== null));
const titleOf = (session) => session.title || session.job; // a daemon of a version before has no title
const nameOf = (session) => `${titleOf(session)}, rank ${session.rank}`;

function choose(report) {
  const select = part("#session"), keys = report.sessions.map((session) => String(session.session));
  if ([...select.options].map((option) => option.value).join() !== keys.join())
    select.replaceChildren(...report.sessions.map((session) => h("option", { value: session.session }, nameOf(session))));
  if (!keys.includes(page.chosen)) page.chosen = keys[0] || "";
  select.value = page.chosen;
  select.parentElement.hidden = !keys.length;
}

/** For screen readers: kinds of alarms and how many, when they change; their texts change always. */
function tellAlarms(alarms) {
  const kinds = new Map();
  for (const line of alarms) {
    const kind = line.slice(0, line.indexOf(": "));
    kinds.set(kind, (kinds.get(kind) || 0) + 1);
  }
  const text = alarms.length ? `alarms: ${[...kinds].map(([kind, count]) => `${count} ${kind}`).join(", ")}` : "no alarms";
  if (part("#told").textContent !== text) part("#told").textContent = text;
}

function showAlarms(alarms, report) {
  tellAlarms(alarms);
  if (!alarms.length) {
    const what = report.sessions.length ? "no session is broken, nobody is late, all paths are well" : "no session, so nothing to worry about";
    put("#alarms", h("span", { class: "well" }, what));
    return;
  }
  // A dead link raises an alarm per pair of ranks: path alarms come last; the map shows all.
  const sorted = [...alarms.filter((line) => !line.startsWith("PATH")), ...alarms.filter((line) => line.startsWith("PATH"))];
  const more = sorted.length - ALARMS;
  put("#alarms", ...sorted.slice(0, ALARMS).map((line) => {
    const cut = line.indexOf(": ");
    return h("div", { class: "alarm" }, h("b", {}, line.slice(0, cut)), h("span", {}, line.slice(cut + 2)));
  }), more > 0 ? h("div", { class: "dim" }, `and ${more} more; "Hosts and paths" shows those of paths, dlcpctl top lists all`) : null);
}

function showLate(report) {
  const rows = report.sessions.flatMap((session) => (known(report, session).late || []).map((late) => [
    nameOf(session), `rank ${late.rank}`, late.host, Say.seconds(late.late), Say.seconds(late.silent),
    late.paths_down.length ? late.paths_down.join(", ") : "none", late.awaiting]));
  part("#late").hidden = !rows.length;
  put("#late", table([["who waits", "name"], ["for", "left"], ["on host", "name"], ["for so long", ""],
    ["heard ago", ""], ["paths down", ""], ["what for", "long"]], rows));
}

function showSessions(report, socket) {
  if (!report.sessions.length) {
    put("#sessions", h("p", {}, "No session: start a training with ", h("code", {}, `DLCPD_SOCKET=${socket}`),
      ", or look at the private daemon of a training with ", h("code", {}, "dlcpctl page --socket PATH"), "."));
    return;
  }
  const broken = report.sessions.some((session) => session.broken);
  const hosts = report.sessions.some((session) => session.on); // of a job over several
  put("#sessions", table([["job", "name"], ...(hosts ? [["host", "name"]] : []), ["rank", ""], ["of", ""], ["state", "left"], ["age", ""], ["op/s", ""], ["operations", ""],
    ["open", ""], ["segments waived", ""], ["of its bound", ""], ["kept for next step", ""], ["waits for", "name"],
    ...(broken ? [["broken", "long"]] : [])],
    report.sessions.map((session) => {
      const engine = known(report, session), totals = engine.totals || {};
      const points = page.history.get(`${report.pid} ${session.session}`).columns[5];
      const used = totals.allowed ? h("span", {}, Say.percent(totals.used), bar(totals.used)) : totals.sent ? "exact" : null;
      return [titleOf(session), ...(hosts ? [session.on] : []), session.rank, session.world_size, h("span", { class: session.broken ? "bad" : "" }, session.state),
        Say.seconds(session.age), Say.number(points.at(-1)), engine.submitted, engine.open, totals.waived, used,
        Say.bytes(engine.residual_bytes), (engine.late || []).map((late) => `${late.rank}:${late.host}`).join(", ") || null,
        ...(broken ? [session.broken || null] : [])];
    })));
}

/** By job and peer host: its ranks, and by path the sums of all flows there. */
function places(report) {
  const found = new Map();
  for (const session of report.sessions) {
    const links = new Map(session.peers.map((link) => [link.rank, link]));
    for (const peer of known(report, session).peers || []) {
      const key = JSON.stringify([session.job, peer.host]);
      if (!found.has(key)) found.set(key, { job: titleOf(session), host: peer.host, ranks: new Set(), gone: new Set(), paths: [] });
      const place = found.get(key), link = links.get(peer.rank);
      place.ranks.add(peer.rank);
      if (link && link.state !== "up") place.gone.add(`rank ${peer.rank} ${link.state}`);
      peer.paths.forEach((path, number) => {
        place.paths[number] = place.paths[number] || { sent: 0, lost: 0, bytes: 0, rtt: null, queue: null, up: true, gray: false };
        const sum = place.paths[number];
        sum.sent += path.sent;
        sum.lost += path.lost;
        sum.bytes += bytesOf([path]);
        if (path.rtt) sum.rtt = Math.max(sum.rtt, path.rtt);
        if (path.sent) sum.queue = Math.max(sum.queue, path.queue_delay);
        sum.up = sum.up && path.up;
        sum.gray = sum.gray || path.gray === true;
      });
    }
  }
  return found;
}

/** A cell's text, and its heat, 0..1. `then`: the same path a minute ago. */
const MEASURES = {
  recent: (path, then) => lossCell(share(grown(path.lost, then.lost), grown(path.sent, then.sent))),
  loss: (path) => lossCell(share(path.lost, path.sent)),
  rtt: (path) => [Say.seconds(path.rtt), path.rtt ? Math.min(Math.log10(1 + path.rtt * 1e4) / 3, 1) : 0],
  queue: (path) => [Say.seconds(path.queue), path.queue ? Math.min(path.queue / 0.005, 1) : 0],
  rate: (path, then, span) => [`${Say.number(span ? (8 * grown(path.bytes, then.bytes)) / span / 1e6 : null)} Mbit/s`, 0],
};

const lossCell = (value) => [Say.percent(value), value ? Math.min(Math.sqrt(value / 0.05), 1) : 0];

function showHeat(report) {
  const now = places(report), oldest = page.reports.find((one) => same(report, one.report));
  const then = places(oldest.report), span = page.reports.at(-1).at - oldest.at;
  if (!now.size) {
    put("#heat", h("span", { class: "dim" }, report.sessions.length ? "no peers yet" : "no session, so no peers"));
    return;
  }
  const measure = MEASURES[part("#heat select").value];
  const most = Math.max(...[...now.values()].map((place) => place.paths.length));
  part("#heat").classList.toggle("wide", most > 5);
  const columns = Array.from({ length: most }, (_, number) => number);
  put("#heat", h("table", { class: "heat cards" },
    h("thead", {}, h("tr", {}, h("th", { class: "left" }, "host"), h("th", { class: "left" }, "ranks"), ...columns.map((number) => h("th", { class: "middle" }, `path ${number}`)))),
    h("tbody", {}, ...[...now].map(([key, place]) => h("tr", {},
      h("th", { class: "name", title: `${place.host}, of ${place.job}`, "data-column": "host" }, place.host),
      h("th", { class: "left", title: place.job, "data-column": "ranks" }, inRuns([...place.ranks]),
        place.gone.size ? h("span", { class: "bad" }, ` ${[...place.gone].join(", ")}`) : null),
      ...columns.map((number) => {
        const cell = heatCell(measure, place.paths[number], ((then.get(key) || { paths: [] }).paths[number]) || {}, span);
        cell.dataset.column = `path ${number}`;
        return cell;
      }))))));
}

/** Numbers, as in "3, 8-15". */
function inRuns(numbers) {
  const runs = [];
  for (const number of numbers.sort((a, b) => a - b)) {
    if (runs.length && runs.at(-1)[1] === number - 1) runs.at(-1)[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

function heatCell(measure, path, then, span) {
  if (!path) return h("td", {}, "-");
  if (!path.sent) return h("td", { class: "dim", title: "ranks of one daemon exchange in its memory" }, "nothing sent");
  const [text, hot] = measure(path, then, span);
  const state = !path.up ? "down" : path.gray ? "gray" : "";
  const title = `sent ${path.sent}, lost ${path.lost} (${Say.percent(share(path.lost, path.sent))}), round trip ${Say.seconds(path.rtt)}, queue ${Say.seconds(path.queue)}`;
  return h("td", { class: state, title, style: { "--share": hot } }, text,
    state ? h("small", { class: "bad" }, state === "gray" ? "gray: loses too much" : "down") : null);
}

/* ---- of the chosen session ------------------------------------------------------------------ */

const charts = {};

function showChosen(report) {
  const session = report.sessions.find((one) => String(one.session) === page.chosen);
  for (const id of ["#bound", "#traffic", "#classes", "#tensors", "#steps"]) part(id).hidden = !session;
  if (session && session.on) part("#steps").hidden = true; // a recording is of one host
  if (!session) return;
  charts.bound = charts.bound || lines(part("#bound .chart"), { title: "Loss against bound", time: true, unit: " %", series: [
    { label: "lost by the network", colour: "orange" }, { label: "waived", colour: "blue" },
    { label: "may be waived", colour: "text", dash: true }] });
  charts.traffic = charts.traffic || lines(part("#traffic .chart"), { title: "Sent to peers", time: true, series: [{ label: "Mbit/s", colour: "blue" }] });
  const columns = page.history.get(`${report.pid} ${session.session}`).columns;
  charts.bound.set(columns.slice(0, 4));
  charts.traffic.set([columns[0], columns[4]]);
  const engine = known(report, session), totals = engine.totals || {};
  put("#bound", boundSaid(totals));
  showClasses(engine);
  showTensors(engine, totals);
}

function boundSaid(totals) {
  if (!totals.sent) return "Nothing was sent yet.";
  const again = `${Say.number(totals.retransmitted)} of ${Say.number(totals.sent)} segments were retransmitted`;
  if (!totals.allowed) return `Exact so far: nothing may be waived, and ${again}.`;
  return `In all ${Say.number(totals.waived)} segments waived of ${Say.number(totals.allowed)} allowed; ${Say.number(totals.reapplied)} came back in later steps; ${again}.`;
}

function showClasses(engine) {
  const found = new Map();
  for (const [name, space] of classesOf(pathsOf(engine))) {
    const sum = found.get(name) || { sent: 0, lost: 0, again: 0, marked: 0, bytes: 0 };
    for (const key of Object.keys(sum)) sum[key] += space[key] || 0;
    found.set(name, sum);
  }
  if (!found.size) {
    put("#classes", h("span", { class: "dim" }, "no datagrams: none yet, or all ranks are on this host and exchange in its memory"));
    return;
  }
  put("#classes", table([["class", "name"], ["datagrams", ""], ["lost", ""], ["loss", ""], ["retransmitted", ""], ["marked", ""], ["bytes", ""]],
    [...found].map(([name, sum]) => [name, Say.number(sum.sent), Say.number(sum.lost), Say.percent(share(sum.lost, sum.sent)),
      Say.number(sum.again), Say.number(sum.marked), Say.bytes(sum.bytes)])));
}

/** Transfers with waived segments, by tensor, from the newest rows of the ledger. */
function showTensors(engine, totals) {
  const found = new Map();
  for (const row of engine.ledger || []) {
    const sum = found.get(row.name) || { transfers: 0, segments: 0, senders: new Set(), last: 0 };
    sum.transfers += 1;
    sum.segments += row.segments;
    sum.senders.add(row.sender);
    sum.last = row.operation;
    found.set(row.name, sum);
  }
  if (!found.size) {
    const why = totals.allowed ? "Nothing was waived of late." : "Nothing may be waived: bounded(0.01) in the training allows it (docs/training.md).";
    put("#tensors", h("span", { class: "dim" }, why));
    return;
  }
  const rows = [...found].sort(([, a], [, b]) => b.segments - a.segments).slice(0, 12), most = rows[0][1].segments;
  put("#tensors", h("p", { class: "dim" }, `Of the newest ${engine.ledger.length} transfers that went without segments, this rank's and those of others to it.`),
    table([["tensor", "name"], ["segments waived", ""], ["in transfers", ""], ["from ranks", "left"], ["last operation", ""]],
      rows.map(([name, sum]) => [name || "(no name)", h("span", {}, Say.number(sum.segments), bar((0.89 * sum.segments) / most)), sum.transfers,
        [...sum.senders].sort((a, b) => a - b).join(", "), sum.last])));
}

/* ---- steps ---------------------------------------------------------------------------------- */

async function recordSteps() {
  const button = part("#record"), said = part("#recorded");
  button.disabled = true;
  said.textContent = "recording, for at most 20 s ...";
  try {
    const { steps, full, trace } = await ask("trace?steps=3");
    const found = Timeline.read(trace.traceEvents);
    said.textContent = steps < 3 ? `${steps} of 3 steps came in 20 s: a step is complete where the first operation of a session comes again; is a training running?`
      : full ? "The recording was full before its end." : `3 steps, recorded at ${clock(Date.now() / 1000)}. Point at a block to see what it is.`;
    put("#steps", ...(found.length ? [Timeline.key(), ...found.map(Timeline.drawn)] : []));
    if (page.trace) URL.revokeObjectURL(page.trace);
    page.trace = URL.createObjectURL(new Blob([JSON.stringify(trace)], { type: "application/json" }));
    part("#save").href = page.trace;
    part("#save").hidden = false;
  } catch (error) {
    said.textContent = `Not recorded: ${error.message}`;
  }
  button.disabled = false;
}

/* ---- begin ---------------------------------------------------------------------------------- */

function take(token) {
  page.token = token;
  sessionStorage.setItem("token", token);
}

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  take(given);
  history.replaceState(null, "", location.pathname); // keeps it out of screenshots and bookmarks
}
part("#token").addEventListener("submit", (event) => {
  event.preventDefault();
  take(part("#token input").value.trim());
});
const again = () => page.reports.length && (showHeat(page.reports.at(-1).report), showChosen(page.reports.at(-1).report));
part("#session").addEventListener("change", (event) => { page.chosen = event.target.value; again(); });
part("#heat select").addEventListener("change", again);
part("#record").addEventListener("click", recordSteps);
look();
