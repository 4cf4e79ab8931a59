// A search for keys of one purgatory, and the operations that wait for a key.

import { element, list, put } from "./element.js";
import { count, plural, seconds } from "./words.js";

const PAUSE = 1000; // milliseconds between two requests for the operations of a key

export function makeDetails(purgatory, isPaused) {
  const field = element("input", { type: "search", placeholder: "part of a key", autocomplete: "off" });
  const found = element("ul", { className: "found" });
  const status = element("p", { className: "note", role: "status" });
  const form = element("form", { className: "search", role: "search", ariaLabel: `Keys of ${purgatory}` },
    element("label", {}, "Find keys ", field),
    element("button", { type: "submit", textContent: "Find" }));
  const title = element("h3");
  const operations = element("ul", { className: "operations" });
  const shown = element("div", { className: "one", hidden: true }, element("div", { className: "top" }, title,
    element("button", { type: "button", textContent: "Close", onclick: () => details.open(null) })), operations);
  const details = { box: element("div", { className: "details" }, form, status, found, shown), process: "", open };
  let key = null;
  let next = 0;
  let opening = 0; // number of the last opening: the requests of an earlier one end

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    put(status, "searching");
    const answer = await ask("keys", field.value);
    put(status, answer ? `${plural(answer.keys.length, "key")}${answer.more ? ", and more" : ""}` : "no answer");
    list(found, answer ? answer.keys : [], (each, index) => `${index} ${each[0]}`, ([name]) => element("li", {},
      element("button", { type: "button", className: "key", onclick: () => open(name) },
        element("code", { textContent: name })), element("span")),
    (row, [, waiters, value]) => put(row.lastChild,
      `${plural(waiters, "waiter")}${value === null ? "" : `, at ${value}`}`));
  });

  async function ask(what, text) {
    const query = new URLSearchParams({ purgatory, text, process: details.process });
    try {
      const answer = await fetch(`${what}?${query}`);
      return answer.ok ? await answer.json() : null;
    } catch {
      return null; // the server does not answer; the stream shows that as its state
    }
  }

  function open(wanted) {
    clearTimeout(next);
    opening += 1;
    key = wanted;
    shown.hidden = key === null;
    if (key !== null) refresh(opening);
  }

  async function refresh(mine) {
    if (!isPaused() && !document.hidden) {
      const answer = await ask("operations", key);
      if (opening !== mine) return;
      if (answer) draw(answer);
    }
    next = setTimeout(refresh, PAUSE, mine);
  }

  function draw(answer) {
    const value = answer.value === null ? "" : `, now at ${answer.value}`;
    const first = answer.operations.length < answer.waiters ? `; the first ${answer.operations.length}` : "";
    put(title, `${answer.key}: ${plural(answer.waiters, "waiter")}${value}${first}`);
    list(operations, answer.operations, (each) => `${each.process} ${each.id}`, () => element("li", {},
      element("details", {}, element("summary"), element("dl"))), (row, each) => {
      const [summary, facts] = row.firstChild.children;
      put(summary, `${each.kind} waits ${seconds(each.age)}, ${each.left === null
        ? "without a limit" : `${seconds(Math.max(0, each.left))} left`}`);
      const all = [
        ["waits for", each.keys[0] + reason(each)],
        ["keys", each.keys.join(" · ") + (each.more >= each.keys.length ? " …" : "")],
        ["checks", count(each.checks)],
        ...(each.process ? [["process", each.process.split("-")[0]]] : []),
        ["operation", each.text],
      ];
      list(facts, all, (fact) => fact[0], ([name]) => element("div", {},
        element("dt", { textContent: name }), element("dd")), (box, [, text]) => put(box.lastChild, text));
    });
  }

  return details;
}

// The condition that an operation waits for, as text to follow its key.
export function reason(each) {
  const more = each.more > 0 ? `, and ${plural(each.more, "more key")}` : "";
  if (each.wants !== null) {
    const stands = each.value === null ? "without a value yet" : `now at ${each.value}`;
    return ` to reach ${each.wants}, ${stands}${more}`;
  }
  const checked = each.checks === 1 ? "once" : `${count(each.checks)} times`;
  return `${more}; ${each.kind}, checked ${checked}, not met`;
}
