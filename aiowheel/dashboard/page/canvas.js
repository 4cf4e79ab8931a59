// What all drawings need: the colours of the page, and a context in CSS pixels.

export const dark = matchMedia("(prefers-color-scheme: dark)");

let now = read();
dark.addEventListener("change", () => { now = read(); });

export const colours = () => now;

function read() {
  const style = getComputedStyle(document.documentElement);
  const names = [
    "off", "lit1", "lit2", "lit3", "lit4", "lit5", "ink", "soft", "accent", "line", "good", "bad",
  ];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// Sizes and clears the canvas, and returns a context that draws in CSS pixels.
export function prepared(canvas) {
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
