// The client: acquires leases, and makes the recipes.

import { acquireFields, acquireTerms, requireName, type AcquireOptions, type AcquireTerms, type ResourceRequest } from "./acquire-options.js";
import { ActorPool } from "./actor-pool.js";
import { configure, type ClientConfig, type ClientOptions } from "./client-options.js";
import { durationText, milliseconds, type Duration } from "./duration.js";
import { BusyError, foreignReply, isSessionEnd, UnavailableError, WaitTimeoutError } from "./errors.js";
import type { CurrentLeaseBody, GrantBody, ResourceBody, StatusBody } from "./generated/openapi.js";
import { Lease, type LeaseContext } from "./lease.js";
import type { Exchange } from "./http-connection.js";
import { encodeName, leasePath } from "./paths.js";
import { PendingGrant } from "./pending-grant.js";
import { Election, type ElectionOptions } from "./recipes/election.js";
import { MessageQueue, type QueueOptions } from "./recipes/message-queue.js";
import { Discovery, ServiceRegistration, type ServiceOptions } from "./recipes/service.js";
import { readState, type StoredValue } from "./recipes/small-state.js";
import { localDeadline } from "./renewal/held-lease.js";
import { Requests } from "./requests.js";
import { runUnder } from "./run-under.js";
import { SessionHost, type OpenSession } from "./session-host.js";

/** Time for closing the session. After that the leases end by their ttl. */
const CLOSE_TIMEOUT_MS = 4_000;

/** A grant; servers of an earlier version do not name the drain period. */
type Granted = GrantBody & { drain_ms?: number | null; rotates?: boolean };

/** A grant with the newest reply about it, and when the request for that reply was sent. */
interface FreshGrant {
  readonly grant: Granted;
  readonly sent: number;
  readonly remainingMs: number;
  /** Whether it has an end of its own, besides the session's. */
  readonly isTimed: boolean;
  readonly silenceMs: number | undefined;
}

/** An acquire of one resource or of several. */
interface AcquireRequest<B, T> {
  readonly path: string;
  readonly options: AcquireOptions;
  readonly terms: AcquireTerms;
  /** Fields besides those of the session. */
  readonly fields: object;
  readonly grantsOf: (body: B) => Granted[] | undefined;
  readonly result: (leases: Lease[]) => T;
}

/** Work under a lease. It must stop when the signal is aborted, and presents `lease.token` with every write. */
export type LeaseWork<T> = (lease: Lease, signal: AbortSignal) => Promise<T> | T;

/**
 * Client of Leasehold. It dials nothing until it is used, and has one session, which a thread of its own renews. All its leases end
 * with {@link Client.close}.
 *
 * ```ts
 * const client = new Client({ servers: "127.0.0.1:7421" });
 * await client.using("jobs/settle", { wait: "60s" }, async (lease, signal) => {
 *   await settle({ token: lease.token, signal });
 * });
 * await client.close();
 * ```
 */
export class Client {
  readonly #config: ClientConfig;
  readonly #requests: Requests;
  readonly #host: SessionHost;
  readonly #actors = new ActorPool();
  #closing: Promise<void> | undefined;

  constructor(options: ClientOptions = {}) {
    this.#config = configure(options);
    this.#requests = new Requests(this.#config);
    this.#host = new SessionHost(this.#config, this.#requests);
  }

  /** Name shown to others as the holder. */
  get holder(): string {
    return this.#config.holder;
  }

  /** Id of the session; undefined before the first acquire. */
  get sessionId(): string | undefined {
    return this.#host.current?.id;
  }

  /** Whether {@link Client.close} was called. */
  get isClosed(): boolean {
    return this.#host.closing.aborted;
  }

