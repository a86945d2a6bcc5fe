// Message queues: every message is with one worker at a time, until it is acknowledged or out of attempts.
//
// A delivery is a lease on its message, and the receipt is its token. The renewal thread extends it while the worker has it.

import { durationText, milliseconds, type Duration } from "../duration.js";
import { isPassing, isSessionEnd } from "../errors.js";
import { Hold, type HoldCells } from "../local-validity.js";
import { encodeName, queuePath } from "../paths.js";
import { linkSignals } from "../linked-signal.js";
import { localDeadline } from "../renewal/held-lease.js";
import type { Requests } from "../requests.js";
import { pause } from "../server-pool.js";
import type { OpenSession, SessionHost } from "../session-host.js";

/** Options of a queue. */
export interface QueueOptions {
  /** How long a received message is invisible to others if its worker is gone. Default: 30 s. */
  visibility?: Duration;
}

/** Options of a message. */
export interface SendOptions {
  /** Time before the message can be received. */
  delay?: Duration;
  /** How often the message is delivered before it is dead. Default: 5. */
  maxAttempts?: number;
}

/** Options of a receive. */
export interface ReceiveOptions {
  /** At most this many messages. Default: 1. */
  limit?: number;
  /** How long to wait for a message. Default: return at once. */
  wait?: Duration;
  visibility?: Duration;
  signal?: AbortSignal;
}

/** Counters and dead letters of a queue. */
export interface QueueStatus {
  readonly ready: number;
  readonly delayed: number;
  readonly in_flight: number;
  readonly dead: number;
  readonly dead_letters?: readonly DeadLetter[];
}

/** A message that is out of attempts. */
export interface DeadLetter {
  readonly item: string;
  readonly attempts?: number;
  readonly body?: string;
  readonly body_base64?: string;
  readonly reason?: string;
}

interface DeliveryBody {
  readonly item: string;
  readonly receipt: string;
  readonly attempt: number;
  readonly body_base64: string;
  readonly body?: string | null;
  readonly remaining_ms: number;
  readonly token: string;
  readonly secret?: string | null;
}

/** Pause of `messages` after an outage of all servers. */
const RETRY_PAUSE_MS = 500;
/** How long `messages` waits in one request. */
const MESSAGES_WAIT_MS = 20_000;

/** A received message. It is extended until it is acknowledged, returned or lost. */
export class Message extends Hold {
  /** Id of the message in its queue. */
  readonly item: string;
  readonly receipt: string;
  /** How often the message was delivered, from 1. */
  readonly attempt: number;
  readonly body: Uint8Array;
  /** Token of the delivery: present it to a fence of the resource `QUEUE/ITEM`. */
  readonly token: string;
  readonly #queue: string;
  readonly #host: SessionHost;
  readonly #requests: Requests;
  readonly #session: OpenSession;
  readonly #cellSlot: number;
  readonly #secret: string | undefined;

  /** @internal */
  constructor(host: SessionHost, requests: Requests, session: OpenSession, queue: string, delivery: DeliveryBody, cells: HoldCells, cellSlot: number) {
    super(host.clock, cells);
    this.#host = host;
    this.#requests = requests;
    this.#session = session;
    this.#queue = queue;
    this.#cellSlot = cellSlot;
    this.item = delivery.item;
    this.receipt = delivery.receipt;
    this.attempt = delivery.attempt;
    this.body = Buffer.from(delivery.body_base64, "base64");
    this.token = delivery.token;
    this.#secret = delivery.secret ?? undefined;
  }

  /** The body as text. */
  text(): string {
    return Buffer.from(this.body).toString("utf8");
  }

  /** The work is done: the message is removed. */
  async ack(): Promise<void> {
    await this.#finish("ack", {});
  }

  /** Returns the message to the queue; it can be received again after the delay. */
  async nack(options: { delay?: Duration } = {}): Promise<void> {
    await this.#finish("nack", { delay: durationText(milliseconds(options.delay ?? 0, "delay")) });
  }

  /** Changes how long the message stays invisible, counted from now, and by how much the client extends it from now on. */
  async extend(visibility: Duration): Promise<void> {
    const visibilityMs = milliseconds(visibility, "visibility");
    await this.#change("extend", { visibility: durationText(visibilityMs) });
    this.#host.changeSpan(this.#cellSlot, visibilityMs);
  }

  /** Processes the message: acknowledges it when the work returns, and returns it to the queue if the work fails. */
  async process<T>(work: (message: this, signal: AbortSignal) => Promise<T> | T): Promise<T> {
    let result: T;
    try {
      result = await this.run((signal) => work(this, signal));
    } catch (error) {
      // The error of the work is not masked by a failed return; the message is visible again after its visibility.
      const returned = this.nack().catch(() => undefined);
      if (this.isHeld) await returned;
      throw error;
    }
    await this.ack();
    return result;
  }

  /** Returns the message if it was not acknowledged. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.hasLoss) await this.nack().catch(() => undefined);
  }

  async #finish(verb: string, fields: object): Promise<void> {
    await this.#change(verb, fields);
    this.lose({ state: "released", reason: "released" });
    this.#host.drop(this.#cellSlot);
  }

  async #change(verb: string, fields: object): Promise<void> {
    const body = { item: this.item, receipt: this.receipt, ...fields };
    const secret: Record<string, string> = this.#secret === undefined ? {} : { "lease-secret": this.#secret };
    const headers = { ...this.#session.nextKey().headers, ...secret };
    try {
      await this.#requests.send(this.#requests.change(queuePath(this.#queue, verb), body, headers));
    } catch (error) {
      if (isSessionEnd(error)) this.#host.endSession(this.#session);
      throw error;
    }
  }
}

/** A message queue. */
export class MessageQueue {
  readonly name: string;
  readonly #host: SessionHost;
  readonly #requests: Requests;
  readonly #holder: string;
  readonly #visibilityMs: number;

