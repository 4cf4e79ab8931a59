// What waits in each purgatory: counts, hot keys, the oldest operations, those that just ended.

import { element, list, put } from "./element.js";
import { rate } from "./rate.js";
import { count, seconds, share } from "./words.js";

const MOST_ENDED = 10;
const ended = new Map(); // by purgatory: the last that ended, newest first
let drawn = null;
let number = 0;

const COUNTS = [
  ["pending", "", (now) => count(now.pending)],
  ["links to keys", "", (now) => count(now.watched)],
  ["completed a second", "good", (now, ago) => count(ago((each) => each.completed))],
  ["timed out a second", "bad", (now, ago) => count(ago((each) => each.expired))],
  ["cancelled a second", "", (now, ago) => count(ago((each) => each.cancelled))],
  ["failed", "", (now) => count(now.failed)],
  ["timed out, last minute", "bad", (now, ago, minute) => minute],
];

export function drawPurgatories(place, sample, history) {
  if (drawn !== sample.run) ended.clear();
  drawn = sample.run;
  list(place, sample.purgatories, (each, index) => index, make, (box, now, index) => {
    put(box.querySelector("h2"), `Purgatory ${now.name}`);
    drawCounts(box.querySelector(".counts"), now, index, history);
    drawKeys(box.querySelector(".keys"), now.keys);
    drawOldest(box.querySelector("tbody"), now.oldest);
    put(box.querySelector(".empty"), now.oldest.length ? "" : "Nothing waits.");
    box.querySelector("table").hidden = !now.oldest.length;
    drawEnded(box.querySelector(".ended"), now, index);
  });
}

function make(now, index) {
  const id = `purgatory-${index}`;
  const head = ["Waits for", "Kind", "Waiting", "Time left", ""].map((text, at) => element(
    "th", { scope: "col", textContent: text, className: at === 2 || at === 3 ? "num" : "" },
  ));
  head[4].setAttribute("aria-label", "How much of its time is gone");
  const box = element("section", { className: "purgatory panel" },
    element("div", { className: "top" }, element("h2", { id }), element("dl", { className: "counts" })),
    element("div", { className: "cols" },
      element("div", {}, element("h3", { textContent: "Hottest keys" }), element("ol", { className: "keys" })),
      element("div", {}, element("h3", { textContent: "Waiting longest" }),
        element("div", { className: "table" }, element("table", {},
          element("thead", {}, element("tr", {}, ...head)), element("tbody"))),
        element("p", { className: "empty" }))),
    element("div", {}, element("h3", { textContent: "Just ended, of those seen here" }),
      element("ul", { className: "ended" })));
  box.setAttribute("aria-labelledby", id);
  return box;
}

function drawCounts(place, now, index, history) {
  const first = history[0].purgatories[index];
  const done = now.completed - first.completed;
  const expired = now.expired - first.expired;
  const minute = done + expired ? share(expired / (done + expired)) : "–";
  const ago = (read) => rate(history, (sample) => read(sample.purgatories[index]));
  list(place, COUNTS, (each) => each[0], ([name, kind]) => element("div", { className: kind },
    element("dt", { textContent: name }), element("dd")), (box, [, , read]) => {
    put(box.lastChild, read(now, ago, minute));
  });
}

function drawKeys(place, keys) {
  const most = Math.max(1, ...keys.map((each) => each[1]));
  list(place, keys, (each) => each[0], () => element("li", {},
    element("i"), element("code"), element("span")), (row, [key, waiters]) => {
    row.firstChild.style.width = `${(waiters / most) * 100}%`;
    put(row.children[1], key);
    row.title = key;
    put(row.lastChild, count(waiters));
  });
}

function drawOldest(place, oldest) {
  list(place, oldest, (each) => each.id, () => element("tr", {},
    element("td"), element("td"), element("td", { className: "num" }),
    element("td", { className: "num" }),
    element("td", { className: "life" }, element("span", { className: "bar" }, element("i")))),
  (row, each) => {
    const [why, kind, age, left, life] = row.children;
    if (why.textContent !== reason(each).join("")) {
      const [before, key, after] = reason(each);
      why.replaceChildren(before, element("code", { textContent: key }), after);
    }
    put(kind, each.kind);
    put(age, seconds(each.age));
    put(left, each.left === null ? "no limit" : seconds(Math.max(0, each.left)));
    left.classList.toggle("limited", each.left !== null);
    const gone = each.left === null ? 0 : each.age / (each.age + Math.max(0, each.left));
    life.firstChild.firstChild.style.width = `${Math.min(1, gone) * 100}%`;
  });
}

// Why it waits, in words: before the key, the key, after it.
function reason(each) {
  const more = each.more > 0 ? `, and ${each.more} more ${each.more === 1 ? "key" : "keys"}` : "";
  if (each.wants !== null) {
    const stands = each.value === null ? "without a value yet" : `now at ${each.value}`;
    return ["", each.key, ` to reach ${each.wants}, ${stands}${more}`];
  }
  const asked = each.checks === 1 ? "once" : `${count(each.checks)} times`;
  return ["", each.key, `${more}; asked ${asked}, not met`];
}

function drawEnded(place, now, index) {
  const news = now.ended.map((each) => ({ ...each, number: (number += 1) })).reverse();
  const all = [...news, ...(ended.get(index) || [])].slice(0, MOST_ENDED);
  ended.set(index, all);
  list(place, all, (each) => each.number, (each) => element("li", { className: each.outcome },
    element("code", { textContent: each.key }),
    element("b", { textContent: each.outcome === "expired" ? "timed out" : each.outcome }),
    element("span", { textContent: `after ${seconds(each.took)}` })), () => {});
}
