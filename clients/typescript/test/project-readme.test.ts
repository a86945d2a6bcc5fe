// The snippet of the repository's README. `crates/cli/tests/readme.rs` compares it with this file.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, postgresFence } from "leasehold";
import pg from "pg";

import { LeaseholdServer, PostgresServer } from "./support/processes.js";

test("the snippet of the README writes under its lease", async () => {
  const server = await LeaseholdServer.start();
  await using postgres = await PostgresServer.start();
  postgres.psql("-f", "../../crates/fence/src/postgres/install.sql");
  postgres.psql("-c", "CREATE TABLE paid (id int, cents int)");
  postgres.psql("-c", `SELECT leasehold.arm('jobs/settle', '${server.cluster}')`);
  postgres.psql("-c", "SELECT leasehold.protect('paid', 'jobs/settle')");
  const pool = new pg.Pool(postgres.config);
  pool.on("error", () => undefined);

  const client = new Client({ servers: server.address });
  await client.using("jobs/settle", { wait: "60s" }, async (lease) => {
    const fence = postgresFence(lease);
    await fence.claim(pool); // before anything is read
    await fence.transaction(pool, (tx) => tx.query("INSERT INTO paid VALUES (7, 1200)")); // check and write are one step
  });

  assert.equal(postgres.psql("-c", "SELECT id, cents FROM paid"), "7|1200");
  await client.close();
  await pool.end();
  await server.stop();
});
