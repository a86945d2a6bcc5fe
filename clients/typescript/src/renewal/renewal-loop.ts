// Keeps a session and its leases alive, and maintains their local deadlines in shared memory.
//
// It runs in a thread of its own (worker-entry.ts), so that a blocked event loop of the program loses no lease. It has its own
// connections, and its requests have short timeouts. One timer drives it; it also fires twice a second, to notice a suspend of the
// machine.

import { randomUUID } from "node:crypto";

import { BootClock } from "../boot-clock.js";
import { LeaseLostError, type LeaseholdError } from "../errors.js";
import type { Exchange } from "../http-connection.js";
import { leasePath, queuePath } from "../paths.js";
import { pause, ServerPool, withJitter } from "../server-pool.js";
import { RequestCounter, SlotPages } from "../shared-memory.js";
import { HeldLease, type LeaseReply } from "./held-lease.js";
import type { Instruction, LeaseSpec, Notice, RenewalInit } from "./messages.js";
import { attempt, attemptTimeout } from "./one-attempt.js";
import { SessionRenewal } from "./session-renewal.js";

/** The timer fires at least this often, because timers do not count a suspend of the machine. */
const MAX_TIMER_MS = 500;
/** Time for the server to say why a lease ended. */
const LEARN_END_MS = 2_000;
/** Leases of one request. */
const BATCH = 1000;

interface RenewalReply extends LeaseReply {
  readonly token?: string | null;
  readonly token_number?: string;
  readonly secret?: string | null;
  readonly overlaps_ms?: number | null;
}

type BatchResult = RenewalReply & { readonly code?: string; readonly state?: string; readonly reason?: string };

