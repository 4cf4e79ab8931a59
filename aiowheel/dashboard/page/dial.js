// One wheel level as a dial: a ring of buckets, lit by what they hold, and a hand.

const FULL = 2 * Math.PI;
const TOP = -Math.PI / 2;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

let colours = read();
dark.addEventListener("change", () => { colours = read(); });

function read() {
  const style = getComputedStyle(document.documentElement);
  const names = ["off", "lit1", "lit2", "lit3", "lit4", "lit5", "ink", "soft", "accent", "line"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// Sizes the canvas to its place on the screen; the context then draws in CSS pixels.
function prepared(canvas) {
  const scale = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

// `elapsed`: seconds since the sample was taken.
export function drawDial(canvas, level, elapsed) {
  const { pen, width } = prepared(canvas);
  if (!width) return;
  const buckets = level.lit.length;
  const span = level.width * buckets;
  const at = level.hand + (still.matches ? 0 : elapsed);
  const turn = (at % span) / span;
  // Buckets the hand has passed since the sample are empty by now.
  const passed = at >= span ? buckets : Math.floor(at / level.width);
  pen.translate(width / 2, width / 2);
  const outer = width / 2 - 2;
  const inner = outer * 0.76;
  drawRing(pen, level.lit, passed, inner, outer);
  drawMarks(pen, inner);
  drawHand(pen, turn * FULL + TOP, inner, span < 2);
}

function drawRing(pen, lit, passed, inner, outer) {
  const step = FULL / lit.length;
  const gap = Math.min(step * 0.14, 0.012);
  for (let shade = 0; shade <= 5; shade += 1) { // one path a colour
    pen.beginPath();
    for (let slot = 0; slot < lit.length; slot += 1) {
      if ((slot < passed ? 0 : Number(lit[slot])) !== shade) continue;
      const from = slot * step + TOP + gap;
      const to = (slot + 1) * step + TOP - gap;
      const reach = shade === 0 ? outer - 3 : outer;
      pen.moveTo(Math.cos(from) * inner, Math.sin(from) * inner);
      pen.arc(0, 0, reach, from, to);
      pen.arc(0, 0, inner, to, from, true);
      pen.closePath();
    }
    pen.fillStyle = shade === 0 ? colours.off : colours[`lit${shade}`];
    pen.shadowColor = colours.lit4;
    pen.shadowBlur = shade >= 4 && dark.matches ? 7 : 0;
    pen.fill();
  }
  pen.shadowBlur = 0;
}

function drawMarks(pen, inner) {
  pen.strokeStyle = colours.soft;
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
  fade.addColorStop(trail / FULL, colours.accent);
  fade.addColorStop(Math.min(1, trail / FULL + 0.0001), "transparent");
  pen.globalAlpha = 0.3;
  pen.fillStyle = fade;
  pen.beginPath();
  pen.moveTo(0, 0);
  pen.arc(0, 0, length, angle - trail, angle);
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 2.5;
  pen.lineCap = "round";
  pen.beginPath();
  pen.moveTo(-Math.cos(angle) * inner * 0.14, -Math.sin(angle) * inner * 0.14);
  pen.lineTo(Math.cos(angle) * length, Math.sin(angle) * length);
  pen.stroke();
  pen.fillStyle = colours.accent;
  pen.beginPath();
  pen.arc(0, 0, 5, 0, FULL);
  pen.fill();
}

// A line over the last samples, the newest at the right.
export function drawSpark(canvas, values, most) {
  const { pen, width, height } = prepared(canvas);
  if (!width || values.length < 2) return;
  const top = Math.max(...values, 1e-9);
  const x = (index) => width - ((values.length - 1 - index) / (most - 1)) * width;
  const y = (value) => height - 2 - (value / top) * (height - 6);
  pen.beginPath();
  values.forEach((value, index) => pen.lineTo(x(index), y(value)));
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.stroke();
  pen.lineTo(width, height);
  pen.lineTo(x(0), height);
  pen.globalAlpha = 0.13;
  pen.fillStyle = colours.accent;
  pen.fill();
  pen.globalAlpha = 1;
}
