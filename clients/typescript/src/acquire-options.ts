// Options of an acquire, and the request that they make.

import { durationText, milliseconds, type Duration } from "./duration.js";
import { InvalidArgumentError } from "./errors.js";

/** Options of an acquire. */
export interface AcquireOptions {
  /** Longest wait if the resource is held. Default: fail at once with {@link BusyError}. */
  wait?: Duration;
  /** Own ttl of the lease, which is then renewed by itself. Default: the lease lives as long as the client's session. */
  ttl?: Duration;
  /** A shared (read) lease. Its token writes nothing. */
  shared?: boolean;
  /** One of this many numbered slots: a semaphore. */
  slots?: number;
  /** This many units of the resource's capacity, without a slot. */
  units?: number;
  /** Waiters with a higher priority are served first: 0 to 255, 100 by default. */
  priority?: number;
  /** Longest time between two calls of {@link Lease.progress}; the lease ends as stalled otherwise. */
  progress?: Duration;
  /** Longest time the lease may be held, including renewals. */
  maxHold?: Duration;
  /** Text for people and service discovery. */
  metadata?: string;
  /** Name of an actor within this client; the client's holder if absent. */
  holder?: string;
  /** Whether to enter a lease again that the same actor already holds. */
  reentrant?: boolean;
  /** Time to wait for the reply, besides the wait. Default: the client's `requestTimeout`. */
  timeout?: Duration;
  /** Cancels the acquire: the wait is withdrawn, and a grant that was made meanwhile is released. */
  signal?: AbortSignal;
}

/** One resource of an acquire of several. */
export interface ResourceRequest {
  resource: string;
  /** A shared (read) lease. */
  shared?: boolean;
  /** One of the resource's numbered slots. */
  slot?: boolean;
  /** This many units, without a slot. */
  units?: number;
}

/** Times and limits of an acquire. */
export interface AcquireTerms {
  readonly waitMs: number;
  readonly ttlMs: number | undefined;
  readonly timeoutMs: number | undefined;
  readonly isLimited: boolean;
}

/** Longest wait that the server accepts is unknown here; it refuses a longer one with the field `wait`. */
export function acquireTerms(options: AcquireOptions): AcquireTerms {
  const time = (name: "wait" | "ttl" | "timeout"): number | undefined => {
    const value = options[name];
    return value === undefined ? undefined : milliseconds(value, name);
  };
  return {
    waitMs: time("wait") ?? 0,
    ttlMs: time("ttl"),
    timeoutMs: time("timeout"),
    isLimited: options.maxHold !== undefined || options.progress !== undefined,
  };
}

/** The fields of the request that do not depend on the resource. */
export function acquireFields(session: string, options: AcquireOptions, terms: AcquireTerms): Record<string, unknown> {
  const text = (value: Duration | undefined, field: string): string | undefined =>
    value === undefined ? undefined : durationText(milliseconds(value, field));
  return {
    session,
    holder: options.holder,
    wait: terms.waitMs > 0 ? durationText(terms.waitMs) : undefined,
    ttl: terms.ttlMs === undefined ? undefined : durationText(terms.ttlMs),
    priority: options.priority,
    progress: text(options.progress, "progress"),
    max_hold: text(options.maxHold, "maxHold"),
    metadata: options.metadata,
    reentrant: options.reentrant,
  };
}

/** Fails for a name that no server accepts, before anything is sent. */
export function requireName(name: unknown, field: string): asserts name is string {
  if (typeof name !== "string" || name === "") {
    throw new InvalidArgumentError(field, `${field} is ${JSON.stringify(name)}; pass a name such as "jobs/settle"`);
  }
}
