"""The scripts of the page, which Node.js runs without a browser, in virtual time."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aiowheel.dashboard

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

PAGE = Path(aiowheel.dashboard.__file__).with_name("page")
NODE = shutil.which("node") or ""
DASH = "\u2013"  # shown in place of a missing number
RunScript = Callable[[str], Any]


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """A function that runs a program beside the scripts; it returns what the program prints."""
    if not NODE:
        pytest.skip("Node.js is not installed")
    shutil.copytree(PAGE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")

    def run(text: str) -> Any:
        (tmp_path / "program.js").write_text(text, "utf-8")
        ended = subprocess.run(
            [NODE, "program.js"],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return run


#: What the scripts need of a browser to create their elements.
BROWSER = """
globalThis.devicePixelRatio = 1;
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
globalThis.requestAnimationFrame = () => {};
const made = (tag) => ({
  tag, children: [], textContent: "", classList: { toggle() {} },
  append(...more) { this.children.push(...more); },
  setAttribute() {}, addEventListener() {}, querySelectorAll: () => [], querySelector: () => made(),
  getContext: () => ({ setTransform() {}, clearRect() {} }),
});
globalThis.document = {
  hidden: true, createElement: made, getElementById: made, addEventListener() {},
  querySelector: made, querySelectorAll: () => [],
};
globalThis.location = { hash: "" };
globalThis.addEventListener = () => {};
"""

OPEN_KEYS = """
import { makeDetails } from "./details.js";

const timers = new Map();
const pending = [];
let asked = [];
globalThis.document = { hidden: false, createElement: () => (
  { children: [], append() {}, setAttribute() {}, addEventListener() {} }) };
globalThis.setTimeout = (run, _, ...args) => timers.set(timers.size, () => run(...args)).size - 1;
globalThis.clearTimeout = (number) => timers.delete(number);
globalThis.fetch = (url) => {
  asked.push(new URLSearchParams(url.split("?")[1]).get("text"));
  return new Promise((resolve) => pending.push(resolve));
};

const answer = { key: "k", waiters: 0, value: null, operations: [] };
const turn = () => new Promise((resolve) => setImmediate(resolve));
async function answerAll() {
  for (const resolve of pending.splice(0)) resolve({ ok: true, json: async () => answer });
  await turn();
}
async function pass() { // one pause: every timer runs, and every request is answered
  asked = [];
  for (const [number, run] of [...timers]) {
    timers.delete(number);
    run();
  }
  await answerAll();
  return [...asked];
}

const details = makeDetails("p", () => false);
const rounds = [];
"""


def test_a_key_that_is_opened_twice_is_asked_for_once_a_second(run_script: RunScript) -> None:
    """The first answer of the first opening comes after the second one, as for a double click."""
    rounds = run_script(
        OPEN_KEYS
        + """
details.open("k");
details.open("k");
await answerAll();
rounds.push(await pass(), await pass());
details.open(null);
rounds.push(await pass());
console.log(JSON.stringify(rounds));
"""
    )

    assert rounds == [["k"], ["k"], []]


def test_a_key_that_is_closed_and_opened_again_is_asked_for_once_a_second(
    run_script: RunScript,
) -> None:
    """The key is opened again before the first answer has come."""
    rounds = run_script(
        OPEN_KEYS
        + """
details.open("k");
details.open(null);
details.open("k");
await answerAll();
rounds.push(await pass());
details.open("other");
await answerAll();
rounds.push(await pass());
console.log(JSON.stringify(rounds));
"""
    )

    assert rounds == [["k"], ["other"]]


def test_quantiles_over_time_read_each_point_once_per_window(run_script: RunScript) -> None:
    """A window is five seconds, also across a gap; its durations are summed for all quantiles."""
    read, median, highest = run_script(
        """
import { quantilesOverTime, remember } from "./history.js";

remember([1, 2, 3, 4, 5, 6, 7, 20, 21].map((second) => ({ second, late: [[second, 1]] })));
remember([{ second: 22, late: [] }, { second: 40, late: [] }]);
let read = 0;
const lines = quantilesOverTime((point) => { read += 1; return point.late; }, [0.5, 1]);
console.log(JSON.stringify([read, ...lines]));
"""
    )

    assert read == (1 + 2 + 3 + 4 + 5 + 5 + 5) + (1 + 2 + 3) + 1
    assert median == [
        [1, 1], [2, 1], [3, 2], [4, 2], [5, 3], [6, 4], [7, 5], [20, 20], [21, 20], [22, 20],
        [40, None],
    ]  # fmt: skip
    assert [value for _, value in highest] == [1, 2, 3, 4, 5, 6, 7, 20, 21, 21, None]


def test_every_import_of_a_script_exists(run_script: RunScript) -> None:
    """The page starts."""
    script = BROWSER + 'await import("./page.js");\nconsole.log("true");\n'

    assert run_script(script) is True


def test_quantiles_are_shown_if_there_are_durations(run_script: RunScript) -> None:
    """The legend has the newest values."""
    empty, filled, later = run_script(
        BROWSER
        + """
const { remember } = await import("./history.js");
const { makeQuantiles } = await import("./quantiles.js");
const box = makeQuantiles("Title", "note", "name", [["half", 0.5], ["all", 1]]);
const shown = [];
function show() {
  box.update((point) => point.took);
  shown.push([box.hidden, ...box.children[1].children.map((each) => each.children[2].textContent)]);
}
remember([{ second: 1, took: [] }]);
show();
remember([{ second: 2, took: [[0.5, 1], [2, 1]] }]);
show();
remember([{ second: 9, took: [] }]);
show();
console.log(JSON.stringify(shown));
"""
    )

    assert empty == [True, DASH, DASH]
    assert filled == [False, "500 ms", "2 s"]
    assert later == [False, DASH, DASH]