  /** @internal */
  constructor(host: SessionHost, requests: Requests, name: string, holder: string, options: QueueOptions) {
    this.#host = host;
    this.#requests = requests;
    this.name = name;
    this.#holder = holder;
    this.#visibilityMs = milliseconds(options.visibility ?? 30_000, "visibility");
  }

  /** Sends a message. It is durable when this returns. Returns its id. A lost reply is resolved: the message is sent once. */
  async send(body: string | Uint8Array, options: SendOptions = {}): Promise<string> {
    const bytes = typeof body === "string" ? { body } : { body_base64: Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("base64") };
    const delay = options.delay === undefined ? undefined : durationText(milliseconds(options.delay, "delay"));
    const fields = { ...bytes, delay, max_attempts: options.maxAttempts };
    return (await this.#host.change<{ item: string }>(queuePath(this.name, "send"), fields)).item;
  }

  /** Receives messages, oldest first. Empty if none is ready within the wait. */
  async receive(options: ReceiveOptions = {}): Promise<Message[]> {
    const waitMs = milliseconds(options.wait ?? 0, "wait");
    const visibilityMs = options.visibility === undefined ? this.#visibilityMs : milliseconds(options.visibility, "visibility");
    const { signal } = options;
    const session = await this.#host.session(signal);
    const body = {
      holder: this.#holder,
      session: session.id,
      visibility: durationText(visibilityMs),
      limit: options.limit ?? 1,
      wait: waitMs > 0 ? durationText(waitMs) : undefined,
    };
    let sent = this.#host.clock.now();
    const onAttempt = (): void => void (sent = this.#host.clock.now());
    // A receive has no key: a message whose reply is lost can be received again after its visibility.
    const exchange = this.#requests.change(queuePath(this.name, "receive"), body, session.headers);
    const linked = linkSignals(signal, this.#host.closing);
    try {
      const { deliveries } = await this.#requests.send<{ deliveries: DeliveryBody[] }>(exchange, { waitMs, onAttempt, signal: linked.signal });
      const accepted = await Promise.allSettled(deliveries.map((delivery) => this.#accept(session, delivery, sent, visibilityMs)));
      // A message that could not be kept is delivered again after its visibility.
      const messages = accepted.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
      const failed = accepted.find((result) => result.status === "rejected");
      if (messages.length === 0 && failed) throw failed.reason;
      return messages;
    } catch (error) {
      if (!isSessionEnd(error)) throw error;
      // Nothing was delivered. The next session receives.
      this.#host.endSession(session);
      return waitMs > 0 ? [] : await this.receive(options);
    } finally {
      linked.unlink();
    }
  }

  /**
   * The messages as they arrive, until the signal is aborted. Acknowledge or return each of them. While no server can be reached, it goes on
   * trying.
   */
  async *messages(options: { signal?: AbortSignal; visibility?: Duration } = {}): AsyncGenerator<Message, void, undefined> {
    const { signal } = options;
    while (!signal?.aborted) {
      try {
        yield* await this.receive({ ...options, wait: MESSAGES_WAIT_MS });
      } catch (error) {
        if (signal?.aborted) return;
        if (!isPassing(error) || this.#host.closing.aborted) throw error;
        await pause(RETRY_PAUSE_MS, signal).catch(() => undefined);
      }
    }
  }

  /** Counters and dead letters. */
  async status(): Promise<QueueStatus> {
    return await this.#requests.get(`/v1/queues/${encodeName(this.name)}`);
  }

  /** Makes a dead message available again. */
  async redrive(item: string): Promise<void> {
    await this.#operate("redrive", item);
  }

  /** Removes a dead message. */
  async discard(item: string): Promise<void> {
    await this.#operate("drop", item);
  }

  async #operate(verb: string, item: string): Promise<void> {
    await this.#host.change(queuePath(this.name, verb), { item });
  }

  async #accept(session: OpenSession, delivery: DeliveryBody, firstSent: number, visibilityMs: number): Promise<Message> {
    let [sent, remainingMs] = [firstSent, delivery.remaining_ms];
    if (this.#host.clock.now() - sent > visibilityMs / 3) {
      // After a wait the deadline is close or past, because it counts from before the wait.
      const onAttempt = (): void => void (sent = this.#host.clock.now());
      const fields = { item: delivery.item, receipt: delivery.receipt, visibility: durationText(visibilityMs) };
      const secret: Record<string, string> = delivery.secret ? { "lease-secret": delivery.secret } : {};
      const extend = this.#requests.change(queuePath(this.name, "extend"), fields, { ...session.nextKey().headers, ...secret });
      remainingMs = (await this.#requests.send<{ remaining_ms: number }>(extend, { onAttempt })).remaining_ms;
    }
    const { item, receipt } = delivery;
    const spec = { kind: "delivery", queue: this.name, item, receipt, secret: delivery.secret ?? undefined, spanMs: visibilityMs, sent } as const;
    const deadline = localDeadline(sent, this.#host.clock.now(), Math.min(remainingMs, visibilityMs));
    return this.#host.keep(session, spec, deadline, (cells, slot) => new Message(this.#host, this.#requests, session, this.name, delivery, cells, slot));
  }
}
