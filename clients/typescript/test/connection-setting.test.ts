// A program that knows nothing of fences writes with node-postgres: the token of the connection is enough, and a late write is refused.
// See docs/how-to/fence/unmodified-programs.md.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";

import { Client, postgresFence, type Lease } from "leasehold";
import pg from "pg";

import { LeaseholdServer, PostgresServer } from "./support/processes.js";

const RESOURCE = "jobs/settle";
let server: LeaseholdServer;
let postgres: PostgresServer;
let client: Client;

before(async () => {
  server = await LeaseholdServer.start();
  postgres = await PostgresServer.start();
  client = new Client({ servers: server.address, holder: "setting-test" });
  postgres.psql("-f", "../../crates/fence/src/postgres/install.sql");
  postgres.psql("-c", "CREATE TABLE paid (id int, cents int)");
  postgres.psql("-c", `SELECT leasehold.arm('${RESOURCE}', '${server.cluster}')`);
  postgres.psql("-c", `SELECT leasehold.protect('paid', '${RESOURCE}')`);
});
after(async () => {
  await client.close();
  await postgres[Symbol.asyncDispose]();
  await server.stop();
});

/** Writes twice through a pool with one connection. */
async function writeTwice(options?: string): Promise<void> {
  const pool = new pg.Pool({ ...postgres.config, max: 1, ...(options === undefined ? {} : { options }) });
  pool.on("error", () => undefined);
  try {
    for (let i = 0; i < 2; i++) await pool.query("INSERT INTO paid VALUES (7, 1200)");
  } finally {
    await pool.end();
  }
}

/** The same in a process of its own, with the variable that `leasehold run --fence` sets. */
function writeWithPgoptions(options: string): { status: number | null; stderr: string } {
  const source = `
    import pg from "pg";
    const pool = new pg.Pool({ max: 1 });
    try {
      for (let i = 0; i < 2; i++) await pool.query("INSERT INTO paid VALUES (7, 1200)");
    } catch (error) {
      console.error(error.code);
      process.exitCode = 1;
    }
    await pool.end();
  `;
  const { host, user, database } = postgres.config;
  const environment = { ...process.env, PGHOST: host, PGUSER: user, PGDATABASE: database, PGOPTIONS: options };
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", source], { env: environment, encoding: "utf8" });
  return { status: done.status, stderr: done.stderr };
}

async function claimed(lease: Lease): Promise<string> {
  const pool = new pg.Pool({ ...postgres.config, max: 1 });
  await postgresFence(lease).claim(pool);
  await pool.end();
  return `-c leasehold.token=${lease.token}`;
}

test("the setting of the connection, in the program or in PGOPTIONS, carries the token", async () => {
  const rows = (): string => postgres.psql("-c", "SELECT count(*) FROM paid");
  const late = await client.acquire(RESOURCE);
  const options = await claimed(late);
  await assert.rejects(writeTwice(), { code: "LH002" });
  await writeTwice(options);
  assert.equal(rows(), "2");
  assert.deepEqual(writeWithPgoptions(options), { status: 0, stderr: "" });
  assert.equal(rows(), "4");
  await late.release();
  await claimed(await client.acquire(RESOURCE));
  await assert.rejects(writeTwice(options), { code: "LH001" });
  assert.deepEqual(writeWithPgoptions(options), { status: 1, stderr: "LH001\n" });
  assert.equal(rows(), "4");
});
