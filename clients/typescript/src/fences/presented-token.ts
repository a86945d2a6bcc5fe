// The token that a fence helper presents.


/** What a fence needs of a lease: {@link Lease} and {@link Message} have it, and so has any object with a token. */
export interface TokenSource {
  /** Text of the fencing token. */
  readonly token: string;
  /** Name of the resource, if the fence checks it. */
  readonly resource?: string;
  /** Milliseconds until the local deadline. */
  remaining?(): number;
}

/** The token text to present. */
export function presentedToken(source: TokenSource): string {
  return __LEASEHOLD_MUTANT__ === "no_token" ? "" : source.token;
}
