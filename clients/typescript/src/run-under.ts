// Work under leases: it is stopped when a lease cannot be kept, and the leases are released when it returns.

import type { Lease } from "./lease.js";
import { linkSignals } from "./linked-signal.js";

/** Runs work under leases. An error of the work is never masked by a release, and a stop never waits for one. */
export async function runUnder<T>(leases: readonly Lease[], caller: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T> | T): Promise<T> {
  const { signal: kept } = linkSignals(...leases.map((lease) => lease.signal));
  const { signal, unlink } = linkSignals(kept, caller);
  const release = async (): Promise<void> => {
    await Promise.allSettled(leases.map((lease) => lease.release()));
  };
  let result: T;
  try {
    result = await work(signal);
  } catch (error) {
    if (signal.aborted) void release();
    else await release();
    throw error;
  } finally {
    unlink();
  }
  for (const lease of leases) lease.refresh();
  if (kept.aborted) {
    void release();
    throw kept.reason;
  }
  if (caller?.aborted) void release();
  else await release();
  return result;
}
