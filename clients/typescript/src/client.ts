// The client: acquires leases, and makes the recipes.

import { acquireFields, acquireTerms, requireName, type AcquireOptions, type AcquireTerms, type ResourceRequest } from "./acquire-options.js";
import { ActorPool } from "./actor-pool.js";
import { configure, type ClientConfig, type ClientOptions } from "./client-options.js";
import { durationText, milliseconds, type Duration } from "./duration.js";
import { BusyError, UnavailableError } from "./errors.js";
import type { CurrentLeaseBody, GrantBody, ResourceBody, StatusBody } from "./generated/openapi.js";
import { Lease, type LeaseContext } from "./lease.js";
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
    const terms = acquireTerms(options);
    const session = await this.#host.session(options.signal, terms.timeoutMs);
    const { shared, slots, units } = options;
    const body = { ...acquireFields(session.id, options, terms), shared, slots, units };
    return await this.#acquire<Granted, Lease>(session, leasePath(resource, "acquire"), body, options, terms, (grant) => [grant], ([lease]) => lease as Lease);
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
    const terms = acquireTerms(options);
    const session = await this.#host.session(options.signal, terms.timeoutMs);
    const body = { ...acquireFields(session.id, options, terms), resources: requested };
    return await this.#acquire<{ grants: Granted[] }, Lease[]>(session, "/v1/leases:acquire_all", body, options, terms, ({ grants }) => grants, (leases) => {
      const byName = new Map(leases.map((lease) => [lease.resource, lease]));
      return requested.map(({ resource }, index) => byName.get(resource) ?? (leases[index] as Lease));
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
    const session = await this.#host.session();
    await this.#requests.send(this.#requests.change(leasePath(resource, "capacity"), { units }, session.nextKey().headers));
  }

  /** Revokes all leases on a resource, as an operator. With `grace` their holders may drain this long. */
  async revoke(resource: string, comment: string, options: { grace?: Duration } = {}): Promise<void> {
    requireName(resource, "resource");
    const session = await this.#host.session();
    const grace = options.grace === undefined ? undefined : durationText(milliseconds(options.grace, "grace"));
    await this.#requests.send(this.#requests.change(leasePath(resource, "revoke"), { comment, grace }, session.nextKey().headers));
  }

  /**
   * Releases all leases, ends the session and closes the connections, within 5 s. Rejects if no server confirmed it; the leases then end
   * by the session's ttl. Idempotent.
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

  async #acquire<B, T>(
    session: OpenSession,
    path: string,
    body: object,
    options: AcquireOptions,
    terms: AcquireTerms,
    grantsOf: (body: B) => Granted[],
    result: (leases: Lease[]) => T,
  ): Promise<T> {
    const context = { host: this.#host, requests: this.#requests, session };
    const actor = options.holder === undefined ? this.#actors.acquire() : undefined;
    const freeActor = (): void => {
      if (actor !== undefined) this.#actors.release(actor);
    };
    const named = actor === undefined ? body : { ...body, holder: ActorPool.nameOf(actor, this.holder) };
    const accept = async (reply: B, sent: number): Promise<Lease[]> => {
      const leases = await Promise.all(grantsOf(reply).map((grant) => this.#accept(context, grant, terms, sent)));
      if (actor !== undefined) this.#actors.share(actor, leases.length - 1);
      for (const lease of leases) lease.once("lost", freeActor);
      return leases;
    };
    const pending = new PendingGrant<B, T>(this.#host, this.#requests, session, path, named, {
      accept: async (reply, sent) => result(await accept(reply, sent)),
      release: async (reply) => {
        await Promise.all((await accept(reply, this.#host.clock.now())).map((lease) => lease.release()));
      },
      refused: freeActor,
    });
    const limits = { timeoutMs: terms.timeoutMs, waitMs: terms.waitMs, signal: options.signal };
    try {
      return await pending.run(limits);
    } catch (error) {
      // The server does not know the session any more: the next acquire opens another one.
      if ((error as { code?: string }).code === "NOT_FOUND" && session.cell.deadline < this.#host.clock.now()) this.#host.abandon(session);
      throw error;
    }
  }

  /** Makes a lease of a grant, with a local deadline that counts from before the request was sent. */
  async #accept(context: LeaseContext, grant: Granted, terms: AcquireTerms, firstSent: number): Promise<Lease> {
    const { host, session } = context;
    this.#requests.observeToken(grant.token, grant.token_number, grant.resource);
    let [sent, remainingMs] = [firstSent, grant.remaining_ms];
    // The drain period limits the deadline: a handoff can end the lease after it, while a holder without contact does not know.
    const drainMs = grant.drain_ms ?? undefined;
    const silenceMs = drainMs !== undefined && drainMs > 0 && drainMs < (terms.ttlMs ?? session.ttlMs) ? drainMs : undefined;
    const received = host.clock.now();
    // A lease that lives by its session has no end of its own, unless the server granted less than the session has.
    const isTimed = terms.ttlMs !== undefined || terms.isLimited || silenceMs !== undefined || remainingMs < session.cell.deadline - received;
    const spanMs = isTimed ? Math.min(terms.ttlMs ?? Infinity, Math.max(remainingMs, 300)) : undefined;
    let token = { token: grant.token, token_number: grant.token_number, secret: grant.secret ?? undefined };
    if (isTimed && received - sent > remainingMs / 3) {
      // After a wait the deadline is close or past, because it counts from before the wait.
      const again = host.clock.now();
      const reply = await this.#renew(context, grant);
      [sent, remainingMs] = [again, reply.remaining_ms];
      if (reply.token) token = { token: reply.token, token_number: reply.token_number, secret: reply.secret ?? token.secret };
    }
    const deadline = isTimed ? localDeadline(sent, host.clock.now(), Math.min(remainingMs, silenceMs ?? Infinity)) : Infinity;
    const spec = {
      kind: "lease",
      resource: grant.resource,
      lease: grant.lease,
      token: token.token,
      tokenNumber: token.token_number,
      secret: token.secret,
      spanMs,
      silenceMs,
      rotates: grant.rotates === true,
      overlaps: (grant.overlaps_ms ?? 0) > 0,
      sent,
    } as const;
    return host.keep(session, spec, deadline, (cells, slot) => new Lease(context, { ...grant, ...token }, cells, slot));
  }

  async #renew(context: LeaseContext, grant: Granted): Promise<CurrentLeaseBody> {
    const secret: Record<string, string> = grant.secret ? { "lease-secret": grant.secret } : {};
    const headers = { ...context.session.headers, ...secret, "lease-token": grant.token };
    return await this.#requests.send(this.#requests.change(leasePath(grant.resource, "renew"), {}, headers));
  }
}
