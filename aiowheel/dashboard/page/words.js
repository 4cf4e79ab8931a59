// Numbers as text.

import { put } from "./element.js";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

export function seconds(value, digits = 3) {
  if (!(value > 0)) return "0 s";
  const [size, unit] = UNITS.find(([least]) => value >= least * 0.9995) || UNITS[UNITS.length - 1];
  return `${Number((value / size).toPrecision(digits))} ${unit}`;
}

export function count(value) {
  if (value >= 99_950) {
    const [size, unit] = value >= 99_950_000 ? [1e6, "M"] : [1e3, "k"];
    return `${Math.round(value / size).toLocaleString("en")} ${unit}`;
  }
  return (value < 10 ? Math.round(value * 10) / 10 : Math.round(value)).toLocaleString("en");
}

export function share(part) {
  return `${Number((part * 100).toPrecision(part < 0.1 ? 2 : 3))} %`;
}

export function plural(number, noun, nouns = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : nouns}`;
}

// Writes a number into its element; zeros are grey.
export function putNumber(place, number, text = count(number)) {
  put(place, text);
  place.classList.toggle("zero", !number);
}
