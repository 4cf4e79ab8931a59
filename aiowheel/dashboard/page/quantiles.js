// Durations of the last minutes: a line for each quantile, with its newest value.

import { chart } from "./chart.js";
import { element } from "./element.js";
import * as history from "./history.js";
import { putNumber, seconds } from "./words.js";

// `name` is that of the chart; `quantiles` are names and shares; `update` takes a function that
// reads the durations of a point. Without durations nothing is shown.
export function makeQuantiles(title, note, name, quantiles) {
  const names = quantiles.map((each) => each[0]);
  const lines = chart(name, seconds, { log: true, names });
  const values = names.map(() => element("b"));
  const box = element("div", {},
    element("h3", {}, `${title} `, element("small", { textContent: note })),
    element("p", { className: "legend" }, ...names.map((each, index) => element("span", {},
      element("i", { ariaHidden: "true" }), `${each} within `, values[index]))),
    lines);
  box.update = (read) => {
    const all = history.quantilesOverTime(read, quantiles.map((each) => each[1]));
    box.hidden = all.flat().every((each) => each[1] === null);
    if (!box.hidden) lines.update(all);
    values.forEach((place, index) => {
      const [, value] = all[index][all[index].length - 1] || [0, null];
      putNumber(place, value, value === null ? "–" : seconds(value));
    });
  };
  return box;
}
