// Which server gets a request, and when it is sent again.

import { errorFromProblem, LeaseholdError, OutcomeUnknownError, UnavailableError, type ProblemFields } from "./errors.js";
import { HttpConnection, TransportError, type Credentials, type Exchange, type ExchangeReply } from "./http-connection.js";
import { RequestGate } from "./request-gate.js";
import { isSameServer, type ServerAddress } from "./server-address.js";
import { timerMs } from "./timer-limit.js";

/** Pause before the first retry; it doubles up to {@link MAX_PAUSE_MS}. */
const MIN_PAUSE_MS = 20;
const MAX_PAUSE_MS = 500;
/** Codes after which nothing happened and another attempt can succeed. */
const TRY_AGAIN = new Set(["UNAVAILABLE", "QUARANTINED", "ROLLED_BACK", "STORAGE_FULL"]);

/** Limits of one request. */
export interface SendLimits {
  /** Time for all attempts together. */
  readonly timeoutMs: number;
  /** Time for one attempt, at a moment when this much of the time is left. */
  readonly attemptMs: (leftMs: number) => number;
  /** Whether the server may wait before it replies. */
  readonly isLongPoll?: boolean;
  /** Called before each attempt, when the request no longer waits for others. */
  readonly onAttempt?: (() => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Waits, or rejects with the reason of the signal. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, timerMs(ms));
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Between half and all of a time. */
export function withJitter(ms: number): number {
  return ms * (0.5 + Math.random() / 2);
}

/** All configured servers. Requests go to the one that answered last. */
export class ServerPool {
  readonly connections: readonly HttpConnection[];
  readonly #gate = new RequestGate();
  #current = 0;

  constructor(addresses: readonly ServerAddress[], credentials: Credentials) {
    this.connections = addresses.map((address) => new HttpConnection(address, credentials));
  }

  close(): void {
    for (const connection of this.connections) connection.close();
  }

  /** The server that the next request goes to. */
  get current(): HttpConnection {
    return this.connections[this.#current] as HttpConnection;
  }

  /** Makes the next request go to another server. */
  moveOn(from: HttpConnection): void {
    if (this.current === from) this.#current = (this.#current + 1) % this.connections.length;
  }

  /** Follows a leader that a server named, only to a configured server; no credential is sent elsewhere. */
  follow(from: HttpConnection, leader: string | null | undefined): boolean {
    const index = leader ? this.connections.findIndex((connection) => isSameServer(connection.address, leader)) : -1;
    if (index < 0 || this.connections[index] === from) {
      this.moveOn(from);
      return false;
    }
    this.#current = index;
    return true;
  }

  /**
   * Sends a request until a server decides. The request must be safe to repeat: a query, a renewal, or a change under an
   * idempotency key. Returns the body of the reply. Without a decision in time it fails with {@link OutcomeUnknownError} if a server may
   * have received it.
   */
  async send(exchange: Exchange, limits: SendLimits): Promise<unknown> {
    const { signal, isLongPoll } = limits;
    const end = performance.now() + limits.timeoutMs;
    let maybeSent = false;
    let redirects = 0;
    let lastFailure: unknown;
    for (let attempt = 0; ; attempt++) {
      const leave = await this.#gate.enter(end - performance.now(), signal);
      if (signal?.aborted) leave?.();
      signal?.throwIfAborted();
      if (!leave) throw undecided(maybeSent, exchange, lastFailure);
      const left = end - performance.now();
      const connection = this.current;
      let pauseMs = withJitter(Math.min(MIN_PAUSE_MS * 2 ** Math.min(attempt, 10), MAX_PAUSE_MS));
      try {
        const attemptMs = Math.max(1, Math.min(left, limits.attemptMs(left)));
        limits.onAttempt?.();
        // A request that waits at the server does not keep others from being sent.
        const reply = await connection.exchange(exchange, attemptMs, signal, isLongPoll ? leave : undefined);
        if (reply.status >= 200 && reply.status < 300) return parseReply(connection, reply);
        const problem = problemOf(reply);
        const error = errorFromProblem(problem);
        lastFailure = error;
        if (error.code === "NOT_LEADER") {
          // The first redirect is followed at once; two servers that name each other must not make a busy loop.
          if (this.follow(connection, problem.leader) && redirects++ === 0) pauseMs = 0;
        } else if (TRY_AGAIN.has(error.code) || (error.isRetryable && reply.status === 503)) {
          this.moveOn(connection);
          const after = problem.retry_after_ms ?? 0;
          if (after > end - performance.now()) throw maybeSent ? undecided(true, exchange, error) : error;
          pauseMs += after;
        } else if (error.code === "INDETERMINATE") {
          maybeSent = true;
        } else {
          throw error;
        }
      } catch (failure) {
        if (!(failure instanceof TransportError)) throw failure;
        maybeSent ||= failure.maybeSent;
        lastFailure = failure;
        this.moveOn(connection);
      } finally {
        leave();
      }
      const leftNow = end - performance.now();
      if (leftNow <= 0) throw undecided(maybeSent, exchange, lastFailure);
      await pause(Math.min(pauseMs, leftNow), signal);
    }
  }
}

/** The body of a successful reply. A reply that was cut is a lost reply. */
function parseReply(connection: HttpConnection, reply: ExchangeReply): unknown {
  try {
    return JSON.parse(reply.body);
  } catch (error) {
    throw new TransportError(`the reply of ${connection.address.text} is not JSON`, true, error);
  }
}

/** The problem body of a reply; made from the status if the body is none. */
export function problemOf(reply: { status: number; body: string }): ProblemFields {
  try {
    const problem = JSON.parse(reply.body) as ProblemFields;
    if (typeof problem === "object" && problem !== null) return { ...problem, status: reply.status };
  } catch {
    // Not JSON: another program may answer at this address.
  }
  return { status: reply.status };
}

function undecided(maybeSent: boolean, exchange: Exchange, cause: unknown): LeaseholdError {
  const why = cause instanceof Error ? cause.message : "no server replied";
  if (!maybeSent) {
    return new UnavailableError("UNAVAILABLE", `no server could be reached: ${why}`, "Retry the same request later.", {}, { cause });
  }
  const key = exchange.headers?.["idempotency-key"];
  return new OutcomeUnknownError(`the reply was lost: ${why}`, key === undefined ? {} : { request_id: key }, undefined, cause);
}
