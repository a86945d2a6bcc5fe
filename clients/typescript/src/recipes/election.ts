// Leader election: one candidate leads, the others wait, and anyone can observe the leader. A leader that shuts down hands off.

import type { Client } from "../client.js";
import type { Duration } from "../duration.js";
import { LeaseLostError, LeaseSuspendedError } from "../errors.js";
import type { ResourceBody } from "../generated/openapi.js";
import type { Lease } from "../lease.js";
import { encodeName } from "../paths.js";
import type { Requests } from "../requests.js";
import { acquireWithoutLimit } from "./acquire-without-limit.js";
import { follow } from "./watch.js";

/** Options of an election. */
export interface ElectionOptions {
  /** Own ttl of the leader's lease: how long there is no leader if the leader disappears. Default: the client's session. */
  ttl?: Duration;
  /** Candidates with a higher priority are elected first. */
  priority?: number;
  /** Text that observers see while this candidate leads, for example its address. */
  metadata?: string;
}

/** The leader, as others see it. */
export interface Leader {
  readonly holder: string;
  readonly metadata: string;
  readonly tokenNumber: string;
}

/** An election: the holder of its resource leads. */
export class Election {
  readonly resource: string;
  readonly #client: Client;
  readonly #requests: Requests;
  readonly #options: ElectionOptions;

  /** @internal */
  constructor(client: Client, requests: Requests, resource: string, options: ElectionOptions) {
    this.#client = client;
    this.#requests = requests;
    this.resource = resource;
    this.#options = options;
  }

  /**
   * Waits until this client leads, without a time limit; while no server can be reached, it goes on trying. The signal withdraws the
   * candidacy.
   */
  async campaign(options: { signal?: AbortSignal } = {}): Promise<Lease> {
    return await acquireWithoutLimit(this.#client, this.resource, { ...this.#options, ...options });
  }

  /**
   * Campaigns and leads, again after a loss, until the work returns or `stop` is aborted. After a revocation it does not campaign again.
   *
   * On `stop` it hands off: the work sees `lease.drainSignal` and finishes, and the successor starts as soon as it has. Returns the
   * result of the work, or undefined if none was running.
   */
  async lead<T>(work: (lease: Lease, signal: AbortSignal) => Promise<T> | T, options: { stop?: AbortSignal } = {}): Promise<T | undefined> {
    const { stop } = options;
    for (;;) {
      let lease: Lease;
      try {
        lease = await this.campaign(stop ? { signal: stop } : {});
      } catch (error) {
        if (stop?.aborted) return undefined;
        throw error;
      }
      const handoff = (): void => void lease.handoff().catch(() => undefined);
      if (stop?.aborted) handoff();
      stop?.addEventListener("abort", handoff, { once: true });
      try {
        const result = await work(lease, lease.signal);
        if (!lease.signal.aborted || stop?.aborted) return result;
      } catch (error) {
        if (!lease.signal.aborted || (error !== lease.signal.reason && (error as Error).name !== "AbortError")) throw error;
      } finally {
        stop?.removeEventListener("abort", handoff);
        await lease[Symbol.asyncDispose]();
      }
      if (stop?.aborted) return undefined;
      if (!mayCampaignAgain(lease)) throw lease.signal.reason;
    }
  }

  /** The leader now; undefined if there is none. */
  async leader(): Promise<Leader | undefined> {
    const shown = await this.#requests.get<ResourceBody>(`/v1/leases/${encodeName(this.resource)}`).catch((error: unknown) => {
      if ((error as { code?: string }).code === "NOT_FOUND") return undefined;
      throw error;
    });
    // In an overlap the predecessor still drains; the successor has the higher token.
    const current = shown?.leases.filter((lease) => lease.predecessor !== true).at(-1);
    if (!current) return undefined;
    return { holder: current.holder, metadata: current.metadata ?? "", tokenNumber: current.token_number };
  }

  /** The leader now and after every change, until the signal is aborted. */
  observe(options: { signal?: AbortSignal } = {}): AsyncGenerator<Leader | undefined, void, undefined> {
    return follow(this.#requests, this.resource, () => this.leader(), options.signal);
  }
}

/** A suspended or expired leader campaigns again; a revoked one leaves the decision to the caller. */
function mayCampaignAgain(lease: Lease): boolean {
  const reason: unknown = lease.signal.reason;
  if (lease.loss?.state === "revoked" || lease.loss?.state === "not_current") return false;
  if (reason instanceof LeaseSuspendedError) return true;
  return reason instanceof LeaseLostError && reason.state === "expired";
}
