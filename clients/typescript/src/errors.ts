// Errors of the client: one closed hierarchy with the stable codes of the server (docs/reference/errors.md).

import type { CycleMemberBody, ProblemBody } from "./generated/openapi.js";

/** Stable codes. A newer server may send others; treat those by their `status`. */
export type Code =
  | "INVALID_ARGUMENT"
  | "UNAUTHENTICATED"
  | "PERMISSION_DENIED"
  | "NOT_FOUND"
  | "METHOD_NOT_ALLOWED"
  | "CONFLICT"
  | "LEASE_LOST"
  | "NOT_CURRENT"
  | "STALE_TOKEN"
  | "TOKEN_INVALID"
  | "TOKEN_IMPLAUSIBLE"
  | "TOKEN_EXHAUSTED"
  | "WRONG_CLUSTER"
  | "BUSY"
  | "DEADLOCK"
  | "ACCESS_CHANGE"
  | "RESOURCE_EXHAUSTED"
  | "TIMEOUT"
  | "CANCELLED"
  | "INDETERMINATE"
  | "NOT_LEADER"
  | "UNAVAILABLE"
  | "UNSUPPORTED_VERSION"
  | "FRAME_ERROR"
  | "STORAGE_FULL"
  | "STORAGE_FAILED"
  | "CORRUPT"
  | "CONFIG"
  | "REQUEST_TOO_OLD"
  | "ROLLED_BACK"
  | "QUARANTINED"
  | "HELD_FOR_OPERATOR"
  | "APPROVAL_REQUIRED"
  | "NOT_ADOPTED";

/** Codes after which nothing happened and the same request may be repeated. */
const RETRYABLE: ReadonlySet<string> = new Set([
  "NOT_LEADER",
  "UNAVAILABLE",
  "QUARANTINED",
  "ROLLED_BACK",
  "STORAGE_FULL",
]);

/** Fields of a refusal. Which of them are present depends on the code. */
export type ProblemFields = Partial<ProblemBody>;

/** Any refusal or failure of Leasehold. */
export class LeaseholdError extends Error {
  /** Stable code; a {@link Code}, or one of a newer server. */
  readonly code: string;
  /** What to do next. */
  readonly nextStep: string;
  /** Whether nothing happened, so that the same request may be repeated. */
  readonly isRetryable: boolean;
  /** HTTP status of the reply, if there was one. */
  readonly status: number | undefined;
  /** All fields of the reply's problem body. */
  readonly fields: ProblemFields;

  constructor(code: string, message: string, nextStep: string, fields: ProblemFields = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.nextStep = nextStep;
    this.fields = fields;
    this.status = fields.status;
    this.isRetryable = RETRYABLE.has(code) || (fields.status === 503 && !KNOWN.has(code));
  }

  override get name(): string {
    return this.constructor.name;
  }
}

/** `INVALID_ARGUMENT`, `CONFIG`: a value is invalid. */
export class InvalidArgumentError extends LeaseholdError {
  /** Name of the invalid field or option. */
  readonly field: string | undefined;

  constructor(field: string | undefined, message: string, fields: ProblemFields = {}, code: Code = "INVALID_ARGUMENT") {
    super(code, message, fields.next_step ?? "Change the field and retry.", fields);
    this.field = field;
  }
}

/** `BUSY`: another holder has the lease. */
export class BusyError extends LeaseholdError {
  /** Name of the holder, if the caller may see it. */
  get holder(): string | undefined {
    return this.fields.holder ?? undefined;
  }
  /** How long that holder has had the lease. */
  get heldMs(): number | undefined {
    return this.fields.held_ms ?? undefined;
  }
  /** Time until that holder's lease ends unless it is renewed. */
  get remainingMs(): number | undefined {
    return this.fields.remaining_ms ?? undefined;
  }
  /** Position in the queue that a wait would get, from 1. */
  get queuePosition(): number | undefined {
    return this.fields.queue_position ?? undefined;
  }
}

/** `TIMEOUT`: the lease was not granted within its wait time. */
export class WaitTimeoutError extends LeaseholdError {}

/** How a lease ended: `expired`, `released`, `revoked`, or `not_current` if the server no longer knows. */
export type LostState = "expired" | "released" | "revoked" | "not_current" | (string & {});

