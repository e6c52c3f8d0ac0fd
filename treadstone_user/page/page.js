// Draws a run from state.json, once a second while it goes. Everything from outside is set as text.
"use strict";

const BASE = location.pathname.replace(/\/+$/, "");
const STATES = ["starting", "ready", "failed", "deleted"];
const at = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const number = (value) => value.toLocaleString("en-US");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "es"}`;
const seconds = (ms) => (ms === null ? "–" : `${(ms / 1000).toFixed(ms < 9995 ? 2 : 1)} s`);

function make(tag, text, ...names) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (names.length) made.className = names.join(" ");
  return made;
}

function fill(place, ...children) {
  place.replaceChildren(...children);
}

function table(place, heads, rows) {
  const head = make("tr");
  heads.forEach((text) => { const cell = make("th", text); cell.scope = "col"; head.append(cell); });
  const body = make("tbody");
  rows.forEach((row) => {
    const line = make("tr");
    row.forEach((text, column) => {
      const cell = make(column ? "td" : "th", String(text));
      if (!column) cell.scope = "row";
      line.append(cell);
    });
    body.append(line);
  });
  const thead = make("thead");
  thead.append(head);
  const caption = place.querySelector("caption");
  fill(place, ...(caption ? [caption] : []), thead, body);
}

// What a stranger should read first.

// A run of queries or streams alone makes no sandboxes.
const makesSandboxes = (run) => run.planned !== 0;

function left(run) {
  const cleanup = run.cleanup;
  if (!makesSandboxes(run)) return false;
  return run.phase === "finished" && cleanup && (!cleanup.ran || !cleanup.verified);
}

function headline(run) {
  if (!makesSandboxes(run)) return answered(run);
  const now = run.live.totals;
  const of = run.planned === null ? "" : ` of ${number(run.planned)}`;
  const got = run.live.got_ready_total;
  if (run.phase === "finished") {
    const wrong = [];
    if (left(run)) wrong.push(run.cleanup.ran ? "not all is known to be gone" : "the sandboxes were left");
    if (run.ending === "interrupted") wrong.push("it was interrupted");
    if (run.ending === "failed") wrong.push("it could not go on");
    if (run.ending === "incomplete") wrong.push("a worker was lost");
    const failed = run.live.failed_total;
    const result = `${number(got)}${of} sandboxes got ready${failed ? `, ${number(failed)} did not` : ""}`;
    if (!left(run)) wrong.push("all are gone");
    return `${result}; ${wrong.join(", ")}`;
  }
  if (run.phase === "cleaning up") {
    const rest = run.cleanup ? run.cleanup.remaining : 0;
    return `Cleaning up: ${number(now.deleted)} deleted, ${number(rest)} not seen gone yet`;
  }
  const parts = [`${number(got)}${of} sandboxes ready`, `${number(now.starting)} starting`];
  if (now.failed) parts.push(`${number(now.failed)} failed`);
  return parts.join(", ");
}

function answered(run) {
  const sum = (name) => run.live.others.reduce((total, row) => total + row[name], 0);
  const failed = sum("failed");
  return `${number(sum("count"))} queries and streams, ${failed ? `${number(failed)} failed` : "none failed"}`;
}

function advice(run) {
  if (left(run)) {
    const what = run.cleanup.ran ? `Clean-up not complete (${run.cleanup.problem})` : `No clean-up (${run.cleanup.reason})`;
    return `${what}: what is left carries the label ${run.label}; ${run.remedy}`;
  }
  return null;
}

function facts(run) {
  const clock = new Date(run.elapsed_ms).toISOString().slice(11, 19);
  const pairs = { run: run.run_id, scenario: run.scenario, server: run.base_url, by: run.transport, "running for": clock };
  if (run.phase === "finished") { delete pairs["running for"]; pairs.took = clock; pairs.ended = run.ending; }
  fill(at("facts"), ...Object.entries(pairs).map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", name), make("dd", value === null ? "–" : String(value)));
    return pair;
  }));
}

function tiles(run) {
  const now = run.live.totals;
  const meaning = {
    starting: "create sent, no result yet", ready: "ready, not deleted yet",
    failed: "refused, failed, late or broken off", deleted: "delete accepted",
  };
  const made = [["", "planned", run.planned === null ? "no total" : number(run.planned), "of the scenario"]];
  made.push(["", "submitted", number(now.submitted), "creates sent"]);
  STATES.forEach((state) => made.push([state, state, number(now[state]), meaning[state]]));
  fill(at("tiles"), ...made.map(([kind, name, value, text]) => {
    const tile = make("div", undefined, "tile", ...(kind ? [kind] : []));
    tile.append(make("span", name), make("b", value), make("small", text));
    return tile;
  }));
}

// Charts: the text below each says the same.

function layout(more) {
  const axis = { gridcolor: css("line"), linecolor: css("line"), zeroline: false, fixedrange: true };
  return {
    margin: { l: 55, r: 15, t: 10, b: 45 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: css("ink"), family: "system-ui, sans-serif", size: 13 },
    legend: { orientation: "h", y: 1, yanchor: "bottom", traceorder: "normal" }, hovermode: "x unified",
    hoverlabel: { bgcolor: css("panel"), font: { color: css("ink") } },
    xaxis: { ...axis, ...more.x }, yaxis: { ...axis, rangemode: "tozero", ...more.y },
    shapes: more.shapes || [], annotations: more.annotations || [], bargap: 0.05,
  };
}

function draw(id, traces, more) {
  if (!window.Plotly) return;  // its script takes a second where the rest is there at once
  Plotly.react(at(id), traces, layout(more), { displayModeBar: false, responsive: true });
}

function drawStates(live) {
  const x = live.states.ready.map((_, bin) => ((bin + 1) * live.bin_ms) / 1000);
  const traces = STATES.map((state) => ({
    x, y: live.states[state], name: state, stackgroup: "all", mode: "lines", line: { color: css(state), width: 1 },
  }));
  draw("states", traces, { x: { title: { text: "seconds since the run began" } }, y: { title: { text: "sandboxes" } } });
  const most = Math.max(0, ...live.states.starting);
  at("states-text").textContent = `At most ${number(most)} were starting at once. Now: ` +
    STATES.map((state) => `${number(live.totals[state])} ${state}`).join(", ") + ".";
}

function drawReady(live) {
  const { width_ms: width, counts } = live.histogram;
  const figures = live.time_to_ready_ms;
  const marks = ["p50", "p95", "p99"].filter((name) => figures[name] !== null);
  const inside = (ms) => ms <= (width || 0) * counts.length;
  const shown = marks.filter((name) => inside(figures[name]));
  draw("ready", [{
    type: "bar", name: "sandboxes", x: counts.map((_, bin) => ((bin + 0.5) * width) / 1000), y: counts,
    width: (width || 0) / 1000, marker: { color: css("ready") }, showlegend: false,
  }], {
    x: { title: { text: "seconds from the create call to ready" } }, y: { title: { text: "sandboxes" } },
    shapes: shown.map((name) => ({
      type: "line", x0: figures[name] / 1000, x1: figures[name] / 1000, yref: "paper", y0: 0, y1: 1,
      line: { color: css("ink"), width: 1.5, dash: "dot" },
    })),
    annotations: shown.map((name, place) => ({
      x: figures[name] / 1000, yref: "paper", y: 1 - 0.12 * place, text: name, showarrow: false, xanchor: "left",
      xshift: 3, font: { color: css("ink") }, bgcolor: css("panel"),
    })),
  });
  const bound = (name) => (figures.at_least.includes(name) ? "≥ " : "") + seconds(figures[name]);
  table(at("percentiles"), ["", "time"], [...marks, ...(marks.length ? ["max"] : [])].map((name) => [name, bound(name)]));
  const few = figures.unsupported.length ? ` Too few for ${figures.unsupported.join(" and ")}.` : "";
  const never = figures.at_least.length ? " Those that are not ready count as at least the time they were waited for (≥)." : "";
  at("ready-text").textContent = figures.n ? `Of ${plural(figures.n, "sandbox")} created.${few}${never}` : "None is created yet.";
}

function drawRates(live) {
  const last = Math.max(1, live.created.length);
  const together = Math.max(1, Math.round(1000 / live.bin_ms));  // rates of a second at least
  const rate = (counts) => {
    const rates = [];
    for (let bin = 0; bin < last; bin += together) {
      const part = counts.slice(bin, bin + together);  // the last one may have only begun
      rates.push(part.reduce((sum, count) => sum + count, 0) / ((together * live.bin_ms) / 1000));
    }
    return rates;
  };
  const created = rate(live.created);
  const ready = rate(live.got_ready);
  const x = created.map((_, place) => (place * together * live.bin_ms) / 1000);
  draw("rates", [
    { x, y: created, name: "creates sent", mode: "lines", line: { color: css("starting"), shape: "hv" } },
    { x, y: ready, name: "got ready", mode: "lines", line: { color: css("ready"), shape: "hv", dash: "dash" } },
  ], { x: { title: { text: "seconds since the run began" } }, y: { title: { text: "per second" } } });
  const most = (rates) => Math.max(0, ...rates).toFixed(1);
  at("rates-text").textContent = `At most ${most(created)} creates sent and ${most(ready)} sandboxes ready in a second.`;
}

// Tables and sentences.

function errors(live) {
  if (!live.errors.length) { fill(at("errors"), make("p", "None.", "good")); return; }
  const made = make("table");
  made.className = "words";
  table(made, ["step", "error", "count"], live.errors.map((row) => [row.step, row.error, number(row.count)]));
  fill(at("errors"), made);
}

function others(live) {
  at("others-part").hidden = !live.others.length;
  const ms = (value) => (value === null ? "–" : `${value.toFixed(1)} ms`);
  table(at("others"), ["", "count", "failed", "mean", "longest"], live.others.map((row) => [
    `${row.kind} ${row.name}`, number(row.count), number(row.failed), ms(row.mean_ms), ms(row.max_ms),
  ]));
}

function cleanup(run) {
  const done = run.cleanup;
  const say = (text, kind) => fill(at("cleanup"), make("p", text, ...(kind ? [kind] : [])));
  if (!done) say("It begins when the run ends, and deletes what carries the run's label until none is left.");
  else if (!makesSandboxes(run)) say("There is nothing to clean up: the run makes no sandboxes.");
  else if (!done.ran) say(`It did not run (${done.reason}): the sandboxes stay; ${run.remedy}`, "bad");
  else if (done.verified) say(`All ${plural(done.found, "sandbox")} that were found are gone; the server's whole list shows none left.`, "good");
  else if (run.phase !== "finished") say(`Pass ${done.passes}: ${plural(done.found, "sandbox")} found, ${number(done.remaining)} still to go.`);
  else say(`Not complete: ${done.problem}. ${number(done.remaining)} may be left; ${run.remedy}`, "bad");
}

