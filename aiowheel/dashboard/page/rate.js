// Growth of the counts over the samples of the last minute.

export const MINUTE = 240; // samples

// How much a count grew a second, over the last second or so.
export function rate(samples, read) {
  if (samples.length < 2) return 0;
  const newest = samples[samples.length - 1];
  const before = samples[Math.max(0, samples.length - 5)];
  return (read(newest) - read(before)) / Math.max(newest.at - before.at, 0.001);
}
