// The token that a fence helper presents.

/** A new holder claims an HTTP fence with a POST to this path, below the path where the fence is mounted. */
export const CLAIM_PATH = "/-/claim";

/** What a fence needs of a lease: {@link Lease} and {@link Message} have it, and so has any object with a token. */
export interface TokenSource {
  /** Text of the fencing token. */
  readonly token: string;
  /** Name of the resource, if the fence checks it. */
  readonly resource?: string;
  /** Milliseconds until the local deadline. */
  remaining?(): number;
}

/** A transaction may last at least this long: a holder that is late is refused by the fence, with a clear error. */
const MIN_TRANSACTION_MS = 1_000;

/** Milliseconds that a transaction may last; undefined for a source without a deadline. */
export function transactionLimit(source: TokenSource): number | undefined {
  const left = source.remaining?.();
  return left === undefined ? undefined : Math.max(MIN_TRANSACTION_MS, Math.floor(left));
}

/** The token text to present. */
export function presentedToken(source: TokenSource): string {
  return __LEASEHOLD_MUTANT__ === "no_token" ? "" : source.token;
}
