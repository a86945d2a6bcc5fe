// Requests of the program's thread: queries, and changes under an idempotency key.

import type { ClientConfig } from "./client-options.js";
import { OutcomeUnknownError, UnavailableError } from "./errors.js";
import type { Exchange } from "./http-connection.js";
import { ServerPool, type SendLimits } from "./server-pool.js";

/** Limits of one request. */
export interface RequestLimits {
  /** Time to wait for the reply; the client's default if absent. */
  readonly timeoutMs?: number | undefined;
  /** Longest time that the server itself waits before it replies. */
  readonly waitMs?: number | undefined;
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
  #seen: SeenToken | undefined;
  #isClosed = false;

  constructor(config: ClientConfig) {
    this.pool = new ServerPool(config.servers, config.credentials);
    this.#timeoutMs = config.requestTimeoutMs;
  }

  close(): void {
    this.#isClosed = true;
    this.pool.close();
  }

  /** Fails if the client is closed. */
  requireOpen(): void {
    if (this.#isClosed) throw new UnavailableError("UNAVAILABLE", "the client is closed", "Create another client.");
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
      const resolve = (timeoutMs?: number): Promise<T> => this.send<T>(exchange, { ...limits, timeoutMs: timeoutMs ?? limits.timeoutMs, signal: undefined });
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
    const sendLimits: SendLimits = { timeoutMs: timeoutMs + waitMs, attemptMs: () => attemptMs, signal: limits.signal };
    const reply = await this.pool.send(exchange, sendLimits);
    return JSON.parse(reply.body) as T;
  }
}
