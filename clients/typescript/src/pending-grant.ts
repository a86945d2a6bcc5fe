// An acquire on its way: resolves lost replies, and leaves nothing behind when it is canceled.

import { OutcomeUnknownError } from "./errors.js";
import type { Exchange } from "./http-connection.js";
import { sessionPath } from "./paths.js";
import type { RequestLimits, Requests } from "./requests.js";
import { pause } from "./server-pool.js";
import type { OpenSession, SessionHost } from "./session-host.js";

/** Time for the reply to a repeated request while a wait is being withdrawn. */
const WITHDRAW_REPLY_MS = 2_000;

/** What the client does with the reply. */
export interface GrantHandler<B, T> {
  /** Makes a lease of the reply. `sent` is when the request was sent first. */
  accept(body: B, sent: number): Promise<T>;
  /** Releases what the reply granted. */
  release(body: B): Promise<void>;
  /** Nothing was granted. */
  refused(): void;
}

export class PendingGrant<B, T> {
  readonly #host: SessionHost;
  readonly #requests: Requests;
  readonly #session: OpenSession;
  readonly #exchange: Exchange;
  readonly #sequence: string;
  readonly #handler: GrantHandler<B, T>;
  #firstSent: number | undefined;
  #maybeSent = false;
  #isCounted = true;

  constructor(host: SessionHost, requests: Requests, session: OpenSession, path: string, body: object, handler: GrantHandler<B, T>) {
    const { sequence, headers } = session.nextKey();
    this.#host = host;
    this.#requests = requests;
    this.#session = session;
    this.#sequence = sequence;
    this.#handler = handler;
    this.#exchange = { ...requests.change(path, body, headers), onSent: () => (this.#maybeSent = true) };
    host.requestCounter.start();
  }

  /** Sends the request until the server decides. After a cancellation it is withdrawn in the background. */
  async run(limits: RequestLimits): Promise<T> {
    this.#firstSent ??= this.#host.clock.now();
    let body: B;
    try {
      body = await this.#requests.send<B>(this.#exchange, limits);
    } catch (error) {
      if (limits.signal?.aborted) {
        // The caller does not wait for the withdrawal.
        void this.#withdraw();
        throw limits.signal.reason;
      }
      if (!(error instanceof OutcomeUnknownError)) {
        this.#handler.refused();
        this.#uncount();
        throw error;
      }
      // The grant is expected for one more ttl. After that the renewal thread releases what no one asked about.
      setTimeout(() => this.#uncount(), this.#session.ttlMs).unref();
      const resolve = (timeoutMs?: number): Promise<T> => this.run({ ...limits, timeoutMs: timeoutMs ?? limits.timeoutMs, signal: undefined });
      throw new OutcomeUnknownError<T>(error.message, error.fields, resolve, error.cause);
    }
    try {
      return await this.#handler.accept(body, this.#firstSent);
    } finally {
      this.#uncount();
    }
  }

  /** Withdraws the wait and releases a grant that was made meanwhile. Gives up when the session must have ended. */
  async #withdraw(): Promise<void> {
    const end = this.#host.clock.now() + 2 * this.#session.ttlMs;
    try {
      while (this.#maybeSent && this.#host.clock.now() < end && !this.#session.cell.ended) {
        const cancel = this.#requests.change(sessionPath(this.#session.id, "cancel"), { sequence: this.#sequence }, this.#session.headers);
        await this.#requests.send(cancel).catch(() => undefined);
        try {
          // The same request under the same key returns how it ended.
          const body = await this.#requests.send<B>(this.#exchange, { timeoutMs: WITHDRAW_REPLY_MS });
          return await this.#handler.release(body);
        } catch (error) {
          if (!(error instanceof OutcomeUnknownError) && !(error as { isRetryable?: boolean }).isRetryable) return this.#handler.refused();
        }
        await pause(100);
      }
    } catch {
      // The lease ends with the session at the latest.
    } finally {
      this.#uncount();
    }
  }

  #uncount(): void {
    if (this.#isCounted) this.#host.requestCounter.end();
    this.#isCounted = false;
  }
}
