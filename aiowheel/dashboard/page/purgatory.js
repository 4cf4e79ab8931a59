// One panel per purgatory: counts, times to completion, hottest keys, oldest keys, ended operations.

import { makeDetails, reason } from "./details.js";
import { element, list, put } from "./element.js";
import * as history from "./history.js";
import { makeQuantiles } from "./quantiles.js";
import { count, plural, putNumber, seconds, share } from "./words.js";

const QUANTILES = [["half", 0.5], ["90 %", 0.9], ["99 %", 0.99]];

const COUNTS = [
  ["pending", "", (now) => now.pending],
  ["links to keys", "", (now) => now.watched],
  ["completed per second", "good", (now, of) => history.latest((point) => of(point).completed)],
  ["timed out per second", "bad", (now, of) => history.latest((point) => of(point).expired)],
  ["cancelled per second", "", (now, of) => history.latest((point) => of(point).cancelled)],
  ["failed", "bad", (now) => now.failed],
];

export function drawPurgatories(place, purgatories, { isNew, process, isPaused }) {
  list(place, purgatories, (each) => each.name, (each, index) => make(each, index, isPaused), (box, now) => {
    const of = (point) => point.purgatories[now.name] || {};
    put(box.querySelector("h2"), `Purgatory ${now.name}`);
    drawCounts(box.querySelector(".counts"), now, of);
    if (isNew) box.took.update((point) => of(point).took);
    box.details.process = process;
    drawKeys(box.querySelector(".keys"), now.keys, box.details);
    drawOldest(box.querySelector(".oldest tbody"), now.oldest, box.details);
    put(box.querySelector(".empty"), now.oldest.length ? "" : "No operation is pending.");
    box.querySelector(".oldest").hidden = !now.oldest.length;
    drawEnded(box.querySelector(".ended"), now);
  });
}

function make(now, index, isPaused) {
  const id = `purgatory-${index}`;
  const head = ["Waits for", "Waiters", "Oldest", "Its time left", "Elapsed"].map((text, at) => element(
    "th", { scope: "col", textContent: text, className: at > 0 && at < 4 ? "num" : "" },
  ));
  const took = makeQuantiles("Time to completion", "of those that completed in five seconds",
    `Time to completion in ${now.name}`, QUANTILES);
  const details = makeDetails(now.name, isPaused);
  const box = element("section", { className: "purgatory panel" },
    element("div", { className: "top" }, element("h2", { id }), element("dl", { className: "counts" })),
    took,
    element("div", { className: "cols" },
      element("div", {}, element("h3", { textContent: "Hottest keys" }), element("ol", { className: "keys" })),
      element("div", {}, element("h3", { textContent: "Keys that wait longest" }),
        element("div", { className: "table" }, element("table", { className: "oldest" },
          element("thead", {}, element("tr", {}, ...head)), element("tbody"))),
        element("p", { className: "empty" }))),
    details.box,
    element("div", {}, element("h3", { textContent: "Just ended, of the operations shown before" }),
      element("ul", { className: "ended" })));
  box.setAttribute("aria-labelledby", id);
  box.details = details;
  box.took = took;
  return box;
}

function drawCounts(place, now, of) {
  const [done, expired] = ["completed", "expired"].map((end) => history.total(60, (point) => of(point)[end]));
  const all = COUNTS.map(([name, kind, read]) => [name, kind, read(now, of)]);
  const part = done + expired ? share(expired / (done + expired)) : "–";
  list(place, [...all, ["timed out, last minute", "bad", expired, part]], (each) => each[0],
    ([name, kind]) => element("div", { className: kind },
      element("dt", { textContent: name }), element("dd")),
    (box, [, , number, text]) => putNumber(box.lastChild, number, text));
}

function drawKeys(place, keys, details) {
  const most = Math.max(1, ...keys.map((each) => each[1]));
  list(place, keys, (each) => each[0], ([key]) => element("li", {},
    element("i"), element("button", { type: "button", className: "key", onclick: () => details.open(key) },
      element("code")), element("span")),
  (row, [key, waiters]) => {
    row.firstChild.style.width = `${(waiters / most) * 100}%`;
    put(row.querySelector("code"), key);
    row.title = key;
    put(row.lastChild, count(waiters));
  });
}

function drawOldest(place, oldest, details) {
  list(place, oldest, (each) => each.key, (each) => element("tr", {},
    element("td", {}, element("button", { type: "button", className: "key", onclick: () => details.open(each.key) },
      element("code")), element("span")),
    ...[0, 1, 2].map(() => element("td", { className: "num" })),
    element("td", { className: "life" }, element("span", { className: "bar" }, element("i")))),
  (row, each) => {
    const [why, waiters, age, left, life] = row.children;
    put(why.querySelector("code"), each.key);
    put(why.lastChild, reason(each));
    put(waiters, count(each.waiters));
    put(age, seconds(each.age));
    put(left, each.left === null ? "no limit" : seconds(Math.max(0, each.left)));
    left.classList.toggle("limited", each.left !== null);
    const gone = each.left === null ? 0 : each.age / (each.age + Math.max(0, each.left));
    life.firstChild.firstChild.style.width = `${Math.min(1, gone) * 100}%`;
  });
}

function drawEnded(place, now) {
  const newest = [...now.ended].reverse();
  list(place, newest, (each) => `${each.key} ${each.at} ${each.took}`, (each) => element("li", { className: each.outcome },
    element("code", { textContent: each.key }),
    element("b", { textContent: each.outcome === "expired" ? "timed out" : each.outcome }),
    element("span", { textContent: `after ${seconds(each.took)}` })), () => {});
}
