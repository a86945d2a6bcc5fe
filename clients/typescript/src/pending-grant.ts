// An acquire on its way: resolves lost replies, and leaves nothing behind when it is canceled.

import { OutcomeUnknownError, type LeaseholdError } from "./errors.js";
import type { Exchange } from "./http-connection.js";
import { linkSignals } from "./linked-signal.js";
import { sessionPath } from "./paths.js";
import { closedError, type RequestLimits, type Requests } from "./requests.js";
import { pause } from "./server-pool.js";
import type { OpenSession, SessionHost } from "./session-host.js";

/** Time for the reply to a repeated request while a wait is being withdrawn. */
const WITHDRAW_REPLY_MS = 2_000;

/** What the client does with the reply. */
export interface GrantHandler<B, T> {
  /** Makes leases of the reply, all or none. `sent` is before the request was sent first. */
  accept(body: B, sent: number, signal: AbortSignal): Promise<T>;
  /** Releases leases that were made of the reply. Never rejects. */
  discard(result: T): Promise<void>;
  /** Releases what the reply granted, and of which no leases were made. Never rejects. */
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
  /** What was granted is being released. */
  #isDiscarded = false;
  #unresolved: NodeJS.Timeout | undefined;

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
    clearTimeout(this.#unresolved);
    const { signal, unlink } = linkSignals(limits.signal, this.#host.closing);
    try {
      const onAttempt = (): void => void (this.#firstSent ??= this.#host.clock.now());
      const body = await this.#requests.send<B>(this.#exchange, { ...limits, onAttempt, signal });
      const result = await this.#accept(body, this.#firstSent ?? 0, signal);
      this.#uncount();
      return result;
    } catch (error) {
      if (this.#host.closing.aborted) {
        // Closing the session withdraws the wait and releases what was granted.
        this.#refuse();
        throw closedError();
      }
      if (limits.signal?.aborted) {
        // The caller does not wait for the withdrawal.
        if (this.#isDiscarded) this.#uncount();
        else void this.#withdraw();
        throw limits.signal.reason;
      }
      if (error instanceof OutcomeUnknownError) throw this.#unknown(error, limits);
      if ((error as LeaseholdError).code === "REQUEST_TOO_OLD") {
        // What became of the request is not known any more. Its actor is not used again, because it may still hold the lease.
        await this.#cancelWait();
        this.#host.compare(this.#session);
        this.#isDiscarded = true;
      }
      this.#refuse();
      throw error;
    } finally {
      unlink();
    }
  }

  async #accept(body: B, sent: number, signal: AbortSignal): Promise<T> {
    let result: T;
    try {
      result = await this.#handler.accept(body, sent, signal);
    } catch (error) {
      // After a lost reply the same request under the same key returns the same grant, and is accepted again.
      if (!(error instanceof OutcomeUnknownError) && !signal.aborted) {
        this.#isDiscarded = true;
        void this.#handler.release(body);
      }
      throw error;
    }
    if (!signal.aborted) return result;
    this.#isDiscarded = true;
    void this.#handler.discard(result);
    throw signal.reason;
  }

  #unknown(error: OutcomeUnknownError, limits: RequestLimits): OutcomeUnknownError<T> {
    // A grant that no one asks about within one more ttl is released.
    this.#unresolved = setTimeout(() => void this.#withdraw(), this.#session.ttlMs).unref();
    const resolve = (timeoutMs?: number, signal?: AbortSignal): Promise<T> => this.run({ ...limits, timeoutMs: timeoutMs ?? limits.timeoutMs, signal });
    return new OutcomeUnknownError<T>(error.message, error.fields, resolve, error.cause);
  }

  /** Withdraws the wait and releases a grant that was made meanwhile. Gives up when the session must have ended. */
  async #withdraw(): Promise<void> {
    const end = this.#host.clock.now() + 2 * this.#session.ttlMs;
    try {
      while (this.#maybeSent && this.#host.clock.now() < end && !this.#session.cell.ended) {
        await this.#cancelWait();
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

  async #cancelWait(): Promise<void> {
    const cancel = this.#requests.change(sessionPath(this.#session.id, "cancel"), { sequence: this.#sequence }, this.#session.headers);
    await this.#requests.send(cancel).catch(() => undefined);
  }

  #refuse(): void {
    if (!this.#isDiscarded) this.#handler.refused();
    this.#uncount();
  }

  #uncount(): void {
    if (this.#isCounted) this.#host.requestCounter.end();
    this.#isCounted = false;
  }
}
