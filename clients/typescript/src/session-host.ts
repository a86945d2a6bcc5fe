// The session of a client, the renewal thread that keeps it, and the leases that it carries.

import type { BootClock } from "./boot-clock.js";
import { TestClock } from "./boot-clock.js";
import type { ClientConfig } from "./client-options.js";
import { durationText } from "./duration.js";
import { foreignReply, isSessionEnd, LeaseLostError, OutcomeUnknownError, UnavailableError } from "./errors.js";
import type { SessionBody } from "./generated/openapi.js";
import type { Hold, HoldCells } from "./local-validity.js";
import type { Exchange } from "./http-connection.js";
import { allowListeners } from "./linked-signal.js";
import { sessionPath } from "./paths.js";
import { localDeadline } from "./renewal/held-lease.js";
import type { HoldSpec, Notice } from "./renewal/messages.js";
import { startRenewalThread, type RenewalThread } from "./renewal/renewal-thread.js";
import { closedError, type RequestLimits, type Requests } from "./requests.js";
import { pause } from "./server-pool.js";
import { newSessionPage, RequestCounter, sessionCell, SlotAllocator, type DeadlineCell } from "./shared-memory.js";

/** A request that finds its session ended is sent again in a new one, this often at most. */
const MAX_SESSIONS_PER_REQUEST = 3;

/** How often the local deadline of a session is read until it is renewed. */
const LIVE_POLL_MS = 10;

/** An open session. Its requests are numbered from 1. */
export class OpenSession {
  readonly id: string;
  readonly secret: string | undefined;
  readonly ttlMs: number;
  readonly cluster: string;
  readonly cell: DeadlineCell;
  #sequence = 0;

  constructor(body: SessionBody, cell: DeadlineCell) {
    this.id = body.session;
    this.secret = body.secret ?? undefined;
    this.ttlMs = body.ttl_ms;
    this.cluster = body.cluster;
    this.cell = cell;
  }

  get headers(): Record<string, string> {
    return this.secret === undefined ? {} : { "session-secret": this.secret };
  }

  /** Headers with the next idempotency key. */
  nextKey(): { sequence: string; headers: Record<string, string> } {
    const sequence = String(++this.#sequence);
    return { sequence, headers: { ...this.headers, "idempotency-key": `${this.id}:${sequence}` } };
  }
}

/** A hold that the renewal thread keeps. */
export interface KeptHold {
  readonly slot: number;
  readonly hold: Hold;
}

export class SessionHost {
  readonly clock: BootClock;
  /** Requests whose grants the renewal thread does not know yet. */
  readonly requestCounter = new RequestCounter();
  readonly #config: ClientConfig;
  readonly #requests: Requests;
  readonly #holds = new Map<number, Hold>();
  readonly #queueListeners = new Map<string, Set<() => void>>();
  #slots: SlotAllocator | undefined;
  #thread: RenewalThread | undefined;
  #opening: Promise<OpenSession> | undefined;
  #session: OpenSession | undefined;
  readonly #closing = new AbortController();
  #deadlineTimer: NodeJS.Timeout | undefined;

  constructor(config: ClientConfig, requests: Requests) {
    this.clock = config.clock;
    this.#config = config;
    this.#requests = requests;
  }

  /** The session, if one is open. */
  get current(): OpenSession | undefined {
    return this.#session;
  }

  /** Aborted when the client is being closed. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Leases and received messages. */
  get holds(): Iterable<Hold> {
    return this.#holds.values();
  }

