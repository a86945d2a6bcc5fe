// Holds a lease, waits for another one, and then ends as its argument says.
//
//   node abandoned-acquire.program.mjs exit|return SERVER

import { Client } from "leasehold";

const [end = "", server = ""] = process.argv.slice(2);
const client = new Client({ servers: server, sessionTtl: "2s" });
await client.acquire("exit/held");
if (end === "exit") {
  void client.acquire("exit/held", { wait: "10m" }).catch(() => undefined);
  while ((await client.show("exit/held")).waiters !== 1);
  console.log("waiting");
  process.exit(0);
}
console.log("returning");
