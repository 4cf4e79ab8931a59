// The page: receives snapshots from the stream, keeps the history, and draws both.

import { chart } from "./chart.js";
import { drawDial } from "./dial.js";
import { drawDurable } from "./durable.js";
import { element, list, put } from "./element.js";
import * as history from "./history.js";
import { drawProcesses } from "./processes.js";
import { drawPurgatories } from "./purgatory.js";
import { count, plural, putNumber, seconds, share } from "./words.js";

const byId = (id) => document.getElementById(id);
const LEAST_TOP = 5; // lower bound of `brightest`: a bucket of 16 deadlines

let stream = null;
let paused = false;
let last = null; // the latest snapshot
let cameAt = 0; // time of its arrival, in milliseconds
let drawnSecond = -1;
let example = null;
let retry = 0;

// --- the stream ---

// The chosen process; "" stands for all.
const chosen = () => new URLSearchParams(location.hash.slice(1)).get("process") || "";

function open() {
  close();
  if (paused || document.hidden) return;
  stream = new EventSource(`events?process=${encodeURIComponent(chosen())}`);
  stream.addEventListener("history", (event) => {
    history.forget();
    const first = JSON.parse(event.data);
    history.remember(first.points);
    example = first.example;
    drawnSecond = -1;
  });
  stream.onmessage = (event) => take(JSON.parse(event.data));
  stream.onerror = () => {
    say("reconnecting", "reconnecting");
    if (stream.readyState === EventSource.CLOSED) retry = setTimeout(open, 2000);
  };
}

function close() {
  clearTimeout(retry);
  if (stream) stream.close();
  stream = null;
}

function say(state, text) {
  const status = byId("status");
  if (status.dataset.state === state) return;
  status.dataset.state = state;
  status.textContent = text;
  document.body.classList.toggle("stale", state === "reconnecting");
}

function take(snapshot) {
  if (paused) return;
  if ("gone" in snapshot) { // the chosen process has ended
    choose("");
    return;
  }
  last = snapshot;
  cameAt = performance.now();
  history.remember(snapshot.points);
  say("live", "live");
  draw();
}

function choose(process) {
  location.hash = process ? `process=${encodeURIComponent(process)}` : "";
}

function pause(wanted) {
  paused = wanted;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Resume" : "Pause";
  if (paused) {
    close();
    say("paused", "paused");
  } else {
    say("connecting", "connecting");
    open();
  }
}

byId("pause").addEventListener("click", () => pause(!paused));
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "p" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input")) return;
  pause(!paused);
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("hashchange", () => {
  drawnSecond = -1;
  open();
});

// --- drawn at each snapshot ---

function draw() {
  drawAbout();
  drawProcesses(byId("processes"), last.processes || [], chosen(), choose);
  drawLevels();
  drawIdle();
  const newest = history.latest((point) => point.second);
  const isNew = newest !== drawnSecond; // charts change once per second
  drawnSecond = newest;
  drawTiles(isNew);
  if (isNew) drawLateness();
  drawPurgatories(byId("purgatories"), last.purgatories, { isNew, process: chosen(), isPaused: () => paused });
  drawDurable(byId("durable"), last.durable, isNew);
}

function drawAbout() {
  const { id, host, version, build, python, loop } = last.process;
  const processes = last.processes || [];
  const answering = processes.filter((each) => each.silent === null).length;
  put(byId("about"), id
    ? `${version}, ${build} build · process ${id} on ${host} · ${python}, ${loop} · tick ${seconds(last.tick)}`
    : `${answering === processes.length ? "all" : `${answering} of`} ${processes.length} processes of this host`);
}

// The digit of the fullest bucket of all dials: n stands for 2 ** (n - 1) deadlines or more.
const brightest = () => Math.max(LEAST_TOP, ...last.levels.map(fullest));

// The digit of the fullest bucket of one dial; 0 if all are empty.
function fullest(level) {
  return Math.max(0, ...[...new Set(level.lit)].map((power) => parseInt(power, 16)));
}

function drawLevels() {
  const top = brightest();
  put(byId("brightest"), `${count(2 ** (top - 1))} and more`);
  list(byId("dials"), last.levels, (level, index) => index, () => element(
    "figure", { className: "dial panel" },
    element("canvas", { role: "img" }),
    element("figcaption", {}, element("b"), element("span"), element("span")),
  ), (figure, level, index) => {
    const lit = [...level.lit].filter((power) => power !== "0").length;
    const [name, geometry, full] = figure.querySelectorAll("b, span");
    const most = fullest(level);
    put(name, `Level ${index}`);
    put(geometry, `${seconds(level.width)} per bucket, ${seconds(level.width * level.lit.length)} per turn`);
    put(full, `${lit} of ${level.lit.length} buckets in use${most ? `, the fullest: ${fullness(most)}` : ""}`);
    figure.querySelector("canvas").setAttribute("aria-label",
      `Dial of level ${index}: ${geometry.textContent}; ${full.textContent}.`);
  });
}

