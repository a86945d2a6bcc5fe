// A held lease: its token, its state, and requests under it.

import { durationText, milliseconds, type Duration } from "./duration.js";
import { isSessionEnd, LeaseLostError, type LeaseholdError } from "./errors.js";
import type { CurrentLeaseBody, GrantBody } from "./generated/openapi.js";
import { Hold, type HoldCells } from "./local-validity.js";
import type { Exchange } from "./http-connection.js";
import { leasePath } from "./paths.js";
import { stretch } from "./renewal/held-lease.js";
import type { RequestLimits, Requests } from "./requests.js";
import type { OpenSession, SessionHost } from "./session-host.js";

/** Longest and shortest time for the reply to a release. Once the local deadline has passed, the lease ends by itself. */
const RELEASE_TIMEOUT_MS = 5_000;
const MIN_RELEASE_TIMEOUT_MS = 500;

/** Options of a handoff. */
export interface HandoffOptions {
  /** Holder name of the successor; the first waiter if absent. */
  to?: string;
  /** `gap`: the successor starts when this holder is done. `overlap`: it is granted at once, and claims when this holder is done. */
  mode?: "gap" | "overlap";
  /** How long this holder may drain. */
  drain?: Duration;
}

/** Where a lease lives. */
export interface LeaseContext {
  readonly host: SessionHost;
  readonly requests: Requests;
  readonly session: OpenSession;
}

/**
 * A held lease. A thread of its own renews it, whatever the program does. Present {@link Lease.token} with every write.
 *
 * `await using lease = await client.acquire("x")` releases it at the end of the block.
 */
export class Lease extends Hold {
  /** Name of the resource. */
  readonly resource: string;
  /** Id of the lease. */
  readonly id: string;
  /** Name of the holder. */
  readonly holder: string;
  /** Number of the slot, for a lease on one of several slots. */
  readonly slot: number | undefined;
  /** The predecessor of an overlap handoff drains for at most this many milliseconds after the grant. */
  readonly overlapsMs: number | undefined;
  readonly #context: LeaseContext;
  readonly #cellSlot: number;
  readonly #claimableAt: number;
  #token: string;
  #tokenNumber: string;
  #secret: string | undefined;
  #stamped: Readonly<Record<string, string>>;
  #release: Exchange | undefined;
  #releasing: Promise<void> | undefined;
  #releaseTimeoutMs = RELEASE_TIMEOUT_MS;
  #isPredecessorDone = false;

  /** @internal */
  constructor(context: LeaseContext, grant: GrantBody, cells: HoldCells, cellSlot: number) {
    super(context.host.clock, cells);
    this.#context = context;
    this.#cellSlot = cellSlot;
    this.resource = grant.resource;
    this.id = grant.lease;
    this.holder = grant.holder;
    this.slot = grant.slot ?? undefined;
    this.overlapsMs = grant.overlaps_ms ?? undefined;
    this.#token = grant.token;
    this.#tokenNumber = grant.token_number;
    this.#secret = grant.secret ?? undefined;
    this.#stamped = grant.stamped_tokens ?? {};
    this.#claimableAt = this.overlapsMs === undefined ? 0 : context.host.clock.now() + stretch(this.overlapsMs);
  }

  /** The fencing token. Read it again for every write: a charter may raise it on renewal. */
  get token(): string {
    return this.#token;
  }

  /** Number of the token, as decimal text. */
  get tokenNumber(): string {
    return this.#tokenNumber;
  }

  /** The token with the stamp for a target of the charter, to present there instead of the token. */
  stampedToken(target: string): string | undefined {
    return this.#stamped[target];
  }

