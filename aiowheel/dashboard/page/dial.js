// Draws a wheel level as a dial: a ring of buckets, whose brightness shows their entries, and a hand.

import { colours, dark, prepared } from "./canvas.js";

const FULL = 2 * Math.PI;
const TOP = -Math.PI / 2;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const SHADES = 5;

// The colour of a bucket that holds 2 to the (power - 1) deadlines, where `top` is the brightest.
function shade(power, top) {
  const place = Math.min(1, (power - 1) / (top - 1)) * (SHADES - 1) + 1;
  const [one, other] = [Math.floor(place), Math.ceil(place)].map((at) => colours()[`lit${at}`]);
  const part = place % 1;
  const mixed = [1, 3, 5].map((at) => {
    const [a, b] = [one, other].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(a + (b - a) * part);
  });
  return `rgb(${mixed.join(" ")})`;
}

// `elapsed`: seconds since the snapshot; `top`: the digit of the fullest bucket of all dials.
export function drawDial(canvas, level, elapsed, top) {
  const { pen, width } = prepared(canvas);
  if (!width) return;
  const buckets = level.lit.length;
  const span = level.width * buckets;
  const at = level.hand + (still.matches ? 0 : elapsed);
  const turn = (at % span) / span;
  // The buckets that the hand has passed since the snapshot are empty now.
  const passed = at >= span ? buckets : Math.floor(at / level.width);
  pen.translate(width / 2, width / 2);
  const outer = width / 2 - 2;
  const inner = outer * 0.76;
  drawRing(pen, level.lit, passed, inner, outer, top);
  drawMarks(pen, inner);
  drawHand(pen, turn * FULL + TOP, inner, span < 2);
}

function drawRing(pen, lit, passed, inner, outer, top) {
  const step = FULL / lit.length;
  const gap = Math.min(step * 0.14, 0.012);
  const powers = [...lit].map((each, slot) => (slot < passed ? 0 : parseInt(each, 16)));
  for (const power of new Set(powers)) { // one path per colour
    pen.beginPath();
    powers.forEach((each, slot) => {
      if (each !== power) return;
      const from = slot * step + TOP + gap;
      const to = (slot + 1) * step + TOP - gap;
      pen.moveTo(Math.cos(from) * inner, Math.sin(from) * inner);
      pen.arc(0, 0, power === 0 ? outer - 3 : outer, from, to);
      pen.arc(0, 0, inner, to, from, true);
      pen.closePath();
    });
    pen.fillStyle = power === 0 ? colours().off : shade(power, top);
    pen.shadowColor = colours().lit4;
    pen.shadowBlur = power >= top - 1 && dark.matches ? 7 : 0; // slow, so only for the fullest
    pen.fill();
  }
  pen.shadowBlur = 0;
}

function drawMarks(pen, inner) {
  pen.strokeStyle = colours().soft;
  pen.lineWidth = 1;
  pen.globalAlpha = 0.55;
  pen.beginPath();
  for (let mark = 0; mark < 12; mark += 1) {
    const angle = (mark / 12) * FULL;
    const reach = inner * (mark % 3 ? 0.93 : 0.88);
    pen.moveTo(Math.cos(angle) * inner * 0.965, Math.sin(angle) * inner * 0.965);
    pen.lineTo(Math.cos(angle) * reach, Math.sin(angle) * reach);
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

function drawHand(pen, angle, inner, fast) {
  const length = inner * 0.9;
  const trail = fast ? 1.9 : 0.55;
  const fade = pen.createConicGradient(angle - trail, 0, 0);
  fade.addColorStop(0, "transparent");
  fade.addColorStop(trail / FULL, colours().accent);
  fade.addColorStop(Math.min(1, trail / FULL + 0.0001), "transparent");
  pen.globalAlpha = 0.3;
  pen.fillStyle = fade;
  pen.beginPath();
  pen.moveTo(0, 0);
  pen.arc(0, 0, length, angle - trail, angle);
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = colours().accent;
  pen.lineWidth = 2.5;
  pen.lineCap = "round";
  pen.beginPath();
  pen.moveTo(-Math.cos(angle) * inner * 0.14, -Math.sin(angle) * inner * 0.14);
  pen.lineTo(Math.cos(angle) * length, Math.sin(angle) * length);
  pen.stroke();
  pen.fillStyle = colours().accent;
  pen.beginPath();
  pen.arc(0, 0, 5, 0, FULL);
  pen.fill();
}
