// Renewal of one session: one request per third of its ttl, however many leases it carries.
//
// Each renewal carries the number of leases and the exclusive or of their token numbers. If the server has others, the two lists are
// compared. Events of the session only mean "ask now"; losing their stream loses nothing.

import { isSessionEnd, type LeaseholdError } from "../errors.js";
import { readEvents, type StreamEvent } from "../event-stream.js";
import type { Exchange } from "../http-connection.js";
import { sessionPath } from "../paths.js";
import { pause, withJitter } from "../server-pool.js";
import { sessionCell, type DeadlineCell } from "../shared-memory.js";
import { localDeadline, renewalDue, type HeldLease } from "./held-lease.js";
import type { SessionSpec } from "./messages.js";
import { attempt, attemptTimeout } from "./one-attempt.js";
import type { RenewalLoop } from "./renewal-loop.js";

interface RenewedSession {
  readonly remaining_ms: number;
  readonly mismatch?: boolean;
}

/** Number of leases, and the exclusive or of their token numbers. */
interface HeldDigest {
  readonly count: number;
  readonly digest: string;
}

interface SessionLease {
  readonly lease: string;
  readonly resource: string;
  readonly token_number: string;
}

/** After the end of a session, the server is asked about this many leases at most; the others ended with the session. */
const MAX_ASKED_AT_END = 256;

/** Of this many renewals in a row, one carries what the client holds, even if requests are running. */
const COMPARED_AT_LEAST = 6;

export class SessionRenewal {
  readonly #loop: RenewalLoop;
  readonly #spec: SessionSpec;
  readonly #cell: DeadlineCell;
  readonly #stopped = new AbortController();
  #sent: number;
  #due: number;
  #isRenewing = false;
  #isSuspended = false;
  #hasEvents = false;
  #eventsMissing = false;
  #skipped = 0;

  constructor(loop: RenewalLoop, spec: SessionSpec) {
    this.#loop = loop;
    this.#spec = spec;
    this.#cell = sessionCell(spec.page);
    this.#sent = spec.sent;
    this.#due = renewalDue(spec.sent, spec.ttlMs);
    void this.#watch();
  }

  get id(): string {
    return this.#spec.id;
  }
  get secret(): string | undefined {
    return this.#spec.secret;
  }
  get ttlMs(): number {
    return this.#spec.ttlMs;
  }
  get deadline(): number {
    return this.#cell.deadline;
  }

  get isStopped(): boolean {
    return this.#stopped.signal.aborted;
  }

  /** Ends the renewals; the session itself continues until its ttl. */
  stop(): void {
    this.#stopped.abort(new Error("stopped"));
  }