  /**
   * Releases the lease. Idempotent. The work must be finished: the state is `lost` from here on. Rejects with {@link LeaseLostError} if the
   * lease had ended otherwise. If no server confirms it, the promise rejects, and the lease ends by its ttl at the latest.
   */
  release(): Promise<void> {
    this.#releasing ??= this.#releaseNow().catch((error: unknown) => {
      this.#releasing = undefined;
      throw error;
    });
    return this.#releasing;
  }

  async #releaseNow(): Promise<void> {
    if (this.#release === undefined) {
      if (this.loss?.state === "released") return;
      if (this.hasLoss) throw this.lossError();
      this.#releaseTimeoutMs = Math.max(MIN_RELEASE_TIMEOUT_MS, Math.min(RELEASE_TIMEOUT_MS, this.remaining()));
      // Without a key: it names the token, so that it is safe to repeat.
      this.#release = this.#proven("release", {});
      this.#end("released", "released");
    }
    try {
      await this.#context.requests.send(this.#release, { timeoutMs: this.#releaseTimeoutMs });
    } catch (error) {
      // An earlier attempt may have released it.
      const isDone = error instanceof LeaseLostError ? error.state === "released" : (error as LeaseholdError).code === "NOT_FOUND";
      if (!isDone) throw error;
    }
  }

  /** Releases the lease without an error: an error of the block that used it is never masked. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => undefined);
  }

  /** Asks the server whether the lease is current at a moment during this call. An optimization: only a fence makes a write safe. */
  async check(options: { signal?: AbortSignal } = {}): Promise<void> {
    const reply = await this.#send<CurrentLeaseBody>(this.#proven("check", {}), options);
    if ((reply.drain_ms ?? undefined) !== undefined && this.draining === undefined) this.#context.host.ask(this.#cellSlot);
  }

  /** Reports progress, which must increase. A lease that requires progress ends as stalled without it. */
  async progress(progress: bigint | number | string): Promise<void> {
    await this.#command("progress", { progress: String(progress) });
    // The progress may have moved the end of the lease.
    this.#context.host.ask(this.#cellSlot);
  }

  /** Starts a planned handoff. The lease continues while it drains: finish, then {@link Lease.finishDrain} or release. */
  async handoff(options: HandoffOptions = {}): Promise<void> {
    const { to, mode } = options;
    const drain = options.drain === undefined ? undefined : durationText(milliseconds(options.drain, "drain"));
    await this.#command("handoff", { to, mode, drain });
    this.#context.host.ask(this.#cellSlot);
  }

  /** Ends a drain early: all writes of this holder are finished, and the successor may start. */
  async finishDrain(): Promise<void> {
    const exchange = this.#change("drained", {});
    this.#end("expired", "handed_off");
    try {
      await this.#context.requests.send(exchange);
    } catch (error) {
      if (!(error instanceof LeaseLostError)) throw error;
    }
  }

  /**
   * Waits until the targets may be claimed: at once, unless the predecessor of an overlap handoff still drains. Then claim, read again,
   * and write, in this order.
   */
  async waitClaimable(options: { signal?: AbortSignal; timeout?: number } = {}): Promise<void> {
    const { clock } = this.#context.host;
    const isClaimable = (): true | undefined => {
      if (this.state === "lost") throw this.lossError();
      return this.#isPredecessorDone || clock.now() >= this.#claimableAt ? true : undefined;
    };
    if (isClaimable()) return;
    // Looks at the clock again and again, because timers do not count a suspend of the machine.
    let ticks = 0;
    const timer = setInterval(() => {
      // The event may have been lost with its stream.
      if (++ticks % 4 === 0) this.#context.host.ask(this.#cellSlot);
      this.emitEvent("changed");
    }, 250);
    try {
      await this.waitFor(options, isClaimable);
    } finally {
      clearInterval(timer);
    }
  }

  /** Raises the token and returns the new one. Once a target has seen it, it refuses the old one. */
  async rotate(): Promise<string> {
    const reply = await this.#command<CurrentLeaseBody>("rotate", {});
    if (reply.token && reply.token_number) {
      this.replaceToken(reply.token, reply.token_number, reply.secret ?? this.#secret);
      this.#stamped = reply.stamped_tokens ?? {};
      this.#context.host.replaceToken(this.#cellSlot, this.#token, this.#tokenNumber, this.#secret);
    }
    return this.#token;
  }

  /**
   * Writes small state through the server's journal, only if the lease is current: the write is the check. `undefined` deletes the key.
   * With `expectedRevision` it is written only over that revision. Returns the new revision.
   */
  async put(key: string, value: string | Uint8Array | undefined, options: { expectedRevision?: string } = {}): Promise<string> {
    const bytes =
      value === undefined
        ? {}
        : typeof value === "string"
          ? { value }
          : { value_base64: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64") };
    const reply = await this.#command<{ revision: string }>("put", { key, ...bytes, expected_revision: options.expectedRevision });
    return reply.revision;
  }

  /** @internal */
  override replaceToken(token: string, tokenNumber: string, secret: string | undefined): void {
    if (BigInt(tokenNumber) <= BigInt(this.#tokenNumber)) return;
    this.#token = token;
    this.#tokenNumber = tokenNumber;
    this.#secret = secret;
    this.#context.requests.observeToken(token, tokenNumber, this.resource);
  }

  /** @internal */
  override onPredecessorDone(): void {
    this.#isPredecessorDone = true;
    this.emitEvent("changed");
  }

  /** Omits the token, which must not reach a log. */
  toJSON(): object {
    return { resource: this.resource, id: this.id, state: this.state };
  }

  #end(state: string, reason: string): void {
    this.lose({ state, reason });
    this.#context.host.drop(this.#cellSlot);
  }

  /** A request about this lease, which its token proves. */
  #proven(verb: string, body: object, headers = this.#context.session.headers): Exchange {
    const secret: Record<string, string> = this.#secret === undefined ? {} : { "lease-secret": this.#secret };
    return this.#context.requests.change(leasePath(this.resource, verb), body, { ...headers, ...secret, "lease-token": this.#token });
  }

  /** A change under an idempotency key. */
  #change(verb: string, body: object): Exchange {
    return this.#proven(verb, body, this.#context.session.nextKey().headers);
  }

  async #command<T>(verb: string, body: object): Promise<T> {
    return await this.#send<T>(this.#change(verb, body));
  }

  async #send<T>(exchange: Exchange, limits: RequestLimits = {}): Promise<T> {
    if (this.state === "lost") throw this.lossError();
    try {
      return await this.#context.requests.send<T>(exchange, limits);
    } catch (error) {
      if (isSessionEnd(error)) this.#context.host.endSession(this.#context.session);
      if (error instanceof LeaseLostError) this.#end(error.state, error.reason ?? "unknown");
      throw error;
    }
  }
}
