// Small state: a few bytes per key that only the current holder can write, for checkpoints.

import type { Requests } from "../requests.js";
import { encodeName } from "../paths.js";

/** A value that a holder wrote with {@link Lease.put}. */
export interface StoredValue {
  /** The bytes. */
  readonly bytes: Uint8Array;
  /** The bytes as text, if they are valid UTF-8. */
  readonly text: string | undefined;
  /** Revision of the key, for `expectedRevision`. */
  readonly revision: string;
  /** Number of the token under which it was written. */
  readonly tokenNumber: string;
}

interface StateEntry {
  readonly key: string;
  readonly value_base64: string;
  readonly value?: string | null;
  readonly revision: string;
  readonly token_number: string;
}

/** Reads one key. */
export async function readState(requests: Requests, resource: string, key: string): Promise<StoredValue | undefined> {
  const reply = await requests.get<{ entries: StateEntry[] }>(`/v1/state/${encodeName(resource)}?key=${encodeURIComponent(key)}`);
  const entry = reply.entries.find((candidate) => candidate.key === key);
  if (!entry) return undefined;
  return {
    bytes: Buffer.from(entry.value_base64, "base64"),
    text: entry.value ?? undefined,
    revision: entry.revision,
    tokenNumber: entry.token_number,
  };
}