export class RenewalLoop {
  readonly clock: BootClock;
  readonly pool: ServerPool;
  readonly requests: RequestCounter;
  readonly leases = new Map<number, HeldLease>();
  readonly post: (notice: Notice) => void;
  /** Leases with times of their own: only these are looked at by the timer. */
  readonly #timed = new Set<HeldLease>();
  readonly #pages = new SlotPages();
  #session: SessionRenewal | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(init: RenewalInit, post: (notice: Notice) => void) {
    this.clock = new BootClock(init.clock);
    this.pool = new ServerPool(init.servers, init.credentials);
    this.requests = new RequestCounter(init.requests);
    this.post = post;
    this.#schedule(MAX_TIMER_MS);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  handle(instruction: Instruction): void {
    switch (instruction.type) {
      case "page":
        return this.#pages.add(instruction.number, instruction.page);
      case "session":
        this.#session?.stop();
        this.#session = new SessionRenewal(this, instruction.session);
        break;
      case "session_over":
        if (this.#session?.id === instruction.session) void this.#session.end();
        return;
      case "compare":
        if (this.#session?.id === instruction.session) void this.#session.compare().catch(() => undefined);
        return;
      case "hold": {
        const lease = new HeldLease(instruction.slot, this.#pages.cell(instruction.slot), instruction.spec);
        this.leases.set(lease.slot, lease);
        if (lease.isTimed) this.#timed.add(lease);
        // Its session ended while this instruction was on its way.
        if (this.#session?.id !== instruction.session || this.#session.isStopped) void this.learnEnd(lease, LEARN_END_MS);
        break;
      }
      case "drop": {
        const lease = this.leases.get(instruction.slot);
        if (lease) this.forget(lease);
        return this.post({ type: "dropped", slot: instruction.slot });
      }
      case "ask": {
        const lease = this.leases.get(instruction.slot);
        if (lease) void this.ask([lease]);
        return;
      }
      case "token": {
        const lease = this.leases.get(instruction.slot);
        if (lease?.spec.kind === "lease") lease.spec = { ...lease.spec, ...instruction };
        return;
      }
      case "span": {
        const lease = this.leases.get(instruction.slot);
        if (lease?.spec.kind === "delivery") lease.spec = { ...lease.spec, spanMs: instruction.spanMs };
        return;
      }
      case "clock_moved":
        break;
      case "close":
        return this.#close();
    }
    this.#tick();
  }

  /** The lease is no longer kept. */
  forget(lease: HeldLease): void {
    lease.isDropped = true;
    this.leases.delete(lease.slot);
    this.#timed.delete(lease);
  }

  /** The server reported the end of a lease. */
  lose(lease: HeldLease, state: string, reason: string | undefined): void {
    if (lease.isDropped) return;
    this.forget(lease);
    lease.cell.markEnded();
    this.post({ type: "lost", slot: lease.slot, state, reason });
  }

  /** Asks the server about leases: renews them, and learns of drains and ends. */
  async ask(leases: readonly HeldLease[]): Promise<void> {
    const free = leases.filter((lease) => !lease.isBeingAsked && !lease.isDropped);
    for (const lease of free) lease.isBeingAsked = true;
    try {
      const single = free.filter((lease) => free.length === 1 || lease.spec.kind === "delivery" || lease.spec.rotates);
      const batched = free.filter((lease) => !single.includes(lease));
      const work = single.map((lease) => this.#renewOne(lease));
      for (let start = 0; start < batched.length; start += BATCH) work.push(this.#renewBatch(batched.slice(start, start + BATCH)));
      await Promise.all(work);
    } finally {
      for (const lease of free) lease.isBeingAsked = false;
      this.#tick();
    }
  }

  /** Applies a reply about a lease. */
  apply(lease: HeldLease, reply: RenewalReply, sent: number, received: number): void {
    if (lease.isDropped) return;
    if (lease.spec.kind === "lease") this.#applyToken(lease, lease.spec, reply);
    if (lease.spec.kind === "lease" && lease.spec.overlaps && (reply.overlaps_ms ?? 0) === 0) this.predecessorDone(lease);
    const change = lease.apply(reply, sent, received, this.#session?.deadline ?? Infinity);
    if (lease.isTimed) this.#timed.add(lease);
    else this.#timed.delete(lease);
    if (change) this.post({ type: "changed", slots: [lease.slot] });
  }

  /** The predecessor of an overlap handoff is done. */
  predecessorDone(lease: HeldLease): void {
    if (lease.spec.kind !== "lease") return;
    lease.spec = { ...lease.spec, overlaps: false };
    this.post({ type: "drained", slot: lease.slot });
  }

  /** Applies a refusal: an end, or something that a later attempt decides. */
  refuse(lease: HeldLease, error: LeaseholdError): void {
    if (error instanceof LeaseLostError) this.lose(lease, error.state, error.reason);
    else if (error.code === "STALE_TOKEN" || error.code === "NOT_FOUND") this.lose(lease, "not_current", error.fields.reason ?? undefined);
  }

  /** Asks why a lease ended, which is surely over. */
  async learnEnd(lease: HeldLease, timeoutMs: number): Promise<void> {
    const { spec } = lease;
    if (spec.kind === "lease") {
      const secret: Record<string, string> = spec.secret === undefined ? {} : { "lease-secret": spec.secret };
      const headers = { ...secret, "lease-token": spec.token };
      const exchange: Exchange = { method: "POST", path: leasePath(spec.resource, "check"), headers, body: "{}" };
      const result = await attempt(this.pool, this.clock, exchange, timeoutMs);
      if (result.kind === "refused") this.refuse(lease, result.error);
    }
    this.lose(lease, "expired", "session");
  }

  #applyToken(lease: HeldLease, spec: LeaseSpec, reply: RenewalReply): void {
    const { token, token_number: tokenNumber } = reply;
    if (!token || !tokenNumber || BigInt(tokenNumber) <= BigInt(spec.tokenNumber)) return;
    const secret = reply.secret ?? spec.secret;
    lease.spec = { ...spec, token, tokenNumber, secret };
    this.post({ type: "token", slot: lease.slot, token, tokenNumber, secret });
  }

  async #renewOne(lease: HeldLease): Promise<void> {
    const span = lease.spec.spanMs ?? this.#session?.ttlMs ?? 30_000;
    let exchange = this.#renewalOf(lease, true);
    await this.#untilDecided([lease], span, async () => {
      const result = await attempt<RenewalReply>(this.pool, this.clock, exchange, attemptTimeout(span));
      if (result.kind === "granted") this.apply(lease, result.body, result.sent, result.received);
      else if (result.kind === "refused" && result.error.fields.field === "idempotency-key") {
        // A server of an earlier version accepts no such key: without one, a lost reply may cost the lease, but nothing else.
        exchange = this.#renewalOf(lease, false);
        return 0;
      } else if (result.kind === "refused") this.refuse(lease, result.error);
      return result.kind === "undecided" ? result.afterMs : undefined;
    });
  }

  async #renewBatch(leases: readonly HeldLease[]): Promise<void> {
    const span = Math.min(...leases.map((lease) => lease.spec.spanMs ?? this.#session?.ttlMs ?? 30_000));
    await this.#untilDecided(leases, span, async () => {
      const named = leases.map(({ spec }) => (spec.kind === "lease" ? { lease: spec.lease, token_number: spec.tokenNumber } : undefined));
      const exchange: Exchange = {
        method: "POST",
        path: "/v1/leases:renew",
        headers: this.sessionHeaders(),
        body: JSON.stringify({ session: this.#session?.id, leases: named }),
      };
      const result = await attempt<{ results: BatchResult[] }>(this.pool, this.clock, exchange, attemptTimeout(span));
      if (result.kind !== "granted") return result.kind === "undecided" ? result.afterMs : undefined;
      leases.forEach((lease, index) => {
        const reply = result.body.results[index];
        if (!reply) return;
        if (reply.code === "LEASE_LOST") this.lose(lease, reply.state ?? "expired", reply.reason);
        else if (reply.code === "NOT_CURRENT") this.lose(lease, "not_current", reply.reason);
        else if (reply.code === undefined) this.apply(lease, reply, result.sent, result.received);
      });
      return undefined;
    });
  }

  /** Repeats an attempt until the server decides or nothing is left to keep. After the deadline it goes on, slowly. */
  async #untilDecided(leases: readonly HeldLease[], spanMs: number, once: () => Promise<number | undefined>): Promise<void> {
    while (!this.#isClosed && leases.some((lease) => !lease.isDropped)) {
      // A reply that cannot be understood proves nothing.
      const afterMs = await once().catch(() => 500);
      if (afterMs === undefined) return;
      const isLate = leases.every((lease) => lease.isSuspended);
      await pause(withJitter(Math.max(afterMs, isLate ? Math.min(1000, spanMs / 6) : 0)));
    }
  }

  #renewalOf(lease: HeldLease, withKey: boolean): Exchange {
    const { spec } = lease;
    const secret: Record<string, string> = spec.secret === undefined ? {} : { "lease-secret": spec.secret };
    if (spec.kind === "delivery") {
      const body = JSON.stringify({ item: spec.item, receipt: spec.receipt, visibility: `${spec.spanMs}ms` });
      return { method: "POST", path: queuePath(spec.queue, "extend"), headers: { ...this.sessionHeaders(), ...secret }, body };
    }
    const key: Record<string, string> = spec.rotates && withKey ? { "idempotency-key": randomUUID() } : {};
    const headers = { ...this.sessionHeaders(), ...secret, ...key, "lease-token": spec.token };
    return { method: "POST", path: leasePath(spec.resource, "renew"), headers, body: "{}" };
  }

  sessionHeaders(): Record<string, string> {
    const secret = this.#session?.secret;
    return secret === undefined ? {} : { "session-secret": secret };
  }

  /** Notices passed deadlines, and starts the renewals that are due. */
  #tick(): void {
    if (this.#isClosed) return;
    const now = this.clock.now();
    let next = this.#session?.tick(now) ?? Infinity;
    const suspended: number[] = [];
    const due: HeldLease[] = [];
    for (const lease of this.#timed) {
      if (lease.observe(now)) suspended.push(lease.slot);
      if (!lease.isSuspended) next = Math.min(next, lease.deadline);
      if (lease.isBeingAsked) continue;
      // Leases that are nearly due join the batch.
      if (lease.due - now < (lease.spec.spanMs ?? 3000) / 30) due.push(lease);
      else next = Math.min(next, lease.due);
    }
    if (suspended.length > 0) this.post({ type: "changed", slots: suspended });
    if (due.length > 0) void this.ask(due);
    this.#schedule(Math.max(1, Math.min(MAX_TIMER_MS, next - now)));
  }

  /** Runs the timer's work now. */
  wake(): void {
    this.#tick();
  }

  #schedule(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#tick(), Math.ceil(ms));
  }

  #close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#session?.stop();
    this.pool.close();
  }
}
