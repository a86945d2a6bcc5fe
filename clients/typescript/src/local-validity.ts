// Local validity of a lease or a received message: its deadline by the local clock, its state, and the signal that stops work.

import type { BootClock } from "./boot-clock.js";
import { LeaseLostError, LeaseSuspendedError, WaitTimeoutError, type LostState } from "./errors.js";
import { allowListeners } from "./linked-signal.js";
import type { DeadlineCell } from "./shared-memory.js";
import { timerMs } from "./timer-limit.js";
import { TypedEvents } from "./typed-events.js";

/**
 * What a holder knows by its own clock: `held`, work may continue until the deadline; `suspended`, the deadline has passed, and work
 * must stop; `lost`, the server ended the lease.
 */
export type HoldState = "held" | "suspended" | "lost";

/** How a lease ended. */
export interface Loss {
  /** `expired`, `released`, `revoked`, or `not_current` if the server no longer knows. */
  readonly state: LostState;
  /** Why, for example `ttl`, `session` or `operator`; undefined if unknown. */
  readonly reason: string | undefined;
}

/** Events of a lease or a received message. */
export type HoldEvents = {
  /** The local deadline passed. */
  suspended: [];
  /** The same token was renewed after a suspension. Work that was stopped stays stopped. */
  resumed: [];
  /** The server ended the lease. */
  lost: [Loss];
  /** A handoff or a revocation with grace has started: finish within this many milliseconds. */
  draining: [number];
  /** Something changed that one of the `wait…` methods may wait for. */
  changed: [];
};

/** Deadlines of one hold in shared memory. */
export interface HoldCells {
  readonly own: DeadlineCell;
  readonly session: DeadlineCell;
}

/** A lease or a received message. */
export abstract class Hold extends TypedEvents<HoldEvents> {
  readonly #clock: BootClock;
  readonly #cells: HoldCells;
  #loss: Loss | undefined;
  #lastState: HoldState = "held";
  #seenSuspensions: number;
  #isDraining = false;
  #stop: AbortController | undefined;
  #stopReason: LeaseLostError | LeaseSuspendedError | undefined;
  #drain: AbortController | undefined;
  readonly #running = new Set<AbortController>();

  /** @internal */
  constructor(clock: BootClock, cells: HoldCells) {
    super();
    this.#clock = clock;
    this.#cells = cells;
    this.#seenSuspensions = this.#suspensions();
  }

