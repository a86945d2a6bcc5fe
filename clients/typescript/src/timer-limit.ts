// Limits a time to the longest one that a timer of Node.js can wait.

/** At most 2^31 - 1 ms: a timer of Node.js fires at once for a longer time. */
export function timerMs(ms: number): number {
  return Math.min(ms, 2 ** 31 - 1);
}
