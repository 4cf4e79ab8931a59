// A small line chart of the last minutes, with a scale and the values at the pointer.

import { colours, prepared } from "./canvas.js";
import { element, put } from "./element.js";
import { SECONDS } from "./history.js";
import { seconds } from "./words.js";

const LEAST_SPAN = 60; // seconds
const FOOT = 3; // pixels below the zero line

// `names` are the names of the lines if there are several; `update` takes lines of [second, value or null].
export function chart(name, format, { log = false, names = [] } = {}) {
  const canvas = element("canvas", { role: "img", ariaLabel: name });
  const scale = element("span", { className: "top", ariaHidden: "true" });
  const since = element("span", { className: "since", ariaHidden: "true" });
  const hover = element("span", { className: "hover", hidden: true });
  const box = element("div", { className: "chart" }, canvas, scale, since, hover);
  let lines = [];
  let at = null; // position of the pointer, in pixels

  const redraw = () => {
    const plot = draw(canvas, lines, log, at);
    put(scale, plot && plot.top !== null ? format(plot.top) : "");
    put(since, plot ? `${seconds(plot.span, 2)} ago` : "");
    hover.hidden = !plot || plot.second === null;
    if (hover.hidden) return;
    const ago = plot.newest - plot.second;
    const said = plot.values.map((value, index) => (
      `${names[index] ? `${names[index]} ` : ""}${value === null ? "–" : format(value)}`));
    put(hover, `${ago ? `${ago} s ago` : "now"}: ${said.join(", ")}`);
  };
  box.addEventListener("pointermove", (event) => {
    at = event.clientX - canvas.getBoundingClientRect().left;
    redraw();
  });
  box.addEventListener("pointerleave", () => {
    at = null;
    redraw();
  });
  box.update = (now) => {
    lines = now;
    redraw();
    const values = lines.flat().map((each) => each[1]).filter((each) => each !== null);
    const range = values.length
      ? `from ${format(Math.min(...values))} to ${format(Math.max(...values))}` : "nothing yet";
    canvas.setAttribute("aria-label", `${name}, last ${SECONDS / 60} minutes: ${range}`);
  };
  return box;
}

function draw(canvas, lines, log, at) {
  const { pen, width, height } = prepared(canvas);
  const values = lines.flat().map((each) => each[1]).filter((each) => each > 0);
  const newest = Math.max(...lines.flat().map((each) => each[0]));
  if (!width || !Number.isFinite(newest)) return null;
  const top = Math.max(...values, log ? 1e-6 : 1e-9);
  const least = log ? Math.min(...values, top / 10) : 0;
  const share = (value) => (log
    ? Math.log(Math.max(value, least) / least) / Math.log(top / least) : value / top);
  const oldest = Math.min(...lines.flat().map((each) => each[0]));
  const span = Math.max(LEAST_SPAN, newest - oldest);
  const x = (second) => width * (1 - (newest - second) / span);
  const y = (value) => height - FOOT - share(value) * (height - FOOT - 14);
  lines.forEach((line, index) => drawLine(pen, line, x, y, {
    height, colour: [colours().accent, colours().good, colours().bad][index % 3],
    fill: lines.length === 1,
  }));
  let second = null;
  if (at !== null) {
    second = Math.round(newest - (1 - at / width) * span);
    pen.fillStyle = colours().soft;
    pen.fillRect(x(second), 0, 1, height);
  }
  const found = (line) => line.find((each) => each[0] === second);
  const under = lines.map((line) => (found(line) ? found(line)[1] : null));
  return { top: values.length ? top : null, newest, span, second, values: under };
}

function drawLine(pen, line, x, y, { height, colour, fill }) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  let from = null; // start of the current part of the line without a gap
  let before = null;
  const end = () => {
    if (from === null) return;
    pen.stroke();
    if (fill) {
      pen.lineTo(x(before), height);
      pen.lineTo(x(from), height);
      pen.globalAlpha = 0.13;
      pen.fill();
      pen.globalAlpha = 1;
    }
    from = null;
  };
  for (const [second, value] of line) {
    if (value === null || (before !== null && second > before + 2)) end();
    if (value !== null) {
      if (from === null) {
        pen.beginPath();
        from = second;
        pen.moveTo(x(second) - 1, y(value));
      }
      pen.lineTo(x(second), y(value));
      before = second;
    }
  }
  end();
}