  /** The state now, by the local clock and the renewal thread. Right even if the event loop was blocked. */
  get state(): HoldState {
    if (this.#loss || this.#cells.own.ended || this.#cells.session.ended) return "lost";
    return this.#clock.now() < this.#deadline() ? "held" : "suspended";
  }

  /** Whether work may continue now. */
  get isHeld(): boolean {
    return this.state === "held";
  }

  /** How the lease ended; undefined while it has not. */
  get loss(): Loss | undefined {
    if (this.#loss) return this.#loss;
    return this.state === "lost" ? { state: "expired", reason: this.#cells.session.ended ? "session" : undefined } : undefined;
  }

  /** Milliseconds until the local deadline, 0 if it has passed. */
  remaining(): number {
    if (this.state !== "held") return 0;
    return Math.max(0, this.#deadline() - this.#clock.now());
  }

  /**
   * Aborted when work must stop: at the local deadline, or when the lease ends. Its reason is a {@link LeaseSuspendedError} or a
   * {@link LeaseLostError}. It stays aborted, even if the lease is renewed later.
   */
  get signal(): AbortSignal {
    if (!this.#stop) {
      this.#stop = new AbortController();
      this.refresh();
      if (this.#stopReason) this.#stop.abort(this.#stopReason);
    }
    return this.#stop.signal;
  }

  /**
   * Runs work under the lease, without releasing it. Its signal is aborted at the next suspension or loss; unlike {@link Hold.signal} it
   * is a new one, so a lease that was resumed can run other work. Rejects with the reason if the lease was not kept.
   */
  async run<T>(work: (signal: AbortSignal) => Promise<T> | T): Promise<T> {
    this.refresh();
    const stop = new AbortController();
    if (this.state !== "held") stop.abort(this.state === "lost" ? this.lossError() : new LeaseSuspendedError());
    this.#running.add(stop);
    try {
      const result = await work(stop.signal);
      this.refresh();
      stop.signal.throwIfAborted();
      return result;
    } finally {
      this.#running.delete(stop);
    }
  }

  /** Throws if work may not continue now, or was stopped before. */
  throwIfStopped(): void {
    this.refresh();
    if (this.#stopReason) throw this.#stopReason;
  }

  /** Aborted when a handoff or a revocation with grace starts: finish the work, then release. */
  get drainSignal(): AbortSignal {
    this.refresh();
    if (!this.#drain) {
      this.#drain = new AbortController();
      if (this.#isDraining) this.#drain.abort();
    }
    return this.#drain.signal;
  }

  /** Milliseconds in which a draining holder must finish; undefined if it is not draining. */
  get draining(): number | undefined {
    const until = this.#cells.own.drainUntil;
    return until === Infinity ? undefined : Math.max(0, until - this.#clock.now());
  }

  /** Waits until a handoff or a revocation with grace starts, and returns the time left. Rejects if the lease is lost before. */
  waitDraining(options: { signal?: AbortSignal; timeout?: number } = {}): Promise<number> {
    return this.waitFor(options, () => {
      const left = this.draining;
      if (left !== undefined) {
        // The worker thread may have written it just now: the signal is aborted before anyone sees that the wait has ended.
        this.refresh();
        return left;
      }
      if (this.state === "lost") throw this.lossError();
      return undefined;
    });
  }

  /** Waits until the lease is in one of these states. */
  waitState(states: readonly HoldState[], options: { signal?: AbortSignal; timeout?: number } = {}): Promise<HoldState> {
    return this.waitFor(options, () => (states.includes(this.state) ? this.state : undefined));
  }

  /** Waits until the server has ended the lease. */
  async waitLost(options: { signal?: AbortSignal; timeout?: number } = {}): Promise<Loss> {
    return await this.waitFor(options, () => (this.#loss !== undefined ? this.#loss : undefined));
  }

  /** The error of a lost lease. */
  protected lossError(): LeaseLostError {
    const loss = this.loss ?? { state: "expired", reason: undefined };
    return new LeaseLostError(loss.state, loss.reason);
  }

  /** @internal Compares shared memory with what was reported, and reports changes. */
  refresh(): void {
    const state = this.state;
    const suspensions = this.#suspensions();
    const wasSuspended = suspensions !== this.#seenSuspensions || state === "suspended";
    this.#seenSuspensions = suspensions;
    if (state === "lost") this.#stopWork(this.lossError());
    else if (wasSuspended) this.#stopWork(new LeaseSuspendedError());
    if (!this.#isDraining && this.#cells.own.drainUntil !== Infinity) {
      this.#isDraining = true;
      this.#drain?.abort();
      this.emitEvent("draining", this.draining ?? 0);
    }
    if (state === this.#lastState && !wasSuspended) return;
    const before = this.#lastState;
    this.#lastState = state;
    // Wakes the `wait…` methods also for an end whose reason is not known yet.
    this.emitEvent("changed");
    if (wasSuspended && before === "held" && state !== "lost") this.emitEvent("suspended");
    if (state === "held") this.emitEvent("resumed");
  }

  /** @internal The lease has ended. The first report stays. */
  lose(loss: Loss): void {
    if (this.#loss) return;
    this.#loss = loss;
    this.#lastState = "lost";
    this.#stopWork(this.lossError());
    this.emitEvent("lost", loss);
  }

  /** @internal The server raised the token. */
  replaceToken(_token: string, _tokenNumber: string, _secret: string | undefined): void {}

  /** @internal The predecessor of an overlap handoff is done. */
  onPredecessorDone(): void {}

  /** @internal */
  get hasLoss(): boolean {
    return this.#loss !== undefined;
  }

  /** @internal */
  waitFor<T>(options: { signal?: AbortSignal; timeout?: number }, ready: () => T | undefined): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const { signal, timeout } = options;
      let timer: NodeJS.Timeout | undefined;
      const check = (): void => {
        try {
          const value = ready();
          if (value === undefined) return;
          finish();
          resolve(value);
        } catch (error) {
          finish();
          reject(error);
        }
      };
      const onAbort = (): void => {
        finish();
        reject(signal?.reason);
      };
      const finish = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        for (const event of WAKING) this.off(event, check);
      };
      if (signal?.aborted) return reject(signal.reason);
      for (const event of WAKING) this.on(event, check);
      if (signal) allowListeners(signal);
      signal?.addEventListener("abort", onAbort, { once: true });
      if (timeout !== undefined) {
        timer = setTimeout(() => {
          finish();
          reject(new WaitTimeoutError("TIMEOUT", `it did not happen within ${timeout} ms`, "Wait longer, or retry later."));
        }, timerMs(timeout));
      }
      check();
    });
  }

  #deadline(): number {
    return Math.min(this.#cells.own.deadline, this.#cells.own.drainUntil, this.#cells.session.deadline);
  }

  #suspensions(): number {
    return this.#cells.own.suspensions + this.#cells.session.suspensions;
  }

  #stopWork(reason: LeaseLostError | LeaseSuspendedError): void {
    for (const running of this.#running) running.abort(reason);
    if (this.#stopReason) return;
    this.#stopReason = reason;
    this.#stop?.abort(reason);
  }
}

const WAKING = ["suspended", "resumed", "lost", "draining", "changed"] as const;