/** `LEASE_LOST`, `NOT_CURRENT`: the lease has ended. */
export class LeaseLostError extends LeaseholdError {
  /** `expired`, `released`, `revoked`, or `not_current`. After `revoked`, do not acquire again without the operator. */
  readonly state: LostState;
  /** Why the lease ended, for example `ttl` or `operator`. */
  readonly reason: string | undefined;

  constructor(state: LostState, reason: string | undefined, fields: ProblemFields = {}) {
    const code = state === "not_current" ? "NOT_CURRENT" : "LEASE_LOST";
    const nextStep =
      state === "revoked"
        ? "Stop writing. Consult the operator before you acquire again."
        : state === "not_current"
          ? "Stop writing. Use the newest token of the lease, or acquire again."
          : "Stop writing. Acquire again if you still need the lease.";
    const why = reason === undefined || reason === state ? "" : ` (${reason})`;
    super(code, fields.detail ?? `the lease is ${state.replace("_", " ")}${why}`, fields.next_step ?? nextStep, fields);
    this.state = state;
    this.reason = reason;
  }
}

/** The local deadline passed before the server renewed the lease. The work was stopped; another holder may be granted the lease. */
export class LeaseSuspendedError extends LeaseholdError {
  constructor() {
    super("UNAVAILABLE", "the lease was not renewed in time and the work was stopped", "Acquire again.");
  }
}

/** `STALE_TOKEN`: a fence refused the token because it has seen a newer one. */
export class StaleTokenError extends LeaseholdError {
  /** Number of the presented token. */
  get presented(): string | undefined {
    return this.fields.presented ?? undefined;
  }
  /** The mark: the highest number that the fence has seen. */
  get mark(): string | undefined {
    return this.fields.mark ?? undefined;
  }
}

/** `TOKEN_INVALID`, `TOKEN_IMPLAUSIBLE`, `WRONG_CLUSTER`: the token does not belong here. */
export class InvalidTokenError extends LeaseholdError {
  /** Why, for example `resource` or `checksum`. */
  get reason(): string | undefined {
    return this.fields.reason ?? undefined;
  }
}

/** `UNAUTHENTICATED`, `PERMISSION_DENIED`: the caller may not do this. */
export class AccessError extends LeaseholdError {}

/** `NOT_FOUND`: the subject does not exist, or the caller may not see it. */
export class NotFoundError extends LeaseholdError {}

/** `CONFLICT`, `ACCESS_CHANGE`, `REQUEST_TOO_OLD`: the request contradicts the current state. */
export class ConflictError extends LeaseholdError {}

/** `DEADLOCK`: the wait would complete a deadlock. */
export class DeadlockError extends LeaseholdError {
  /** The first members of the cycle. */
  get cycle(): readonly CycleMemberBody[] {
    return this.fields.cycle ?? [];
  }
}

/** `RESOURCE_EXHAUSTED`: a limit is exceeded. */
export class LimitError extends LeaseholdError {}

/** `CANCELLED`: the wait was canceled at the server. A wait that the caller aborts rejects with the reason of its signal instead. */
export class CanceledError extends LeaseholdError {}

/** `UNAVAILABLE`, `NOT_LEADER`, `QUARANTINED` and similar: no server decided, and nothing happened. */
export class UnavailableError extends LeaseholdError {}

/** `INDETERMINATE`: the reply was lost, so the outcome is unknown. {@link OutcomeUnknownError.resolve} continues the request. */
export class OutcomeUnknownError<T = unknown> extends LeaseholdError {
  readonly #resolve: ((timeoutMs?: number, signal?: AbortSignal) => Promise<T>) | undefined;

  constructor(message: string, fields: ProblemFields = {}, resolve?: (timeoutMs?: number, signal?: AbortSignal) => Promise<T>, cause?: unknown) {
    super("INDETERMINATE", message, "Call resolve() to learn the outcome.", fields, { cause });
    this.#resolve = resolve;
  }

  /** Id of the request, as `session:sequence`. */
  get requestId(): string | undefined {
    return this.fields.request_id ?? undefined;
  }

