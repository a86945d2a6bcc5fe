// One attempt of a renewal: a single request to one server, with a short timeout.

import type { BootClock } from "../boot-clock.js";
import { errorFromProblem, type LeaseholdError } from "../errors.js";
import type { Exchange } from "../http-connection.js";
import { problemOf, type ServerPool } from "../server-pool.js";

/** Longest time for one request. */
const MAX_ATTEMPT_MS = 5_000;

/** Time for one attempt of a renewal. */
export function attemptTimeout(spanMs: number): number {
  // A short ttl leaves little time for a busy machine, so the lower limit is generous.
  return Math.min(MAX_ATTEMPT_MS, Math.max(spanMs / 6, Math.min(500, spanMs / 3)));
}

/** How an attempt ended. */
export type Attempt<T> =
  /** The server decided and granted. */
  | { readonly kind: "granted"; readonly body: T; readonly sent: number; readonly received: number }
  /** The server decided and refused. */
  | { readonly kind: "refused"; readonly error: LeaseholdError }
  /** No decision. The next attempt goes to another server, after a pause. */
  | { readonly kind: "undecided"; readonly afterMs: number };

/** Sends a request once. Never rejects. */
export async function attempt<T>(pool: ServerPool, clock: BootClock, exchange: Exchange, timeoutMs: number): Promise<Attempt<T>> {
  const connection = pool.current;
  const sent = clock.now();
  try {
    const reply = await connection.exchange(exchange, timeoutMs);
    const received = clock.now();
    if (reply.status >= 200 && reply.status < 300) {
      const body = JSON.parse(reply.body) as T;
      if (typeof body !== "object" || body === null) throw new TypeError("the reply is no object");
      return { kind: "granted", body, sent, received };
    }
    const problem = problemOf(reply);
    const error = errorFromProblem(problem);
    if (error.code === "NOT_LEADER") {
      return { kind: "undecided", afterMs: pool.follow(connection, problem.leader) ? 0 : 50 };
    }
    if (error.isRetryable || error.code === "INDETERMINATE" || error.code === "RESOURCE_EXHAUSTED" || reply.status >= 500) {
      pool.moveOn(connection);
      return { kind: "undecided", afterMs: Math.min(problem.retry_after_ms ?? 50, 1000) };
    }
    return { kind: "refused", error };
  } catch {
    pool.moveOn(connection);
    return { kind: "undecided", afterMs: 50 };
  }
}