  /** The session; opens one if there is none. */
  async session(signal?: AbortSignal, timeoutMs?: number): Promise<OpenSession> {
    this.#closing.signal.throwIfAborted();
    signal?.throwIfAborted();
    if (this.#session) return this.#session;
    this.#opening ??= this.#open(timeoutMs).finally(() => (this.#opening = undefined));
    return await abortable(this.#opening, signal);
  }

  async #open(timeoutMs: number | undefined): Promise<OpenSession> {
    // A session with a short ttl must not wait for its thread to start on a busy machine.
    await this.#renewalThread().ready;
    const sent = this.clock.now();
    // Without a key: a session whose reply is lost carries nothing, and expires.
    const exchange = this.#requests.change("/v1/sessions", { holder: this.#config.holder, ttl: durationText(this.#config.sessionTtlMs) }, {});
    let body: SessionBody;
    try {
      body = await this.#requests.send<SessionBody>(exchange, { timeoutMs });
    } catch (error) {
      this.#closing.signal.throwIfAborted();
      if ((error as { code?: string }).code !== "INDETERMINATE") throw error;
      const { message } = error as Error;
      throw new UnavailableError("UNAVAILABLE", `no session could be opened: ${message}`, "Retry the same request later.", {}, { cause: error });
    }
    if (typeof body.session !== "string") throw foreignReply("session");
    const page = newSessionPage();
    const cell = sessionCell(page);
    cell.reset(localDeadline(sent, this.clock.now(), Math.min(body.remaining_ms, body.ttl_ms)));
    const session = new OpenSession(body, cell);
    this.#session = session;
    const { id, secret, ttlMs } = session;
    this.#renewalThread().send({ type: "session", session: { id, secret, ttlMs, sent, page } });
    this.#watchDeadline(session);
    return session;
  }

  /** The server has ended a session: its leases are lost, and the next request opens another one. */
  endSession(session: OpenSession): void {
    if (this.#session === session) this.#session = undefined;
    if (session.cell.ended) return;
    session.cell.markEnded();
    this.#thread?.send({ type: "session_over", session: session.id });
    for (const hold of [...this.#holds.values()]) hold.refresh();
  }

  /**
   * Sends a change under a key of the session. In a session that has ended the server executes nothing, so the change is sent again in a
   * new one, unless an earlier attempt of it may have been executed.
   */
  async change<T>(path: string, body: unknown, limits: RequestLimits = {}): Promise<T> {
    for (let count = 1; ; count++) {
      const session = await this.session(limits.signal);
      const { headers } = session.nextKey();
      let attempts = 0;
      const exchange: Exchange = { ...this.#requests.change(path, body, headers), onSent: () => (attempts += 1) };
      try {
        return await this.#requests.send<T>(exchange, limits);
      } catch (error) {
        if (!isSessionEnd(error)) throw error;
        this.endSession(session);
        const { message } = error as Error;
        if (attempts > 1) throw new OutcomeUnknownError(`a reply was lost, and the session of the request has ended since: ${message}`, {}, undefined, error);
        if (count === MAX_SESSIONS_PER_REQUEST) throw error;
      }
    }
  }

  /**
   * Waits until a session is renewed whose local deadline has passed: after an outage or a suspend of the machine the server may have kept
   * it, and a lease that lives by it would be suspended from its beginning.
   */
  async untilLive(session: OpenSession, timeoutMs: number, signal: AbortSignal): Promise<void> {
    const end = performance.now() + timeoutMs;
    while (this.clock.now() >= session.cell.deadline) {
      if (session.cell.ended) throw new LeaseLostError("expired", "session");
      if (performance.now() >= end) throw new UnavailableError("UNAVAILABLE", "no server renewed the session in time", "Retry the same request later.");
      await pause(LIVE_POLL_MS, signal);
    }
  }

  /** Lets the renewal thread keep a hold. `deadline` is infinite if only the session limits it. Fails if the hold has ended already. */
  keep<H extends Hold>(session: OpenSession, spec: HoldSpec, deadline: number, create: (cells: HoldCells, slot: number) => H): H {
    if (this.#closing.signal.aborted) throw closedError();
    if (session.cell.ended) throw new LeaseLostError("expired", "session");
    const thread = this.#renewalThread();
    const slots = this.#allocator();
    const slot = slots.allocate();
    const own = slots.pages.cell(slot);
    own.reset(deadline);
    const hold = create({ own, session: session.cell }, slot);
    this.#holds.set(slot, hold);
    thread.send({ type: "hold", slot, session: session.id, spec });
    return hold;
  }

  /** The hold has ended: the renewal thread forgets it. */
  drop(slot: number): void {
    this.#holds.delete(slot);
    if (this.#closing.signal.aborted) return;
    this.#thread?.send({ type: "drop", slot });
  }

  /** Makes the renewal thread ask the server about a hold now. */
  ask(slot: number): void {
    this.#thread?.send({ type: "ask", slot });
  }

  /** Releases leases of the session that this client does not know, after a request whose outcome no one knows any more. */
  compare(session: OpenSession): void {
    this.#thread?.send({ type: "compare", session: session.id });
  }

  /** A message is to be extended by another time from now on. */
  changeSpan(slot: number, spanMs: number): void {
    this.#thread?.send({ type: "span", slot, spanMs });
  }

  /** The token of a lease was raised by a request of this thread. */
  replaceToken(slot: number, token: string, tokenNumber: string, secret: string | undefined): void {
    this.#thread?.send({ type: "token", slot, token, tokenNumber, secret });
  }

  /** Calls a listener when a queue may have messages. Returns a function that removes it. */
  onReady(queue: string, listener: () => void): () => void {
    return addListener(this.#queueListeners, queue, listener);
  }

  /** Ends everything: all leases of the session are released by closing it. */
  async close(timeoutMs: number): Promise<void> {
    if (this.#closing.signal.aborted) return;
    clearTimeout(this.#deadlineTimer);
    for (const hold of this.#holds.values()) hold.lose({ state: "released", reason: "released" });
    this.#holds.clear();
    const session = this.#session;
    this.#session = undefined;
    // Ends waits for a session or a grant. A session whose reply is on its way carries nothing, and expires.
    this.#closing.abort(closedError());
    try {
      if (session && !session.cell.ended) {
        await this.#requests.send({ method: "POST", path: sessionPath(session.id, "close"), headers: session.headers }, { timeoutMs });
      }
    } catch (error) {
      // The session is gone already: that is what was wanted.
      if (!["NOT_FOUND", "LEASE_LOST", "NOT_CURRENT"].includes((error as { code?: string }).code ?? "")) throw error;
    } finally {
      await this.#thread?.close();
    }
  }

  #allocator(): SlotAllocator {
    this.#slots ??= new SlotAllocator((number, page) => this.#renewalThread().send({ type: "page", number, page }));
    return this.#slots;
  }

  #renewalThread(): RenewalThread {
    if (this.#thread) return this.#thread;
    this.#closing.signal.throwIfAborted();
    const { servers, credentials, clock } = this.#config;
    const init = { servers, credentials, clock: clock.share, requests: this.requestCounter.buffer, mutant: __LEASEHOLD_MUTANT__ };
    const thread = startRenewalThread(init, (notice) => this.#on(notice), () => this.#onThreadFailure());
    if (clock instanceof TestClock) clock.onAdvance(() => thread.send({ type: "clock_moved" }));
    this.#thread = thread;
    return thread;
  }

  #on(notice: Notice): void {
    switch (notice.type) {
      case "changed": {
        const holds = notice.slots === "all" ? this.#holds.values() : notice.slots.map((slot) => this.#holds.get(slot));
        for (const hold of [...holds]) hold?.refresh();
        return;
      }
      case "lost": {
        const hold = this.#holds.get(notice.slot);
        if (!hold) return;
        hold.lose({ state: notice.state, reason: notice.reason });
        return this.drop(notice.slot);
      }
      case "dropped":
        return this.#slots?.free(notice.slot);
      case "token":
        return this.#holds.get(notice.slot)?.replaceToken(notice.token, notice.tokenNumber, notice.secret);
      case "session_ended":
        if (this.#session?.id === notice.session) this.#session = undefined;
        return;
      case "ready":
        return this.#queueListeners.get(notice.queue)?.forEach((listener) => listener());
      case "drained":
        return this.#holds.get(notice.slot)?.onPredecessorDone();
    }
  }

  /** Reports a passed deadline even if the renewal thread does not. */
  #watchDeadline(session: OpenSession): void {
    clearTimeout(this.#deadlineTimer);
    if (this.#session !== session || this.#closing.signal.aborted) return;
    const left = session.cell.deadline - this.clock.now();
    if (left <= 0) for (const hold of [...this.#holds.values()]) hold.refresh();
    this.#deadlineTimer = setTimeout(() => this.#watchDeadline(session), Math.max(left, 500)).unref();
  }

  /** Without renewals the deadlines pass, and the next acquire starts another thread and session. */
  #onThreadFailure(): void {
    this.#thread = undefined;
    this.#slots = undefined;
    this.#session = undefined;
    for (const hold of this.#holds.values()) hold.lose({ state: "not_current", reason: "unknown" });
    this.#holds.clear();
  }
}

function addListener(listeners: Map<string, Set<() => void>>, name: string, listener: () => void): () => void {
  const set = listeners.get(name) ?? new Set();
  listeners.set(name, set.add(listener));
  return () => {
    set.delete(listener);
    if (set.size === 0 && listeners.get(name) === set) listeners.delete(name);
  };
}

/** The value of a promise, or the reason of the signal. The work behind the promise continues. */
export function abortable<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  return new Promise<T>((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    allowListeners(signal);
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
