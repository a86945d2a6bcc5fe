// The renewal thread: a worker that runs the renewal loop. scripts/build.mjs bundles it into a text, so that the package works in any
// bundler without a second file.

import { parentPort, workerData } from "node:worker_threads";

import type { Instruction, RenewalInit } from "./messages.js";
import { RenewalLoop } from "./renewal-loop.js";

const init = workerData as RenewalInit;
(globalThis as { leaseholdMutant?: string }).leaseholdMutant = init.mutant;
const loop = new RenewalLoop(init, (notice) => parentPort?.postMessage(notice));
parentPort?.on("message", (instruction: Instruction) => loop.handle(instruction));
