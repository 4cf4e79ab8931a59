// The points of the last seconds, as the server keeps them.

export const SECONDS = 300;

const points = new Map(); // by second

export function forget() {
  points.clear();
}

// A point replaces an earlier one of its second: the counts of another process may have been added.
export function remember(news) {
  for (const point of news) points.set(point.second, point);
  const newest = Math.max(...points.keys());
  for (const second of points.keys()) if (second <= newest - SECONDS) points.delete(second);
}

// The points of the last seconds, oldest first.
export function last(count = SECONDS) {
  const seconds = [...points.keys()].sort((a, b) => a - b);
  const newest = seconds[seconds.length - 1];
  return seconds.filter((second) => second > newest - count).map((second) => points.get(second));
}

// A number of the last point, for "per second"; 0 if there is no point.
export function latest(read) {
  const [point] = last(1);
  return point ? read(point) || 0 : 0;
}

export function total(count, read) {
  return last(count).reduce((sum, point) => sum + (read(point) || 0), 0);
}

// The durations of several points: upper edges and counts, shortest first.
export function durations(some, read) {
  const sums = new Map();
  for (const point of some) {
    for (const [edge, count] of read(point) || []) sums.set(edge, (sums.get(edge) || 0) + count);
  }
  return [...sums].sort((a, b) => a[0] - b[0]);
}

// The duration that a share `q` of the durations does not exceed; null if there are none.
export function quantile(buckets, q) {
  const wanted = q * buckets.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [edge, count] of buckets) {
    seen += count;
    if (seen >= wanted) return edge;
  }
  return null;
}

// For each quantile a line: at each second, the quantile of the last `width` seconds.
export function quantilesOverTime(read, qs, width = 5) {
  const all = last();
  let from = 0; // the first point of a window
  const windows = all.map((point, index) => {
    while (all[from].second <= point.second - width) from += 1;
    return [point.second, durations(all.slice(from, index + 1), read)];
  });
  return qs.map((q) => windows.map(([second, buckets]) => [second, quantile(buckets, q)]));
}
