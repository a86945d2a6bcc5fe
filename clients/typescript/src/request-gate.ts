// Limits how many requests are on their way to the servers.
//
// A session numbers its requests, and a server remembers the last 512 numbers of a session. So the requests of a busy program must arrive
// roughly in the order of their numbers: a few are on their way, and the others wait here in their order.

import { timerMs } from "./timer-limit.js";

/** Requests on their way: sent, and not answered. A request that waits at the server counts until it has been sent. */
const MAX_SENDING = 128;

/** Ends a turn; it may be called again. */
export type Leave = () => void;

export class RequestGate {
  #sending = 0;
  /** In order; a request that gave up was removed. */
  readonly #waiting = new Set<() => void>();

  /** Waits for a turn; undefined if the time or the signal ended first. */
  async enter(timeoutMs: number, signal?: AbortSignal): Promise<Leave | undefined> {
    if (signal?.aborted) return undefined;
    if (this.#sending < MAX_SENDING) this.#sending += 1;
    else if (!(await this.#turn(timeoutMs, signal))) return undefined;
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      // The turn passes to the next request, so that none overtakes it.
      const [next] = this.#waiting;
      if (next) next();
      else this.#sending -= 1;
    };
  }

  #turn(timeoutMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    return new Promise((resolve) => {
      const finish = (hasTurn: boolean): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        this.#waiting.delete(onTurn);
        resolve(hasTurn);
      };
      const onTurn = (): void => finish(true);
      const onAbort = (): void => finish(false);
      const timer = setTimeout(onAbort, timerMs(Math.max(0, timeoutMs)));
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#waiting.add(onTurn);
    });
  }
}
