// Durable timers: pending timers by hour ahead, partitions by owner, and lateness in this process.

import { element, list, put } from "./element.js";
import * as history from "./history.js";
import { makeQuantiles } from "./quantiles.js";
import { count, plural, putNumber } from "./words.js";

const QUANTILES = [["half", 0.5], ["99 %", 0.99]];
const COUNTS = [
  ["pending", "", (now) => now.store && now.store.pending],
  ["late", "bad", (now) => now.store && now.store.overdue],
  ["in flight", "", (now) => now.in_flight],
  ["dead", "bad", (now) => now.store && now.store.dead],
  ["fired per second", "good", (now, of) => history.latest((point) => of(point).fired)],
  ["retried per second", "bad", (now, of) => history.latest((point) => of(point).retried)],
  ["in memory", "", (now) => now.resident],
];

export function drawDurable(place, durable, isNew) {
  list(place, durable, (each) => each.name, make, (box, now) => {
    const of = (point) => (point.durable || {})[now.name] || {};
    list(box.querySelector(".counts"), COUNTS, (each) => each[0], ([name, kind]) => element("div", { className: kind },
      element("dt", { textContent: name }), element("dd")),
    (line, [, , read]) => {
      const number = read(now, of);
      putNumber(line.lastChild, number, number === null ? "–" : count(number));
    });
    if (isNew) box.late.update((point) => of(point).late);
    box.querySelector(".cols").hidden = !now.store;
    put(box.querySelector(".note"), storeNote(now));
    if (!now.store) return;
    drawHours(box, now.store);
    drawOwners(box.querySelector("tbody"), now);
  });
}

function storeNote(now) {
  if (now.failure) return `The store could not be counted: ${now.failure}. The numbers below are older.`;
  return now.store ? "" : "The store is being counted.";
}

function make(now, index) {
  const id = `durable-${index}`;
  const late = makeQuantiles("Lateness", "of fires in five seconds", `Lateness of ${now.name}`, QUANTILES);
  const box = element("section", { className: "purgatory durable panel" },
    element("div", { className: "top" }, element("h2", { id, textContent: `Durable timers ${now.name}` }),
      element("dl", { className: "counts" })),
    element("p", { className: "note" }),
    late,
    element("div", { className: "cols" },
      element("div", {}, element("h3", { id: `${id}-hours`, textContent: "Pending by hour ahead" }),
        element("div", { className: "hours", role: "img" }), element("p", { className: "later" })),
      element("div", {}, element("h3", { textContent: "Owners of partitions" }),
        element("div", { className: "table" }, element("table", { className: "owners" },
          element("thead", {}, element("tr", {}, element("th", { scope: "col", textContent: "Process" }),
            element("th", { scope: "col", className: "num", textContent: "Partitions" }))),
          element("tbody"))))));
  box.setAttribute("aria-labelledby", id);
  box.late = late;
  return box;
}

function drawHours(box, { hours, pending, overdue }) {
  const most = Math.max(1, ...hours);
  const place = box.querySelector(".hours");
  list(place, hours, (number, hour) => hour, () => element("div", { className: "bin" },
    element("i"), element("span")), (bin, number, hour) => {
    bin.firstChild.style.height = `${(number / most) * 100}%`;
    bin.firstChild.className = number ? "" : "none";
    const what = hour === 0 ? `within an hour, ${plural(overdue, "late timer")} included` : `in ${hour} to ${hour + 1} hours`;
    bin.title = `${count(number)} due ${what}`;
    put(bin.lastChild, hour % 6 === 0 || hour === 23 ? `${hour} h` : "");
  });
  place.setAttribute("aria-label", hours.map((number, hour) => `${hour} h: ${number}`).join(", "));
  const later = pending - hours.reduce((sum, number) => sum + number, 0);
  put(box.querySelector(".later"), `Most in an hour: ${count(most)}. Due after a day: ${count(Math.max(0, later))}.`);
}

function drawOwners(place, now) {
  const owners = Object.entries(now.store.owners).sort((a, b) => b[1] - a[1]);
  list(place, owners, ([owner]) => owner, () => element("tr", {},
    element("td", {}, element("code")), element("td", { className: "num" })),
  (row, [owner, parts]) => {
    const here = owner && owner === now.owner ? ", this process" : "";
    put(row.querySelector("code"), owner ? `${owner}${here}` : "none");
    put(row.lastChild, count(parts));
  });
}
