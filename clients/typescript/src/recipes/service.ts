// Service registration and discovery: an instance is listed while its process keeps its lease.

import type { AcquireOptions } from "../acquire-options.js";
import type { Client } from "../client.js";
import type { Duration } from "../duration.js";
import type { ResourcesBody } from "../generated/openapi.js";
import type { Lease } from "../lease.js";
import type { Requests } from "../requests.js";
import { acquireWithoutLimit } from "./acquire-without-limit.js";
import { follow } from "./watch.js";

/** Options of a registration. */
export interface ServiceOptions {
  /** Text that readers of the list see, for example an address. */
  details?: string;
  /** Own ttl: how long an instance is listed after its process is gone. Default: the client's session. */
  ttl?: Duration;
  /** How long to wait if the name is still registered. */
  wait?: Duration;
}

/** A registered instance, as others see it. */
export interface Instance {
  /** Name of the instance. */
  readonly name: string;
  readonly details: string;
  readonly holder: string;
  readonly tokenNumber: string;
}

/** A registration that is not made yet. */
export class ServiceRegistration {
  readonly #client: Client;
  readonly #resource: string;
  readonly #options: ServiceOptions;

  /** @internal */
  constructor(client: Client, service: string, instance: string, options: ServiceOptions) {
    this.#client = client;
    this.#resource = `${service}/${instance}`;
    this.#options = options;
  }

  /** Registers the instance. It is listed until the lease is released or lost. */
  async register(options: { signal?: AbortSignal } = {}): Promise<Lease> {
    const { wait } = this.#options;
    return await this.#client.acquire(this.#resource, { ...this.#acquireOptions(), ...(wait === undefined ? {} : { wait }), ...options });
  }

  #acquireOptions(): AcquireOptions {
    const { details, ttl } = this.#options;
    return { ...(details === undefined ? {} : { metadata: details }), ...(ttl === undefined ? {} : { ttl }) };
  }

  /**
   * Keeps the instance registered until the signal is aborted: registers again after an expiry, never after a revocation. It waits for the
   * name if that is still registered, and while no server can be reached.
   */
  async keepRegistered(options: { signal: AbortSignal; onRegistered?: (lease: Lease) => void }): Promise<void> {
    const { signal, onRegistered } = options;
    while (!signal.aborted) {
      let lease: Lease;
      try {
        lease = await acquireWithoutLimit(this.#client, this.#resource, { ...this.#acquireOptions(), signal });
      } catch (error) {
        if (signal.aborted) return;
        throw error;
      }
      onRegistered?.(lease);
      const loss = await lease.waitLost({ signal }).catch(() => undefined);
      await lease[Symbol.asyncDispose]();
      if (loss && loss.state !== "expired") throw lease.signal.reason;
    }
  }
}

/** The instances of a service. */
export class Discovery {
  readonly #requests: Requests;
  readonly #service: string;

  /** @internal */
  constructor(requests: Requests, service: string) {
    this.#requests = requests;
    this.#service = service;
  }

  /** The instances now, by name. */
  async instances(): Promise<Instance[]> {
    const prefix = `${this.#service}/`;
    const instances: Instance[] = [];
    let cursor: unknown;
    do {
      const query = new URLSearchParams({ prefix: this.#service, limit: "1000" });
      if (cursor !== undefined) query.set("cursor", String(cursor));
      const page = await this.#requests.get<ResourcesBody>(`/v1/leases?${query.toString()}`);
      for (const { resource, leases } of page.resources) {
        const lease = leases.at(-1);
        if (!lease || !resource.startsWith(prefix)) continue;
        instances.push({ name: resource.slice(prefix.length), details: lease.metadata ?? "", holder: lease.holder, tokenNumber: lease.token_number });
      }
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
    return instances.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** The instances now and after every change, until the signal is aborted. */
  watch(options: { signal?: AbortSignal } = {}): AsyncGenerator<Instance[], void, undefined> {
    return follow(this.#requests, this.#service, () => this.instances(), options.signal);
  }
}
