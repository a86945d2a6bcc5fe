// Times of timers.

/** A time that a timer of Node.js can wait. It would fire at once for a longer one. */
export function timerMs(ms: number): number {
  return Math.min(ms, 2 ** 31 - 1);
}