function fullness(power) {
  if (power === 1) return "1";
  return power === 13 ? "4,096 or more" : `${count(2 ** (power - 1))} to ${count(2 ** power - 1)}`;
}

function drawIdle() {
  const box = byId("idle");
  box.hidden = last.pending > 0;
  if (box.hidden) return;
  const [code, purgatory] = [box.querySelector("code"), last.purgatories.length > 0];
  put(box.querySelector(".note"), example
    ? "Paste this into a shell to see the wheel turn:"
    : `Add this to a coroutine of your application, where ${purgatory ? "purgatory" : "timer"} is the one shown here, to see it move:`);
  put(code, example ? example.replaceAll("{origin}", location.origin) : purgatory
    ? 'for n in range(100): purgatory.wait_until({"demo": 1}, timeout=n / 3)'
    : "for n in range(100): timer.call_later(n / 3, print, n)");
}

byId("idle").querySelector("button").addEventListener("click", async (event) => {
  const code = byId("idle").querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    event.target.textContent = "Copied";
  } catch { // browsers deny the clipboard to pages without TLS
    getSelection().selectAllChildren(code);
    event.target.textContent = "Selected";
  }
  setTimeout(() => { event.target.textContent = "Copy"; }, 2000);
});

const TILES = [
  ["Pending", (point) => point.pending],
  ["Fired per second", (point) => point.fired],
  ["Cancelled per second", (point) => point.cancelled],
  ["Wake-ups per second", (point) => point.wakeups],
  ["Cascaded per second", (point) => point.cascaded],
];

function drawTiles(isNew) {
  list(byId("tiles"), TILES, (tile) => tile[0], (tile) => element(
    "div", { className: "tile panel" },
    element("dl", {}, element("dt", { textContent: tile[0] }), element("dd")), chart(tile[0], count),
  ), (box, [name, read]) => {
    putNumber(box.querySelector("dd"), name === "Pending" ? last.pending : history.latest(read));
    if (isNew) box.lastChild.update([history.last().map((point) => [point.second, read(point)])]);
  });
}

function drawLateness() {
  const late = history.durations(history.last(60), (point) => point.late);
  const least = Math.floor(Math.log2(64e-6 * 1e9));
  const power = (edge) => Math.ceil(Math.log2(Math.max(1, edge * 1e9)) - 1e-9);
  const top = Math.max(least + 10, ...late.map(([edge]) => power(edge)));
  const bins = Array.from({ length: top - least + 1 }, (_, index) => [least + index, 0]);
  for (const [edge, n] of late) bins[Math.max(0, power(edge) - least)][1] += n;
  const most = Math.max(1, ...bins.map((bin) => bin[1]));
  list(byId("lateness"), bins, (bin) => bin[0], () => element(
    "div", { className: "bin" }, element("i"), element("span"),
  ), (box, [exponent, n]) => {
    box.firstChild.style.height = `${(n / most) * 100}%`;
    box.firstChild.className = n ? "" : "none";
    box.title = `${count(n)} fired within ${seconds(2 ** exponent / 1e9)}`;
    put(box.lastChild, seconds(2 ** exponent / 1e9, 2));
  });
  const fired = late.reduce((sum, [, n]) => sum + n, 0);
  const [half, most99] = [0.5, 0.99].map((q) => history.quantile(late, q));
  put(byId("lateness-summary"), fired
    ? `${plural(fired, "deadline")} fired in this time: half within ${seconds(half)}, `
      + `${share(0.99)} within ${seconds(most99)}. Since the start, all within ${seconds(last.latest)}.`
    : last.fired ? "No deadline fired in the last minute." : "No deadline has fired yet.");
}

// --- animated between snapshots ---

const FRAME = 30; // minimum milliseconds per frame: a higher rate is not visible
let turned = 0;

function turn(now = 0) {
  if (last && !paused && stream && now - turned >= FRAME) {
    turned = now;
    const elapsed = Math.min((performance.now() - cameAt) / 1000, 1);
    const top = brightest();
    byId("dials").querySelectorAll("canvas").forEach((canvas, index) => {
      if (last.levels[index]) drawDial(canvas, last.levels[index], elapsed, top);
    });
  }
  requestAnimationFrame(turn);
}

open();
turn();
