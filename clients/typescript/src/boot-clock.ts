// The clock of local deadlines: monotonic, in milliseconds, and it counts the time in which the machine is suspended.
//
// `process.hrtime` stops during a suspend. `os.uptime` does not, but has a resolution of 10 ms. So the time is that of `hrtime` plus
// the suspends: whenever `uptime` has gained more than the resolution explains, the difference is added.

import { uptime } from "node:os";

/** A gain of `os.uptime` over `process.hrtime` that its resolution and slow calls do not explain. */
const SUSPEND_THRESHOLD_MS = 250;

/** State of a clock that several threads share. */
export interface ClockShare {
  /** `uptime - hrtime` at the start, in milliseconds. */
  readonly base: number;
  /** One BigInt64: microseconds by which a test moved the clock. */
  readonly offset: SharedArrayBuffer;
}

/** A clock that includes suspend. Threads that share a {@link ClockShare} read the same time. */
export class BootClock {
  readonly share: ClockShare;
  readonly #offset: BigInt64Array;
  #suspendedMs = 0;

  constructor(share?: ClockShare) {
    this.share = share ?? { base: uptime() * 1000 - monotonicMs(), offset: new SharedArrayBuffer(8) };
    this.#offset = new BigInt64Array(this.share.offset);
  }

  /** Milliseconds since an arbitrary start. */
  now(): number {
    // `uptime` first: a thread that is paused between the two calls must not see a suspend that did not happen.
    const boot = uptime() * 1000;
    const monotonic = monotonicMs();
    const gained = boot - monotonic - this.share.base;
    if (gained > this.#suspendedMs + SUSPEND_THRESHOLD_MS) this.#suspendedMs = gained;
    return monotonic + this.#suspendedMs + Number(Atomics.load(this.#offset, 0)) / 1000;
  }

  /** Moves the clock ahead, as after a suspend of the machine. Timers do not move. */
  protected moveAhead(ms: number): void {
    Atomics.add(this.#offset, 0, BigInt(Math.round(ms * 1000)));
  }
}

function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

/**
 * A clock that a test can move ahead, for {@link ClientOptions.clock}. It shows a client what a process sees after a suspend of the
 * machine: time has passed, and no timer has fired.
 */
export class TestClock extends BootClock {
  readonly #listeners = new Set<() => void>();

  /** Moves the clock ahead by this many milliseconds. */
  advance(ms: number): void {
    this.moveAhead(ms);
    for (const listener of this.#listeners) listener();
  }

  /** @internal */
  onAdvance(listener: () => void): void {
    this.#listeners.add(listener);
  }
}