function client(run) {
  const parts = [];
  if (run.verdict && run.verdict.status === "client_saturated") {
    parts.push(make("p", "Some figures measure this client, and not the server:", "bad"));
    const list = make("ul");
    run.verdict.reasons.forEach((reason) => {
      list.append(make("li", `${reason.figures.join(", ")}: ${reason.text}. Remedy: ${reason.remedy}.`));
    });
    parts.push(list);
  } else if (run.verdict && run.verdict.status === "server_measured") {
    parts.push(make("p", "The server: the client was fast enough throughout.", "good"));
  } else if (run.phase === "finished") {
    parts.push(make("p", "Not judged: the client could not tell how it fared."));
  } else {
    parts.push(make("p", "Judged when the run ends. The client now:"));
  }
  if (run.health.length) {
    const made = make("table");
    table(made, ["", "state", "figures"], run.health.map((one) => [
      one.who, one.state,
      Object.entries(one.figures).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", "),
    ]));
    parts.push(made);
  }
  fill(at("client"), ...parts);
}

function files(run) {
  const list = make("ul");
  run.files.forEach((file) => {
    const link = make("a", file.name);
    link.href = `${BASE}/files/${encodeURIComponent(run.run_id)}/${encodeURIComponent(file.name)}`;
    const item = make("li");
    item.append(link, ` (${number(file.bytes)} bytes)`);
    list.append(item);
  });
  const where = make("p", "In ");
  where.append(make("code", run.folder));
  fill(at("files"), where, list);
}

