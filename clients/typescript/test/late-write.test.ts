// A worker that is paused past its ttl: its late write is refused by PostgreSQL. The worker is examples/fenced-postgres-write.ts.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Client, postgresFence } from "leasehold";
import pg from "pg";

import { LeaseholdServer, PostgresServer, start, stop, until } from "./support/processes.js";

test("the worker has at most 25 lines", () => {
  const lines = readFileSync("examples/fenced-postgres-write.ts", "utf8").split("\n");
  assert.ok(lines.filter((line) => line.trim() !== "" && !line.trim().startsWith("//")).length <= 25);
});

test("the late write of a paused worker is refused", async () => {
  await using server = await LeaseholdServer.start();
  await using postgres = await PostgresServer.start();
  postgres.psql("-f", "../../crates/fence/src/postgres/install.sql");
  postgres.psql("-c", "CREATE TABLE paid (id text, cents int)");
  postgres.psql("-c", `SELECT leasehold.arm('jobs/settle', '${server.cluster}')`);
  postgres.psql("-c", "SELECT leasehold.protect('paid', 'jobs/settle')");
  const { host, user, database } = postgres.config;
  const env = { ...process.env, LEASEHOLD_ADDR: server.address, PGHOST: host, PGUSER: user, PGDATABASE: database };
  const worker = start(process.execPath, ["build/examples/fenced-postgres-write.mjs"], { env });
  let output = "";
  for (const stream of [worker.stdout, worker.stderr]) stream?.on("data", (chunk) => (output += chunk));
  await until("the worker writes", () => output.includes("paid 3"));

  worker.kill("SIGSTOP");
  await using successor = new Client({ servers: server.address, holder: "successor" });
  const lease = await successor.acquire("jobs/settle", { wait: "30s" });
  const pool = new pg.Pool(postgres.config);
  // The worker may have been paused inside a transaction, which PostgreSQL ends when the lease does.
  await until("the successor claims", () => postgresFence(lease).claim(pool).then(() => true, (error: { code?: string }) => (error.code === "UNAVAILABLE" ? false : Promise.reject(error))));
  const before = postgres.psql("-c", "SELECT count(*) FROM paid");
  worker.kill("SIGCONT");
  await until("the worker ends", () => worker.exitCode !== null || worker.signalCode !== null);

  assert.equal(postgres.psql("-c", "SELECT count(*) FROM paid"), before, "nothing was written late");
  await postgresFence(lease).transaction(pool, (tx) => tx.query("INSERT INTO paid VALUES ('successor', 1)"));
  assert.match(output, /refused: STALE_TOKEN|terminating connection|Connection terminated/, output);
  await pool.end();
  await stop(worker);
});
