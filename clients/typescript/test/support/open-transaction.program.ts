// Opens a fenced transaction, writes, waits for a line of standard input, writes again and commits. Prints how that ended.
//
//   node open-transaction.program.mjs limited|unlimited

import { once } from "node:events";

import { Client, postgresFence, type TokenSource } from "leasehold";
import pg from "pg";

const pool = new pg.Pool();
const client = new Client({ sessionTtl: "2s" });
const lease = await client.acquire("jobs/settle");
// A source that claims to have time sets a limit that never matters.
const source: TokenSource = process.argv[2] === "limited" ? lease : { token: lease.token, resource: lease.resource, remaining: () => 600_000 };
const fence = postgresFence(source);
await fence.claim(pool);
try {
  await fence.transaction(pool, async (tx) => {
    await tx.query("INSERT INTO paid VALUES ('early', 1)");
    console.log("in the transaction");
    await once(process.stdin, "data");
    await tx.query("INSERT INTO paid VALUES ('late', 1)");
  });
  console.log("committed");
} catch (error) {
  console.log(`failed: ${(error as { code?: string }).code}`);
}
// The pool works on, without the connection that has ended.
console.log(`rows: ${(await pool.query<{ count: string }>("SELECT count(*) FROM paid WHERE id IN ('early', 'late')")).rows[0]?.count}`);
await pool.end();
process.exit(0);
