// The renewal thread's view of one lease: when to renew it, and until when its holder may act.

import type { DeadlineCell } from "../shared-memory.js";
import type { HoldSpec } from "./messages.js";

/** Assumed drift between two clocks, in both directions. */
const CLOCK_DRIFT = 0.01;

/** The part of a granted time that has surely not passed at the server: twice the drift is subtracted. */
export function shrink(ms: number): number {
  return ms * (1 - 2 * CLOCK_DRIFT);
}

/** A time that has surely passed at the server. */
export function stretch(ms: number): number {
  return ms * (1 + 2 * CLOCK_DRIFT);
}

/** Local deadline of a time that was granted by the reply to a request. Counts from before the request: only that is proven. */
export function localDeadline(sent: number, received: number, grantedMs: number): number {
  return (__LEASEHOLD_MUTANT__ === "deadline_from_reply" ? received : sent) + shrink(grantedMs);
}

/** Time of the next renewal: after a third of the span, a little later for some, so that clients do not renew together. */
export function renewalDue(sent: number, spanMs: number): number {
  return sent + (spanMs / 3) * (1 + Math.random() * 0.1);
}

/** What a reply says about a lease. */
export interface LeaseReply {
  readonly remaining_ms?: number | null;
  readonly drain_ms?: number | null;
}

/** One lease, or one received message. */
export class HeldLease {
  readonly slot: number;
  readonly cell: DeadlineCell;
  spec: HoldSpec;
  /** When the newest answered request was sent. */
  #sent: number;
  /** When to renew it by itself; infinite if the session's renewals are enough. */
  due: number;
  isSuspended = false;
  isBeingAsked = false;
  isDropped = false;

  constructor(slot: number, cell: DeadlineCell, spec: HoldSpec) {
    this.slot = slot;
    this.cell = cell;
    this.spec = spec;
    this.#sent = spec.sent;
    const span = this.#span();
    this.due = span === undefined ? Infinity : renewalDue(spec.sent, span);
  }

  /** Whether the lease has times of its own, besides the session's. */
  get isTimed(): boolean {
    return this.due !== Infinity || this.cell.deadline !== Infinity || this.cell.drainUntil !== Infinity;
  }

  /** The local deadline, without the session's. */
  get deadline(): number {
    return Math.min(this.cell.deadline, this.cell.drainUntil);
  }

  /** Notices that the deadline has passed. True once per suspension. */
  observe(now: number): boolean {
    if (this.isSuspended || now < this.deadline) return false;
    this.isSuspended = true;
    this.cell.countSuspension();
    return true;
  }

  /** Applies a reply to a request that was sent at `sent`. `sessionDeadline` limits the lease anyway. Returns what changed. */
  apply(reply: LeaseReply, sent: number, received: number, sessionDeadline: number): "draining" | "resumed" | undefined {
    this.observe(received);
    let change: "draining" | "resumed" | undefined;
    const drain = reply.drain_ms ?? undefined;
    if (drain !== undefined) {
      const until = localDeadline(sent, received, drain);
      if (this.cell.drainUntil === Infinity) change = "draining";
      // Grantor time stops in an outage, so a later reply can report more: the earliest end counts.
      if (until < this.cell.drainUntil) this.cell.drainUntil = until;
    }
    const remaining = reply.remaining_ms ?? undefined;
    if (remaining !== undefined && sent >= this.#sent) {
      this.#sent = sent;
      this.#applyRemaining(remaining, sent, received, sessionDeadline);
      if (this.isSuspended && received < this.deadline) {
        this.isSuspended = false;
        change ??= "resumed";
      }
    }
    return change;
  }

  #applyRemaining(reported: number, sent: number, received: number, sessionDeadline: number): void {
    const span = this.#span();
    // More than was granted is a fault of the server, and must not become an unbounded lease.
    const remaining = Math.min(reported, this.spec.kind === "lease" ? this.spec.ttlMs : this.spec.spanMs);
    const deadline = localDeadline(sent, received, remaining);
    const silence = this.spec.kind === "lease" ? this.spec.silenceMs : undefined;
    const ofSession = span === undefined && deadline >= sessionDeadline - 1;
    // A lease that lives by its session has no deadline of its own, unless something else ends it earlier.
    const own = ofSession ? Infinity : deadline;
    this.cell.deadline = silence === undefined ? own : Math.min(own, localDeadline(sent, received, silence));
    this.due = this.cell.deadline === Infinity ? Infinity : renewalDue(sent, Math.min(span ?? remaining, Math.max(remaining, 300)));
  }

  #span(): number | undefined {
    if (this.spec.kind === "delivery") return this.spec.spanMs;
    const spans = [this.spec.spanMs, this.spec.silenceMs].filter((span) => span !== undefined);
    return spans.length === 0 ? undefined : Math.min(...spans);
  }
}
