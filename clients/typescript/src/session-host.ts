// The session of a client, the renewal thread that keeps it, and the leases that it carries.

import type { BootClock } from "./boot-clock.js";
import { TestClock } from "./boot-clock.js";
import type { ClientConfig } from "./client-options.js";
import { durationText } from "./duration.js";
import { UnavailableError } from "./errors.js";
import type { SessionBody } from "./generated/openapi.js";
import type { Hold, HoldCells } from "./hold.js";
import { sessionPath } from "./paths.js";
import { localDeadline } from "./renewal/held-lease.js";
import type { HoldSpec, Notice } from "./renewal/messages.js";
import { startRenewalThread, type RenewalThread } from "./renewal/renewal-thread.js";
import type { Requests } from "./requests.js";
import { newSessionPage, RequestCounter, sessionCell, SlotAllocator, type DeadlineCell } from "./shared-memory.js";

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
  #deadlineTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(config: ClientConfig, requests: Requests) {
    this.clock = config.clock;
    this.#config = config;
    this.#requests = requests;
  }

  /** The session, if one is open. */
  get current(): OpenSession | undefined {
    return this.#session;
  }

  /** Leases and received messages. */
  get holds(): Iterable<Hold> {
    return this.#holds.values();
  }

  /** The session; opens one if there is none. */
  async session(signal?: AbortSignal, timeoutMs?: number): Promise<OpenSession> {
    this.#requests.requireOpen();
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
      if ((error as { code?: string }).code !== "INDETERMINATE") throw error;
      const { message } = error as Error;
      throw new UnavailableError("UNAVAILABLE", `no session could be opened: ${message}`, "Retry the same request later.", {}, { cause: error });
    }
    this.#requests.requireOpen();
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

  /** Forgets a session that the server does not know any more. Its leases end. */
  abandon(session: OpenSession): void {
    if (this.#session === session) this.#session = undefined;
  }

  /** Lets the renewal thread keep a hold. `deadline` is infinite if only the session limits it. */
  keep<H extends Hold>(session: OpenSession, spec: HoldSpec, deadline: number, create: (cells: HoldCells, slot: number) => H): H {
    const thread = this.#renewalThread();
    const slots = this.#allocator();
    const slot = slots.allocate();
    const own = slots.pages.cell(slot);
    own.reset(deadline);
    const hold = create({ own, session: session.cell }, slot);
    this.#holds.set(slot, hold);
    thread.send({ type: "hold", slot, spec });
    return hold;
  }

  /** The hold has ended: the renewal thread forgets it. */
  drop(slot: number): void {
    this.#holds.delete(slot);
    if (this.#isClosed) return;
    this.#thread?.send({ type: "drop", slot });
  }

  /** Makes the renewal thread ask the server about a hold now. */
  ask(slot: number): void {
    this.#thread?.send({ type: "ask", slot });
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
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#deadlineTimer);
    for (const hold of this.#holds.values()) hold.lose({ state: "released", reason: "released" });
    this.#holds.clear();
    const session = this.#session ?? (await this.#opening?.catch(() => undefined));
    this.#session = undefined;
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
    if (this.#session !== session) return;
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
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
