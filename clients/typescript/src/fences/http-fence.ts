// A fence for an HTTP service in this process: it refuses requests with a stale token, and stops those that are in flight.
//
// To check the token and then run the handler would be check-then-act: a request of a paused holder could still run when its successor
// writes. So a request is in flight until its response is complete, and the mark is raised only when none is.

import { milliseconds, type Duration } from "../duration.js";
import { errorFromProblem, type LeaseholdError } from "../errors.js";
import { timerMs } from "../timer-limit.js";
import { armMark, MarkFile } from "./mark-file.js";
import { isImplausible, parseToken, resourceHash, type TokenParts } from "./token-text.js";

/** Options of an HTTP fence. */
export interface HttpFenceOptions {
  /** File of the mark. One process at a time uses it. */
  marks: string;
  /** Resource whose tokens are admitted. */
  resource: string;
  /** Id of the cluster, as `leasehold status` shows it. */
  cluster: string;
  /** Slot of the resource. Default: 0, an exclusive lease. */
  slot?: number;
  /** How long a higher token waits for requests in flight. Default: 5 s. */
  claimTimeout?: Duration;
  /** How long no higher token is admitted after a request whose outcome is unknown. Default: 30 s. */
  settleTime?: Duration;
  /** Whether requests that only read need a token too. */
  fenceReads?: boolean;
}

/** A request that was admitted. */
export interface InFlightRequest {
  /** The response is complete, or its outcome is unknown because the caller disconnected. */
  end(outcome: "known" | "unknown"): void;
}

export class HttpFence {
  readonly fenceReads: boolean;
  readonly #file: MarkFile;
  readonly #hash: string;
  readonly #claimTimeoutMs: number;
  readonly #settleMs: number;
  #mark: bigint;
  #inFlight = 0;
  #raising = 0;
  #unknownUntil = 0;
  readonly #waiters = new Set<() => void>();

  /** Creates the mark file of a new resource, once. An existing one is kept. */
  static arm(options: Pick<HttpFenceOptions, "marks" | "resource" | "cluster" | "slot">): boolean {
    return armMark(options.marks, options);
  }

  /** Opens the fence of an armed mark file. */
  constructor(options: HttpFenceOptions) {
    this.#claimTimeoutMs = milliseconds(options.claimTimeout ?? 5_000, "claimTimeout");
    this.#settleMs = milliseconds(options.settleTime ?? 30_000, "settleTime");
    this.fenceReads = options.fenceReads ?? false;
    this.#file = new MarkFile(options.marks);
    const { mark } = this.#file;
    if (mark.cluster !== options.cluster || mark.resource !== options.resource || mark.slot !== (options.slot ?? 0)) {
      this.#file.close();
      const detail = `${options.marks} is the mark of ${mark.resource} in cluster ${mark.cluster}`;
      throw errorFromProblem({ code: "CONFLICT", status: 409, subject: options.marks, detail, next_step: "Use another file for this resource." });
    }
    this.#hash = resourceHash(options.resource);
    this.#mark = BigInt(mark.number);
    // A process that ended without `close` may have left requests whose effects are still to come.
    if (mark.begun) this.#unknownUntil = performance.now() + this.#settleMs;
  }

  /** Highest token number that was admitted, as decimal text. */
  get mark(): string {
    return this.#mark.toString();
  }

  /** Raises the mark to a token, without a request. A new holder does this before it reads anything. */
  async claim(token: string | undefined): Promise<void> {
    await this.#raise(this.#check(token));
  }

  /** Admits a request. Rejects with the refusal. The caller ends the request when its response is complete. */
  async admit(token: string | undefined): Promise<InFlightRequest> {
    const parts = this.#check(token);
    // Lower tokens wait behind one that is about to raise the mark, and are then stale.
    while (this.#raising > 0 && parts.number <= this.#mark) await this.#nextChange(this.#claimTimeoutMs);
    await this.#raise(parts);
    // The mark may have risen again before this function continued; from here to the count nothing else runs.
    this.#requireFresh(parts);
    this.#file.requireOwner();
    if (!this.#file.mark.begun) this.#file.store({ begun: true });
    this.#inFlight += 1;
    let isOpen = true;
    return {
      end: (outcome) => {
        if (!isOpen) return;
        isOpen = false;
        this.#inFlight -= 1;
        if (outcome === "unknown") this.#unknownUntil = performance.now() + this.#settleMs;
        this.#wake();
      },
    };
  }

  /** Closes the mark file. Without it, the next start waits for the settle time. */
  close(): void {
    if (this.#inFlight === 0 && this.#unknownUntil <= performance.now() && this.#file.mark.begun) this.#file.store({ begun: false });
    this.#file.close();
  }

  #check(text: string | undefined): TokenParts {
    const parts = parseToken(text);
    const { mark } = this.#file;
    const refuse = (code: string, status: number, fields: object, detail: string, next: string): LeaseholdError =>
      errorFromProblem({ code, status, detail, next_step: next, ...fields });
    if (parts.cluster !== mark.cluster) throw refuse("WRONG_CLUSTER", 421, {}, "the token belongs to another cluster", "Send the request to the cluster that issued the token.");
    const reason = parts.resourceHash !== this.#hash ? "resource" : parts.scope !== "w" ? "shared" : parts.slot !== mark.slot ? "slot" : undefined;
    if (reason) throw refuse("TOKEN_INVALID", 400, { reason }, `the token is for another ${reason === "shared" ? "kind of lease" : reason}`, "Pass the token of the lease that guards this service.");
    if (isImplausible(parts.number, Date.now())) {
      throw refuse("TOKEN_IMPLAUSIBLE", 400, { presented: String(parts.number) }, "the token number is more than one day ahead", "Compare the clocks, and find the origin of the token.");
    }
    this.#requireFresh(parts);
    return parts;
  }

  #requireFresh(parts: TokenParts): void {
    if (parts.number >= this.#mark) return;
    const fields = { presented: String(parts.number), mark: String(this.#mark) };
    throw errorFromProblem({ code: "STALE_TOKEN", status: 412, ...fields, detail: `a newer token has been used: presented=${fields.presented} mark=${fields.mark}`, next_step: "Stop writing. The lease of this token has ended." });
  }

  /** Raises the mark if the token is higher. Waits until no request with a lower token can take effect any more. */
  async #raise(parts: TokenParts): Promise<void> {
    const end = performance.now() + this.#claimTimeoutMs;
    this.#raising += 1;
    try {
      for (;;) {
        this.#requireFresh(parts);
        if (parts.number === this.#mark) return;
        const now = performance.now();
        if (this.#inFlight === 0 && now >= this.#unknownUntil) break;
        if (now >= end) {
          const retry = Math.max(0, Math.ceil(this.#unknownUntil - now));
          throw errorFromProblem({ code: "UNAVAILABLE", status: 503, retry_after_ms: retry, detail: "requests with a lower token are in flight, or their outcome is unknown", next_step: "Retry the same request later." });
        }
        const wait = this.#inFlight > 0 ? end - now : Math.min(end, this.#unknownUntil) - now;
        await this.#nextChange(wait);
      }
      this.#file.store({ number: String(parts.number) });
      this.#mark = parts.number;
    } finally {
      this.#raising -= 1;
      this.#wake();
    }
  }

  #nextChange(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#waiters.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timerMs(Math.max(1, Math.ceil(timeoutMs))));
      this.#waiters.add(done);
    });
  }

  #wake(): void {
    for (const waiter of [...this.#waiters]) waiter();
  }
}
