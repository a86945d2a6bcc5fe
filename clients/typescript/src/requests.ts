// Requests of the program's thread: queries, and changes under an idempotency key.

import type { ClientConfig } from "./client-options.js";
import { OutcomeUnknownError, UnavailableError } from "./errors.js";
import type { Exchange } from "./http-connection.js";
import { linkSignals } from "./linked-signal.js";
import { ServerPool, type SendLimits } from "./server-pool.js";

/** Limits of one request. */
export interface RequestLimits {
  /** Time to wait for the reply; the client's default if absent. */
  readonly timeoutMs?: number | undefined;
  /** Longest time that the server itself waits before it replies. */
  readonly waitMs?: number | undefined;
  /** Called before each attempt. */
  readonly onAttempt?: (() => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A long poll is repeated after this time, so that a connection that died silently is noticed. */
const MAX_POLL_MS = 10_000;

/** The highest token that this client has received. */
interface SeenToken {
  readonly token: string;
  readonly number: bigint;
  readonly resource: string;
}

export class Requests {
  readonly pool: ServerPool;
  readonly #timeoutMs: number;
  readonly #closed = new AbortController();
  #seen: SeenToken | undefined;

  constructor(config: ClientConfig) {
    this.pool = new ServerPool(config.servers, config.credentials);
    this.#timeoutMs = config.requestTimeoutMs;
  }

  /** Time for the reply to a request, unless its limits say otherwise. */
  get timeoutMs(): number {
    return this.#timeoutMs;
  }

  /** Ends running requests, which fail like later ones. */
  close(): void {
    this.#closed.abort(closedError());
    this.pool.close();
  }

  /** Fails if the client is closed. */
  requireOpen(): void {
    this.#closed.signal.throwIfAborted();
  }

  /** Remembers a token, so that a server that lost its newest state recognizes it. */
  observeToken(token: string, number: string, resource: string): void {
    const value = BigInt(number);
    if (!this.#seen || value > this.#seen.number) this.#seen = { token, number: value, resource };
  }

  /** Sends a query. */
  async get<T>(path: string, headers: Record<string, string> = {}, limits: RequestLimits = {}): Promise<T> {
    return await this.#send({ method: "GET", path, headers }, limits);
  }

  /** A change. The same exchange, with its key, can be sent again. */
  change(path: string, body: unknown, headers: Record<string, string>): Exchange {
    const seen: Record<string, string> =
      this.#seen === undefined
        ? {}
        : { "lease-token-seen": this.#seen.token, "lease-token-seen-resource": encodeURIComponent(this.#seen.resource) };
    return { method: "POST", path, headers: { ...seen, ...headers }, body: JSON.stringify(body) };
  }

  /** Sends a change. A lost reply fails with an {@link OutcomeUnknownError} that sends the same exchange again. */
  async send<T>(exchange: Exchange, limits: RequestLimits = {}): Promise<T> {
    try {
      return await this.#send<T>(exchange, limits);
    } catch (error) {
      if (!(error instanceof OutcomeUnknownError)) throw error;
      const resolve = (timeoutMs?: number, signal?: AbortSignal): Promise<T> => this.send<T>(exchange, { ...limits, timeoutMs: timeoutMs ?? limits.timeoutMs, signal });
      throw new OutcomeUnknownError<T>(error.message, error.fields, resolve, error.cause);
    }
  }

  async #send<T>(exchange: Exchange, limits: RequestLimits): Promise<T> {
    this.requireOpen();
    const timeoutMs = limits.timeoutMs ?? this.#timeoutMs;
    const waitMs = limits.waitMs ?? 0;
    // Several attempts fit into the time, so that one lost reply does not make the outcome unknown.
    const replyMs = Math.max(1_000, Math.min(5_000, timeoutMs / 3));
    const attemptMs = Math.min(MAX_POLL_MS, waitMs + replyMs);
    const { signal, unlink } = linkSignals(limits.signal, this.#closed.signal);
    const sendLimits: SendLimits = { timeoutMs: timeoutMs + waitMs, attemptMs: () => attemptMs, isLongPoll: waitMs > 0, onAttempt: limits.onAttempt, signal };
    try {
      return (await this.pool.send(exchange, sendLimits)) as T;
    } finally {
      unlink();
    }
  }
}

/** The error of every call of a closed client. */
export function closedError(): UnavailableError {
  return new UnavailableError("UNAVAILABLE", "the client is closed", "Create another client.");
}