  /** Number of leases and received messages whose local state is `held`. */
  get heldCount(): number {
    let count = 0;
    for (const hold of this.#host.holds) count += hold.isHeld ? 1 : 0;
    return count;
  }

  /**
   * Acquires a lease. Rejects with {@link BusyError} if it is held and `wait` is absent, with {@link WaitTimeoutError} after the wait,
   * with {@link OutcomeUnknownError} if the reply was lost, and with the reason of `signal` if that is aborted.
   */
  async acquire(resource: string, options: AcquireOptions = {}): Promise<Lease> {
    requireName(resource, "resource");
    const { shared, slots, units } = options;
    return await this.#acquire<Granted, Lease>({
      path: leasePath(resource, "acquire"),
      options,
      terms: acquireTerms(options),
      fields: { shared, slots, units },
      grantsOf: (grant) => [grant],
      result: ([lease]) => lease as Lease,
    });
  }

  /** Acquires a lease if it is free now; undefined if others hold it. */
  async tryAcquire(resource: string, options: Omit<AcquireOptions, "wait"> = {}): Promise<Lease | undefined> {
    try {
      return await this.acquire(resource, options);
    } catch (error) {
      if (error instanceof BusyError && error.code === "BUSY") return undefined;
      throw error;
    }
  }

  /** Acquires several resources in one step, or none of them. The leases are in the order of the resources. */
  async acquireAll(resources: readonly (string | ResourceRequest)[], options: Omit<AcquireOptions, "shared" | "slots" | "units"> = {}): Promise<Lease[]> {
    const requested = resources.map((resource) => (typeof resource === "string" ? { resource } : resource));
    for (const { resource } of requested) requireName(resource, "resources");
    return await this.#acquire<{ grants: Granted[] }, Lease[]>({
      path: "/v1/leases:acquire_all",
      options,
      terms: acquireTerms(options),
      fields: { resources: requested },
      grantsOf: ({ grants }) => grants,
      result: (leases) => leases,
    });
  }

  /**
   * Acquires a lease, runs work under it and releases it. The work's signal is aborted when the lease is suspended or lost, and when
   * `options.signal` is. Rejects with the error of the work, or with the reason of the lease's signal if the lease was not kept until
   * the work returned.
   */
  async using<T>(resource: string, work: LeaseWork<T>): Promise<T>;
  async using<T>(resource: string, options: AcquireOptions, work: LeaseWork<T>): Promise<T>;
  async using<T>(resource: string, optionsOrWork: AcquireOptions | LeaseWork<T>, maybeWork?: LeaseWork<T>): Promise<T> {
    const [options, work] = typeof optionsOrWork === "function" ? [{}, optionsOrWork] : [optionsOrWork, maybeWork as LeaseWork<T>];
    const lease = await this.acquire(resource, options);
    return await runUnder([lease], options.signal, (signal) => work(lease, signal));
  }

  /** Like {@link Client.using}, under several leases that are acquired in one step. */
  async usingAll<T>(
    resources: readonly (string | ResourceRequest)[],
    options: Omit<AcquireOptions, "shared" | "slots" | "units">,
    work: (leases: Lease[], signal: AbortSignal) => Promise<T> | T,
  ): Promise<T> {
    const leases = await this.acquireAll(resources, options);
    return await runUnder(leases, options.signal, (signal) => work(leases, signal));
  }

  /** An election: the holder of the resource leads. */
  election(resource: string, options: ElectionOptions = {}): Election {
    requireName(resource, "resource");
    return new Election(this, this.#requests, resource, options);
  }

  /** A message queue. It needs no setup. */
  queue(name: string, options: QueueOptions = {}): MessageQueue {
    requireName(name, "name");
    return new MessageQueue(this.#host, this.#requests, name, this.holder, options);
  }

  /** Registers instances of a service under `service/instance`. */
  service(service: string, instance: string, options: ServiceOptions = {}): ServiceRegistration {
    requireName(service, "service");
    requireName(instance, "instance");
    return new ServiceRegistration(this, service, instance, options);
  }

  /** Follows the instances of a service. */
  discover(service: string): Discovery {
    requireName(service, "service");
    return new Discovery(this.#requests, service);
  }

  /** Reads small state that a holder wrote with {@link Lease.put}; undefined if the key does not exist. */
  async get(resource: string, key: string): Promise<StoredValue | undefined> {
    requireName(resource, "resource");
    return await readState(this.#requests, resource, key);
  }

  /** The resource, its leases and its number of waiters. */
  async show(resource: string): Promise<ResourceBody> {
    requireName(resource, "resource");
    return await this.#requests.get(`/v1/leases/${encodeName(resource)}`);
  }

  /** State of the cluster. */
  async status(): Promise<StatusBody> {
    return await this.#requests.get("/v1/status");
  }

  /** Sets the capacity of a resource, in units. */
  async setCapacity(resource: string, units: number): Promise<void> {
    requireName(resource, "resource");
    await this.#host.change(leasePath(resource, "capacity"), { units });
  }

  /** Revokes all leases on a resource, as an operator. With `grace` their holders may drain this long. */
  async revoke(resource: string, comment: string, options: { grace?: Duration } = {}): Promise<void> {
    requireName(resource, "resource");
    const grace = options.grace === undefined ? undefined : durationText(milliseconds(options.grace, "grace"));
    await this.#host.change(leasePath(resource, "revoke"), { comment, grace });
  }

  /**
   * Releases all leases, ends the session and closes the connections, within 5 s. Running acquires are withdrawn. Rejects if no server
   * confirmed it; the leases then end by the session's ttl. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Closes the client without an error. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close().catch(() => undefined);
  }

  async #close(): Promise<void> {
    try {
      // Closing the session also withdraws its waits, and releases what was granted to them.
      await this.#host.close(CLOSE_TIMEOUT_MS);
    } catch (error) {
      if ((error as { code?: string }).code === undefined) throw error;
      const { message } = error as Error;
      throw new UnavailableError("UNAVAILABLE", `no server confirmed the end of the session: ${message}`, "Nothing: the leases end by the session's ttl.", {}, { cause: error });
    } finally {
      this.#requests.close();
    }
  }

  /** Acquires in the session; in a new one if the server has ended it, for the rest of the wait. */
  async #acquire<B, T>(request: AcquireRequest<B, T>): Promise<T> {
    const { options, terms } = request;
    const started = this.#host.clock.now();
    const limitMs = terms.waitMs + (terms.timeoutMs ?? this.#requests.timeoutMs);
    for (;;) {
      const session = await this.#host.session(options.signal, terms.timeoutMs);
      const elapsed = this.#host.clock.now() - started;
      const waitMs = terms.waitMs === 0 ? 0 : Math.max(1, terms.waitMs - elapsed);
      try {
        return await this.#attempt(session, request, { ...terms, waitMs });
      } catch (error) {
        // Nothing is held. A server forgets a waiting request when the session has sent 512 later ones, and the reply is lost.
        const isForgotten = (error as { code?: string }).code === "REQUEST_TOO_OLD";
        if (isSessionEnd(error)) this.#host.endSession(session);
        else if (!isForgotten) throw error;
        if (this.#host.clock.now() - started < limitMs) continue;
        if (terms.waitMs === 0) throw error;
        throw new WaitTimeoutError("TIMEOUT", "the wait has ended", "Wait longer, or retry later.", {}, { cause: error });
      }
    }
  }

  async #attempt<B, T>(session: OpenSession, request: AcquireRequest<B, T>, terms: AcquireTerms): Promise<T> {
    const { path, options, grantsOf, result } = request;
    const context = { host: this.#host, requests: this.#requests, session };
    const actor = options.holder === undefined ? this.#actors.acquire() : undefined;
    const freeActor = (): void => {
      if (actor !== undefined) this.#actors.release(actor);
    };
    const named = { ...acquireFields(session.id, options, terms), ...request.fields };
    const body = actor === undefined ? named : { ...named, holder: ActorPool.nameOf(actor, this.holder) };
    let isFree = false;
    const freeUnused = (): void => {
      if (!isFree) freeActor();
      isFree = true;
    };
    const leasesOf = new Map<T, Lease[]>();
    const pending = new PendingGrant<B, T>(this.#host, this.#requests, session, path, body, {
      accept: async (reply, sent, signal) => {
        const grants = checkGrants(grantsOf(reply));
        await this.#host.untilLive(session, terms.timeoutMs ?? this.#requests.timeoutMs, signal);
        const fresh = await Promise.all(grants.map((grant) => this.#freshen(context, grant, terms, sent)));
        const leases = fresh.map((grant) => this.#keep(context, grant, terms));
        if (actor !== undefined) this.#actors.share(actor, leases.length - 1);
        for (const lease of leases) lease.once("lost", freeActor);
        isFree = true;
        const accepted = result(leases);
        leasesOf.set(accepted, leases);
        return accepted;
      },
      discard: async (accepted) => {
        await Promise.allSettled((leasesOf.get(accepted) ?? []).map((lease) => lease.release()));
      },
      release: async (reply) => {
        const grants = grantsOf(reply) ?? [];
        await Promise.allSettled(grants.map((grant) => this.#requests.send(this.#aboutGrant(context, grant, "release"))));
        freeUnused();
      },
      refused: freeUnused,
    });
    return await pending.run({ timeoutMs: terms.timeoutMs, waitMs: terms.waitMs, signal: options.signal });
  }

  /** Renews a grant that arrived after a wait: its deadline is close or past, because it counts from before the wait. */
  async #freshen(context: LeaseContext, grant: Granted, terms: AcquireTerms, firstSent: number): Promise<FreshGrant> {
    const { clock } = context.host;
    const { cell, ttlMs } = context.session;
    // The drain period limits the deadline: a handoff can end the lease after it, while a holder without contact does not know.
    const drainMs = grant.drain_ms ?? undefined;
    const silenceMs = drainMs !== undefined && drainMs > 0 && drainMs < (terms.ttlMs ?? ttlMs) ? drainMs : undefined;
    const isTimed = terms.ttlMs !== undefined || terms.isLimited || silenceMs !== undefined;
    const received = clock.now();
    const remainingMs = grant.remaining_ms;
    // A lease that lives by its session has no end of its own, unless the server granted less than the session has. It may also seem so
    // because the session was renewed after the grant.
    const isOld = isTimed ? received - firstSent > remainingMs / 3 : remainingMs < cell.deadline - received;
    if (!isOld) return { grant, sent: firstSent, remainingMs, isTimed, silenceMs };
    let [sent, sessionDeadline] = [received, cell.deadline];
    const onAttempt = (): void => void ([sent, sessionDeadline] = [clock.now(), cell.deadline]);
    const reply = await this.#requests.send<CurrentLeaseBody>(this.#aboutGrant(context, grant, "renew"), { onAttempt });
    const { token, token_number, secret } = reply;
    const raised = token ? { token, token_number, secret: secret ?? grant.secret ?? null } : {};
    const isLimited = isTimed || reply.remaining_ms < sessionDeadline - clock.now();
    return { grant: { ...grant, ...raised }, sent, remainingMs: reply.remaining_ms, isTimed: isLimited, silenceMs };
  }

  /** Makes a lease of a grant, with a local deadline that counts from before the request was sent. */
  #keep(context: LeaseContext, fresh: FreshGrant, terms: AcquireTerms): Lease {
    const { host, session } = context;
    const { grant, sent, isTimed, silenceMs } = fresh;
    this.#requests.observeToken(grant.token, grant.token_number, grant.resource);
    const ttlMs = terms.ttlMs ?? session.ttlMs;
    const spanMs = isTimed ? Math.min(terms.ttlMs ?? Infinity, Math.max(fresh.remainingMs, 300)) : undefined;
    const remainingMs = Math.min(fresh.remainingMs, ttlMs, silenceMs ?? Infinity);
    const deadline = isTimed ? localDeadline(sent, host.clock.now(), remainingMs) : Infinity;
    const spec = {
      kind: "lease",
      resource: grant.resource,
      lease: grant.lease,
      token: grant.token,
      tokenNumber: grant.token_number,
      secret: grant.secret ?? undefined,
      spanMs,
      ttlMs,
      silenceMs,
      rotates: grant.rotates === true,
      overlaps: (grant.overlaps_ms ?? 0) > 0,
      sent,
    } as const;
    return host.keep(session, spec, deadline, (cells, slot) => new Lease(context, grant, cells, slot));
  }

  /** A call about a grant, which the grant's own token proves. */
  #aboutGrant(context: LeaseContext, grant: Granted, verb: string): Exchange {
    const secret: Record<string, string> = grant.secret ? { "lease-secret": grant.secret } : {};
    const headers = { ...context.session.headers, ...secret, "lease-token": grant.token };
    return this.#requests.change(leasePath(grant.resource, verb), {}, headers);
  }
}

/** Fails for a reply that is no grant: another program may answer at the address. */
function checkGrants(grants: Granted[] | undefined): Granted[] {
  const isGrant = (grant: Granted): boolean => typeof grant.token === "string" && /^\d+$/.test(grant.token_number) && Number.isFinite(grant.remaining_ms);
  if (!Array.isArray(grants) || grants.length === 0 || !grants.every(isGrant)) throw foreignReply("grant");
  return grants;
}