  /**
   * Sends the same request under the same id again and returns its outcome: what the first reply said, or the result of executing
   * it now. Rejects with another {@link OutcomeUnknownError} if there is still no reply. An aborted signal withdraws an acquire.
   */
  resolve(timeoutMs?: number, signal?: AbortSignal): Promise<T> {
    if (!this.#resolve) return Promise.reject(this);
    return this.#resolve(timeoutMs, signal);
  }
}

type ErrorClass = new (code: string, message: string, nextStep: string, fields?: ProblemFields, options?: ErrorOptions) => LeaseholdError;

const CLASSES: Partial<Record<string, ErrorClass>> = {
  BUSY: BusyError,
  HELD_FOR_OPERATOR: BusyError,
  TIMEOUT: WaitTimeoutError,
  STALE_TOKEN: StaleTokenError,
  NOT_ADOPTED: StaleTokenError,
  TOKEN_INVALID: InvalidTokenError,
  TOKEN_IMPLAUSIBLE: InvalidTokenError,
  WRONG_CLUSTER: InvalidTokenError,
  UNAUTHENTICATED: AccessError,
  PERMISSION_DENIED: AccessError,
  APPROVAL_REQUIRED: AccessError,
  NOT_FOUND: NotFoundError,
  CONFLICT: ConflictError,
  ACCESS_CHANGE: ConflictError,
  REQUEST_TOO_OLD: ConflictError,
  DEADLOCK: DeadlockError,
  RESOURCE_EXHAUSTED: LimitError,
  CANCELLED: CanceledError,
  UNAVAILABLE: UnavailableError,
  NOT_LEADER: UnavailableError,
  QUARANTINED: UnavailableError,
  ROLLED_BACK: UnavailableError,
  STORAGE_FULL: UnavailableError,
};

const KNOWN: ReadonlySet<string> = new Set([
  ...Object.keys(CLASSES),
  "INVALID_ARGUMENT",
  "CONFIG",
  "LEASE_LOST",
  "NOT_CURRENT",
  "INDETERMINATE",
]);

/** Code for a reply without one that this client knows, by its status. */
const BY_STATUS: Partial<Record<number, ErrorClass>> = {
  401: AccessError,
  403: AccessError,
  404: NotFoundError,
  409: ConflictError,
  423: BusyError,
  429: LimitError,
  502: UnavailableError,
  503: UnavailableError,
};

/** The error of a code, with the fields of the reply. An unknown code is treated by its status. */
export function errorFromProblem(problem: ProblemFields, cause?: unknown): LeaseholdError {
  const code = problem.code ?? codeOfStatus(problem.status);
  const message = problem.detail ?? problem.title ?? `the server replied with status ${problem.status ?? "unknown"}`;
  const nextStep = problem.next_step ?? "Check the server's log.";
  switch (code) {
    case "INVALID_ARGUMENT":
    case "CONFIG":
      return new InvalidArgumentError(problem.field ?? problem.key ?? undefined, message, problem, code);
    case "LEASE_LOST":
      return new LeaseLostError(problem.state ?? "expired", problem.reason ?? undefined, problem);
    case "NOT_CURRENT":
      return new LeaseLostError("not_current", problem.reason ?? undefined, problem);
    case "INDETERMINATE":
      return new OutcomeUnknownError(message, problem, undefined, cause);
    default: {
      const Class = CLASSES[code] ?? BY_STATUS[problem.status ?? 0] ?? LeaseholdError;
      return new Class(code, message, nextStep, problem, cause === undefined ? undefined : { cause });
    }
  }
}

/** Whether the server says that the session of a request has ended. Such a request did nothing, and its leases have ended. */
export function isSessionEnd(error: unknown): boolean {
  if (error instanceof LeaseLostError) return error.reason === "session";
  return error instanceof NotFoundError && error.fields.subject === "session";
}

/** Whether a recipe that goes on without a limit tries again: no server decided. */
export function isPassing(error: unknown): boolean {
  return error instanceof OutcomeUnknownError || (error instanceof LeaseholdError && error.isRetryable) || isSessionEnd(error);
}

/** The error of a successful reply that no Leasehold server sends. */
export function foreignReply(what: string): LeaseholdError {
  return new LeaseholdError("FRAME_ERROR", `the reply contains no ${what}`, "Check that the address is that of a Leasehold server.");
}

function codeOfStatus(status: number | undefined): Code {
  switch (status) {
    case 401:
      return "UNAUTHENTICATED";
    case 403:
      return "PERMISSION_DENIED";
    case 404:
      return "NOT_FOUND";
    case 429:
      return "RESOURCE_EXHAUSTED";
    case 408:
    case 502:
    case 504:
      // A gateway may have passed the request on.
      return "INDETERMINATE";
    case 503:
      return "UNAVAILABLE";
    default:
      return status !== undefined && status < 500 ? "INVALID_ARGUMENT" : "INDETERMINATE";
  }
}
