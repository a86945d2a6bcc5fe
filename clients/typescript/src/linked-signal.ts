// One AbortSignal for several.

import { setMaxListeners } from "node:events";

/** A signal that is aborted with the first of its sources. */
export interface LinkedSignal {
  readonly signal: AbortSignal;
  /** Removes the listeners. A source that lives as long as the process would keep them otherwise. */
  unlink(): void;
}

/** Prevents the warning of Node.js about many listeners: each acquire that waits has one, and removes it. */
export function allowListeners(signal: AbortSignal): void {
  setMaxListeners(0, signal);
}

/** Links signals. In contrast to `AbortSignal.any`, the sources keep nothing after `unlink`. */
export function linkSignals(...sources: (AbortSignal | undefined)[]): LinkedSignal {
  const controller = new AbortController();
  const removals: (() => void)[] = [];
  for (const source of sources) {
    if (!source) continue;
    const onAbort = (): void => controller.abort(source.reason);
    if (source.aborted) {
      onAbort();
      break;
    }
    allowListeners(source);
    source.addEventListener("abort", onAbort, { once: true });
    removals.push(() => source.removeEventListener("abort", onAbort));
  }
  return { signal: controller.signal, unlink: () => removals.forEach((remove) => remove()) };
}
