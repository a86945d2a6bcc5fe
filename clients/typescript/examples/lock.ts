// Run work exclusively. Start it twice: the second one waits.
//
//   node lock.ts

import { Client } from "leasehold";

await using client = new Client();
await client.using("jobs/settle", { wait: "60s" }, async (lease, signal) => {
  console.log(`working with token ${lease.tokenNumber}`);
  for (let step = 1; step <= 5 && !signal.aborted; step++) {
    // Present lease.token with every write, so that the target can refuse a late one.
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
});
console.log("done");
