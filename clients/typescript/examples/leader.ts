// Elect a leader. Start it several times; stop the leader with Ctrl-C, and another one leads at once.
//
//   node leader.ts NAME

import { Client } from "leasehold";

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => stop.abort());

await using client = new Client({ holder: process.argv[2] ?? `candidate-${process.pid}` });
await client.election("jobs/leader", { metadata: client.holder }).lead(
  async (lease, signal) => {
    console.log(`${client.holder} leads with token ${lease.tokenNumber}`);
    const ended = AbortSignal.any([signal, lease.drainSignal]);
    while (!ended.aborted) await new Promise((resolve) => setTimeout(resolve, 100));
  },
  { stop: stop.signal },
);
console.log(`${client.holder} is done`);
