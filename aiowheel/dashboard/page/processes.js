// The table of the processes that share the dashboard, with buttons to choose one or all.

import { element, list, put } from "./element.js";
import { count, plural, putNumber, seconds } from "./words.js";

const HEAD = ["Process", "Build", "Pending", "Waiting", "Fired per second", "Most lateness"];

export function drawProcesses(place, processes, chosen, choose) {
  place.hidden = processes.length < 2 && !chosen;
  if (place.hidden) return;
  if (!place.firstChild) make(place, choose);
  put(place.querySelector("h2"), plural(processes.length, "process", "processes"));
  place.querySelector(".all").setAttribute("aria-pressed", String(!chosen));
  list(place.querySelector("tbody"), processes, (each) => each.name, (each) => element("tr", {},
    element("td", {}, element("button", { type: "button", onclick: () => choose(each.name) })),
    element("td"), ...HEAD.slice(2).map(() => element("td", { className: "num" }))),
  (row, each) => {
    const [name, build, ...numbers] = row.children;
    const [pending, waiting, fired, latest] = numbers;
    const isSilent = each.silent !== null;
    put(name.firstChild, String(each.id));
    name.firstChild.setAttribute("aria-pressed", String(each.name === chosen));
    name.firstChild.disabled = isSilent;
    row.classList.toggle("silent", isSilent);
    if (isSilent) {
      put(build, `no answer for ${seconds(each.silent)}`);
      numbers.forEach((place) => putNumber(place, 0, "-"));
      return;
    }
    put(build, `${each.version}, ${each.build}, ${each.python}, ${each.loop}`);
    putNumber(pending, each.pending);
    putNumber(waiting, each.waiting);
    putNumber(fired, each.fired, count(each.fired));
    put(latest, seconds(each.latest));
  });
}

function make(place, choose) {
  place.append(
    element("div", { className: "top" }, element("h2", { id: "processes-title" }),
      element("button", { type: "button", className: "all", textContent: "All", onclick: () => choose("") })),
    element("div", { className: "table" }, element("table", {},
      element("thead", {}, element("tr", {}, ...HEAD.map((text, index) => element(
        "th", { scope: "col", textContent: text, className: index > 1 ? "num" : "" },
      )))), element("tbody"))),
  );
}
