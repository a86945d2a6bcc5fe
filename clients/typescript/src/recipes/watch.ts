// Follows the events of resources under a prefix, and reconnects. An event only means "query now".

import { readEvents } from "../event-stream.js";
import type { Requests } from "../requests.js";
import { pause, withJitter } from "../server-pool.js";

/** The query is repeated this often even without an event. */
const POLL_MS = 10_000;

/**
 * Yields the result of a query now and after every event under the prefix, if it differs from the previous one. Ends when the signal is
 * aborted. A failure of the query is retried, because the list describes the past anyway.
 */
export async function* follow<T>(requests: Requests, prefix: string, query: () => Promise<T>, signal?: AbortSignal): AsyncGenerator<T, void, undefined> {
  const stop = new AbortController();
  const onAbort = (): void => stop.abort(signal?.reason);
  if (signal?.aborted) return;
  signal?.addEventListener("abort", onAbort, { once: true });
  let wake: (() => void) | undefined;
  let isStale = true;
  const onEvent = (): void => {
    isStale = true;
    wake?.();
  };
  void watch(requests, prefix, stop.signal, onEvent);
  try {
    let last: string | undefined;
    while (!stop.signal.aborted) {
      isStale = false;
      try {
        const value = await query();
        const text = JSON.stringify(value);
        if (text !== last) {
          last = text;
          yield value;
        }
      } catch (error) {
        if ((error as { isRetryable?: boolean }).isRetryable !== true) throw error;
      }
      if (isStale) continue;
      const timer = new AbortController();
      await Promise.race([
        new Promise<void>((resolve) => (wake = resolve)),
        pause(POLL_MS, AbortSignal.any([stop.signal, timer.signal])).catch(() => undefined),
      ]);
      timer.abort();
    }
  } finally {
    signal?.removeEventListener("abort", onAbort);
    stop.abort();
  }
}

async function watch(requests: Requests, prefix: string, signal: AbortSignal, onEvent: () => void): Promise<void> {
  while (!signal.aborted) {
    const connection = requests.pool.current;
    try {
      const path = `/v1/events?prefix=${encodeURIComponent(prefix)}`;
      // Something may have changed before the stream was open.
      for await (const _ of readEvents(connection, path, {}, signal, onEvent)) onEvent();
    } catch {
      // Reconnects below; the poll covers the time in between.
    }
    await pause(withJitter(500), signal).catch(() => undefined);
  }
}
