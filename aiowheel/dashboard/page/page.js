// The page: takes samples from the stream, keeps the last minute, and draws.

import { drawDial, drawSpark } from "./dial.js";
import { count, seconds, share } from "./words.js";
import { drawPurgatories } from "./purgatory.js";
import { element, list, put } from "./element.js";
import { MINUTE, rate } from "./rate.js";

const byId = (id) => document.getElementById(id);

let stream = null;
let paused = false;
let last = null; // the latest sample, and when it came
let cameAt = 0;
let history = []; // the samples of the last minute, oldest first
let retry = 0;

// --- the stream ---

function open() {
  close();
  if (paused || document.hidden) return;
  stream = new EventSource("events");
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

function take(sample) {
  if (paused) return;
  if (last && (last.run !== sample.run || sample.at < last.at)) history = []; // another server
  last = sample;
  cameAt = performance.now();
  history.push(sample);
  if (history.length > MINUTE) history.shift();
  say("live", "live");
  draw();
}

function pause(wanted) {
  paused = wanted;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
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
  pause(!paused);
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));

// --- what changes with every sample ---

function draw() {
  const levels = last.levels.length;
  put(byId("about"), `tick ${seconds(last.tick)} · ${levels} ${levels === 1 ? "level" : "levels"}`);
  drawLevels();
  drawTiles();
  drawLateness();
  drawPurgatories(byId("purgatories"), last, history);
}

function drawLevels() {
  list(byId("dials"), last.levels, (level, index) => index, () => element(
    "figure", { className: "dial panel" },
    element("canvas", { role: "img" }),
    element("figcaption", {}, element("b"), element("span"), element("span")),
  ), (figure, level, index) => {
    const lit = level.lit.length - level.lit.split("0").length + 1;
    const [name, geometry, full] = figure.querySelectorAll("b, span");
    put(name, `Level ${index}`);
    put(geometry, `${seconds(level.width)} a bucket, ${seconds(level.width * level.lit.length)} a turn`);
    put(full, `${lit} of ${level.lit.length} buckets in use`);
    figure.querySelector("canvas").setAttribute("aria-label",
      `Dial of level ${index}: ${geometry.textContent}; ${full.textContent}.`);
  });
}

const TILES = [
  ["Pending", (sample) => sample.timer.pending, null],
  ["Fired a second", (sample) => sample.timer.fired, rate],
  ["Cancelled a second", (sample) => sample.timer.cancelled, rate],
  ["Wake-ups a second", (sample) => sample.timer.wakeups, rate],
  ["Refiled a second", (sample) => sample.timer.cascaded, rate],
];

function drawTiles() {
  list(byId("tiles"), TILES, (tile) => tile[0], (tile) => element(
    "div", { className: "tile panel" },
    element("dt", { textContent: tile[0] }), element("dd"),
    element("canvas", { ariaHidden: "true" }),
  ), (box, [, read, how]) => {
    const value = how ? how(history, read) : read(last);
    put(box.querySelector("dd"), count(value));
    const values = history.map((sample, index) => (how
      ? how(history.slice(Math.max(0, index - 4), index + 1), read) : read(sample)));
    drawSpark(box.querySelector("canvas"), values, MINUTE);
  });
}

function drawLateness() {
  const before = new Map(history.length > 1 ? history[0].lateness.octaves : []);
  const recent = last.lateness.octaves.map(([edge, n]) => [edge, n - (before.get(edge) || 0)]);
  const least = Math.floor(Math.log2(64e-6 * 1e9));
  const exponent = (edge) => Math.round(Math.log2(edge * 1e9));
  const top = Math.max(least + 10, ...recent.map(([edge]) => exponent(edge)));
  const bins = Array.from({ length: top - least + 1 }, (_, index) => [least + index, 0]);
  for (const [edge, n] of recent) bins[Math.max(0, exponent(edge) - least)][1] += n;
  const most = Math.max(1, ...bins.map((bin) => bin[1]));
  list(byId("lateness"), bins, (bin) => bin[0], () => element(
    "div", { className: "bin" }, element("i"), element("span"),
  ), (box, [power, n]) => {
    box.firstChild.style.height = `${(n / most) * 100}%`;
    box.firstChild.className = n ? "" : "none";
    box.title = `${count(n)} fired within ${seconds(2 ** power / 1e9)}`;
    put(box.lastChild, seconds(2 ** power / 1e9, 2));
  });
  const fired = recent.reduce((sum, [, n]) => sum + n, 0);
  const { p50, p99, most: longest } = last.lateness;
  put(byId("lateness-told"), last.timer.fired
    ? `${count(fired)} fired in this time. Since the start half came within ${seconds(p50)}, `
      + `${share(0.99)} within ${seconds(p99)}, all within ${seconds(longest)}.`
    : "Nothing has fired yet.");
}

// --- what turns between two samples ---

function turn() {
  if (last && !paused && stream) {
    const elapsed = Math.min((performance.now() - cameAt) / 1000, 1);
    byId("dials").querySelectorAll("canvas").forEach((canvas, index) => {
      if (last.levels[index]) drawDial(canvas, last.levels[index], elapsed);
    });
  }
  requestAnimationFrame(turn);
}

open();
turn();
