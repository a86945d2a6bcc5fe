// Write to PostgreSQL under a lease, so that a late write is refused: one payment per line of standard input. The table `paid` is
// protected: docs/how-to/fence/postgres.md. Connection parameters come from PGHOST, PGUSER and PGDATABASE.

import { createInterface } from "node:readline";
import { Client, postgresFence, StaleTokenError } from "leasehold";
import pg from "pg";

const pool = new pg.Pool();
const client = new Client({ sessionTtl: "2s" });
const lease = await client.acquire("jobs/settle", { wait: "60s" });
const fence = postgresFence(lease);
await fence.claim(pool);
console.log("claimed");
for await (const id of createInterface({ input: process.stdin })) {
  try {
    await fence.transaction(pool, (tx) => tx.query("INSERT INTO paid VALUES ($1, $2)", [id, 1200]));
  } catch (error) {
    if (!(error instanceof StaleTokenError)) throw error;
    console.log(`refused: ${error.code} ${(error.cause as { code?: string }).code}`);
    break;
  }
  console.log(`paid ${id}`);
}
await pool.end();
await client.close();
process.exit();
