// Work under leases: it is stopped when a lease cannot be kept, and the leases are released when it returns.

import type { Lease } from "./lease.js";

/** Runs work under leases. An error of the work is never masked by a release, and a stop never waits for one. */
export async function runUnder<T>(leases: readonly Lease[], caller: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T> | T): Promise<T> {
  const kept = AbortSignal.any(leases.map((lease) => lease.signal));
  const signal = caller ? AbortSignal.any([kept, caller]) : kept;
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
