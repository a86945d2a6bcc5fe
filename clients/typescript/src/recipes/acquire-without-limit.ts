// An acquire that waits for as long as it takes, for recipes of long-lived processes.

import type { AcquireOptions } from "../acquire-options.js";
import type { Client } from "../client.js";
import { isPassing, OutcomeUnknownError, WaitTimeoutError } from "../errors.js";
import type { Lease } from "../lease.js";
import { pause, withJitter } from "../server-pool.js";

/** One wait; it is repeated without a limit. */
const WAIT = "60s";
/** Pauses while no server can be reached. */
const MIN_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5_000;

/** Acquires, and waits also for servers that cannot be reached. A decision of a server, such as PERMISSION_DENIED, rejects. */
export async function acquireWithoutLimit(client: Client, resource: string, options: AcquireOptions): Promise<Lease> {
  let pauseMs = MIN_PAUSE_MS;
  let unknown: OutcomeUnknownError<Lease> | undefined;
  for (;;) {
    try {
      return unknown ? await unknown.resolve(undefined, options.signal) : await client.acquire(resource, { ...options, wait: WAIT });
    } catch (error) {
      options.signal?.throwIfAborted();
      if (error instanceof WaitTimeoutError) {
        unknown = undefined;
        continue;
      }
      if (!isPassing(error) || client.isClosed) throw error;
      unknown = error instanceof OutcomeUnknownError ? (error as OutcomeUnknownError<Lease>) : undefined;
      await pause(withJitter(pauseMs), options.signal);
      pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS);
    }
  }
}