  /** Notices a passed deadline and starts a renewal that is due. Returns when to call it again. */
  tick(now: number): number {
    if (this.#stopped.signal.aborted) return Infinity;
    this.#observe(now);
    if (now >= this.#due && !this.#isRenewing) void this.#renew();
    return Math.min(this.#isRenewing ? Infinity : this.#due, this.#isSuspended ? Infinity : this.deadline);
  }

  #observe(now: number): void {
    if (this.#isSuspended || now < this.deadline) return;
    this.#isSuspended = true;
    this.#cell.countSuspension();
    this.#loop.post({ type: "changed", slots: "all" });
  }

  async #renew(): Promise<void> {
    this.#isRenewing = true;
    try {
      let isPlain: boolean = false;
      while (!this.#stopped.signal.aborted) {
        const held: HeldDigest | undefined = isPlain ? undefined : this.#held();
        const exchange: Exchange = {
          method: "POST",
          path: sessionPath(this.id, "renew"),
          headers: this.#loop.sessionHeaders(),
          ...(held === undefined ? {} : { body: JSON.stringify({ held }) }),
        };
        const result = await attempt<RenewedSession>(this.#loop.pool, this.#loop.clock, exchange, attemptTimeout(this.ttlMs));
        if (this.#stopped.signal.aborted) return;
        if (result.kind === "granted") {
          if (!this.#apply(result.body, result.sent, result.received)) {
            // A reply that cannot be understood proves nothing.
            await pause(500);
            continue;
          }
          if (held !== undefined && result.body.mismatch === true) await this.compare().catch(() => undefined);
          else if (!this.#hasEvents && this.#loop.leases.size > 0) void this.#loop.ask([...this.#loop.leases.values()]);
          return;
        }
        if (result.kind === "refused" && isEnd(result.error)) return await this.end();
        // A server of another version may refuse the digest: then the session is renewed without it, at once.
        const isDigestRefused: boolean = result.kind === "refused" && held !== undefined;
        isPlain ||= isDigestRefused;
        const after = isDigestRefused ? 0 : result.kind === "refused" ? 1000 : result.afterMs;
        await pause(withJitter(Math.max(after, this.#isSuspended ? Math.min(1000, this.ttlMs / 6) : 0)));
      }
    } finally {
      this.#isRenewing = false;
      this.#loop.wake();
    }
  }

  /** False for a reply without a remaining time. */
  #apply(reply: RenewedSession, sent: number, received: number): boolean {
    if (!Number.isFinite(reply.remaining_ms)) return false;
    this.#observe(received);
    this.#due = renewalDue(sent, this.ttlMs);
    if (sent < this.#sent) return true;
    this.#sent = sent;
    // More than the ttl is a fault of the server, and must not become an unbounded lease.
    this.#cell.deadline = localDeadline(sent, received, Math.min(reply.remaining_ms, this.ttlMs));
    if (!this.#isSuspended || received >= this.deadline) return true;
    this.#isSuspended = false;
    this.#loop.post({ type: "changed", slots: "all" });
    // The server may have ended some of the leases meanwhile.
    void this.#loop.ask([...this.#loop.leases.values()]);
    return true;
  }

  /** What this client believes it holds; undefined while a request runs whose grant is not known here. */
  #held(): HeldDigest | undefined {
    // A program that acquires all the time is compared now and then too; the server spares grants that may still be asked about.
    if (this.#loop.requests.running === 0) this.#skipped = 0;
    else if (++this.#skipped < COMPARED_AT_LEAST) return undefined;
    this.#skipped = 0;
    if (this.#eventsMissing) return undefined;
    let [count, digest] = [0, 0n];
    for (const { spec } of this.#loop.leases.values()) {
      if (spec.kind !== "lease") continue;
      count += 1;
      digest ^= BigInt(spec.tokenNumber);
    }
    return { count, digest: digest.toString() };
  }

  /** Compares the leases of the server with those of this client: asks about missing ones, and releases unknown ones. */
  async compare(): Promise<void> {
    const listed = await this.#list();
    if (!listed) return;
    const present = new Set(listed.map((lease) => lease.token_number));
    const leases = [...this.#loop.leases.values()];
    const missing = leases.filter(({ spec }) => spec.kind === "lease" && !present.has(spec.tokenNumber));
    if (missing.length > 0) await this.#loop.ask(missing);
    const known = new Set([...this.#loop.leases.values()].map(({ spec }) => (spec.kind === "lease" ? spec.lease : "")));
    if (listed.some((lease) => !known.has(lease.lease))) await this.#reconcile([...this.#loop.leases.values()]);
  }

  async #list(): Promise<SessionLease[] | undefined> {
    const listed: SessionLease[] = [];
    let cursor: string | undefined;
    do {
      const query = cursor === undefined ? "" : `?cursor=${encodeURIComponent(cursor)}`;
      const path = `/v1/sessions/${encodeURIComponent(this.id)}/leases${query}`;
      const exchange: Exchange = { method: "GET", path, headers: this.#loop.sessionHeaders() };
      const page = await attempt<{ leases: SessionLease[]; next?: string | number | null }>(
        this.#loop.pool,
        this.#loop.clock,
        exchange,
        attemptTimeout(this.ttlMs),
      );
      if (page.kind !== "granted") return undefined;
      listed.push(...page.body.leases);
      cursor = page.body.next === null || page.body.next === undefined ? undefined : String(page.body.next);
    } while (cursor !== undefined);
    return listed;
  }

  /** Names the leases that this client holds, so that the server releases all others of the session. */
  async #reconcile(leases: readonly HeldLease[]): Promise<void> {
    const ids = leases.flatMap(({ spec }) => (spec.kind === "lease" ? [spec.lease] : []));
    const exchange: Exchange = {
      method: "POST",
      path: sessionPath(this.id, "reconcile"),
      headers: this.#loop.sessionHeaders(),
      body: JSON.stringify({ leases: ids }),
    };
    await attempt(this.#loop.pool, this.#loop.clock, exchange, attemptTimeout(this.ttlMs));
  }

  /** The session has ended, and with it all its leases. The server knows why each of them ended. */
  async end(): Promise<void> {
    if (this.isStopped) return;
    this.stop();
    this.#cell.markEnded();
    this.#cell.deadline = this.#loop.clock.now();
    if (!this.#isSuspended) this.#cell.countSuspension();
    this.#isSuspended = true;
    this.#loop.post({ type: "changed", slots: "all" });
    this.#loop.post({ type: "session_ended", session: this.id });
    const leases = [...this.#loop.leases.values()];
    await Promise.all(leases.slice(0, MAX_ASKED_AT_END).map((lease) => this.#loop.learnEnd(lease, attemptTimeout(this.ttlMs))));
    for (const lease of leases.slice(MAX_ASKED_AT_END)) this.#loop.lose(lease, "expired", "session");
  }

  /** Listens to the events of the session, and reconnects. */
  async #watch(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      const connection = this.#loop.pool.current;
      try {
        const path = `/v1/sessions/${encodeURIComponent(this.id)}/events`;
        const onOpen = (): void => {
          this.#hasEvents = true;
          // Events may have been missed while there was no stream.
          if (this.#loop.leases.size > 0) void this.#loop.ask([...this.#loop.leases.values()]);
        };
        const secret = this.secret;
        const headers: Record<string, string> = secret === undefined ? {} : { "session-secret": secret };
        for await (const event of readEvents(connection, path, headers, signal, onOpen)) this.#on(event);
      } catch (error) {
        // The session ended while there was no stream.
        if (isSessionEnd(error)) return await this.end();
        // A server of an earlier version: leases are asked about at every renewal instead.
        this.#eventsMissing = [404, 405].includes((error as Partial<LeaseholdError>).status ?? 0);
      }
      this.#hasEvents = false;
      await pause(withJitter(this.#eventsMissing ? 30_000 : 300), signal).catch(() => undefined);
    }
  }

  #on(event: StreamEvent): void {
    const { lease: id, queue } = event.data;
    if (event.event === "ready" && typeof queue === "string") this.#loop.post({ type: "ready", queue });
    if (id === undefined || event.event === "granted") return;
    const affected = [...this.#loop.leases.values()].filter(({ spec }) => spec.kind === "lease" && spec.lease === id);
    if (event.event === "drained") for (const lease of affected) this.#loop.predecessorDone(lease);
    if (affected.length > 0) void this.#loop.ask(affected);
  }
}

/** Whether a refusal means that the session does not exist any more. */
function isEnd(error: LeaseholdError): boolean {
  return ["LEASE_LOST", "NOT_CURRENT", "NOT_FOUND", "WRONG_CLUSTER"].includes(error.code);
}
