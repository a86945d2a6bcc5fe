// The program's side of the renewal thread.

import { Worker } from "node:worker_threads";

import { WORKER_SOURCE } from "../generated/worker-source.js";
import type { Instruction, Notice, RenewalInit } from "./messages.js";
import { RenewalLoop } from "./renewal-loop.js";

/** Sends instructions to the renewal loop in its thread. */
export interface RenewalThread {
  /** Resolves when the thread runs, or has failed to start. */
  readonly ready: Promise<void>;
  send(instruction: Instruction): void;
  close(): Promise<void>;
}

/** Starts the thread. It does not keep the process alive. `onFailure` is called if the thread ends by itself. */
export function startRenewalThread(init: RenewalInit, onNotice: (notice: Notice) => void, onFailure: (error: unknown) => void): RenewalThread {
  if (__LEASEHOLD_MUTANT__ === "renewal_on_main_loop") {
    const loop = new RenewalLoop(init, (notice) => setImmediate(onNotice, notice));
    return { ready: Promise.resolve(), send: (instruction) => loop.handle(instruction), close: async () => loop.handle({ type: "close" }) };
  }
  const worker = new Worker(WORKER_SOURCE, {
    eval: true,
    workerData: init,
    name: "leasehold-renewal",
    // Nothing of the program's environment is needed, and flags such as --inspect are not repeated.
    env: {},
    execArgv: [],
    stdin: false,
  });
  let isClosed = false;
  worker.on("message", onNotice);
  worker.on("error", onFailure);
  worker.on("exit", () => {
    if (!isClosed) onFailure(new Error("the renewal thread ended"));
  });
  const ready = new Promise<void>((resolve) => {
    worker.once("online", resolve);
    worker.once("error", () => resolve());
    worker.once("exit", () => resolve());
  });
  // The caller that waits for the thread keeps the process alive until then.
  void ready.then(() => worker.unref());
  return {
    ready,
    send: (instruction) => worker.postMessage(instruction),
    close: async () => {
      isClosed = true;
      await worker.terminate();
    },
  };
}