// The page follows the run.

function show(view) {
  const began = performance.now();
  const run = view.run;
  at("run").hidden = run === null || view.preparing;
  const failed = run && (left(run) || ["failed", "incomplete"].includes(run.ending) ||
    (run.phase === "finished" && (run.live.failed_total > 0 || run.live.others.some((row) => row.failed > 0))));
  at("phase").classList.toggle("bad", Boolean(!view.preparing && (failed || view.problem)));
  if (view.preparing) {
    at("phase").textContent = "starting";
    say("A run is being prepared: its server is checked");
    tell(null);
    fill(at("facts"));
    return;
  }
  if (view.problem || run === null) {
    at("phase").textContent = view.problem ? "not started" : "no run yet";
    say(view.problem ? "The run did not start" : "Start a run in Locust's form, and watch it here");
    tell(view.problem || null);
    if (run === null) return;
  } else {
    at("phase").textContent = run.phase === "finished" ? `finished: ${run.ending}` : run.phase;
    say(headline(run), run.phase);
    tell(advice(run));
  }
  document.title = `${at("headline").textContent} · Treadstone load test`;
  facts(run);
  tiles(run);
  drawStates(run.live);
  drawReady(run.live);
  drawRates(run.live);
  table(at("templates"), ["template", "submitted", ...STATES],
    run.live.templates.map((row) => [row.template, number(row.submitted), ...STATES.map((state) => number(row[state]))]));
  errors(run.live);
  others(run.live);
  cleanup(run);
  client(run);
  files(run);
  document.body.dataset.drawMs = String(Math.round(performance.now() - began));
}

let spokenAt = -Infinity;
let spokenOf = null;

function say(text, phase) {
  at("headline").textContent = text;
  const due = performance.now() - spokenAt > 15000;  // a screen reader hears phases, and figures now and then
  if (at("spoken").textContent !== text && (due || spokenOf !== phase)) {
    spokenAt = performance.now();
    spokenOf = phase;
    at("spoken").textContent = text;
  }
}

function tell(text) {
  at("next").hidden = text === null;
  at("next").textContent = text || "";
}

let shown = null;

async function follow() {
  let wait = 1000;
  try {
    const answer = await fetch(`${BASE}/state.json`, { cache: "no-store" });
    if (answer.redirected || !(answer.headers.get("content-type") || "").includes("json")) throw new Error("log in to Locust again");
    const text = await answer.text();
    if (text !== shown) { shown = text; show(JSON.parse(text)); } else wait = 2000;
  } catch (error) {
    shown = null;
    at("phase").classList.add("bad");
    at("phase").textContent = `No answer from Locust (${error.message}); shown is what was known last`;
    wait = 3000;
  }
  setTimeout(follow, wait);
}

at("charts").addEventListener("load", () => { if (shown) show(JSON.parse(shown)); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { shown = null; });
follow();
