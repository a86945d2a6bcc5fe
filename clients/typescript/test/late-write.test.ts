// A worker that is paused past its ttl: its late write is refused by PostgreSQL.

import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Client, postgresFence, type Lease } from "leasehold";
import pg from "pg";

import { LeaseholdServer, PostgresServer, start, until } from "./support/processes.js";

test("the worker has at most 25 lines", () => {
  const lines = readFileSync("examples/fenced-postgres-write.ts", "utf8").split("\n");
  assert.ok(lines.filter((line) => line.trim() !== "" && !line.trim().startsWith("//")).length <= 25);
});

/** A worker with its servers. Lines of its standard input decide when it writes, so that a test knows where it is paused. */
class Scene {
  readonly server: LeaseholdServer;
  readonly postgres: PostgresServer;
  readonly pool: pg.Pool;
  readonly worker: ChildProcess;
  output = "";

  private constructor(server: LeaseholdServer, postgres: PostgresServer, program: string, args: readonly string[]) {
    this.server = server;
    this.postgres = postgres;
    this.pool = new pg.Pool(postgres.config);
    const { host, user, database } = postgres.config;
    const env = { ...process.env, LEASEHOLD_ADDR: server.address, PGHOST: host, PGUSER: user, PGDATABASE: database };
    this.worker = start(process.execPath, [program, ...args], { env, stdio: ["pipe", "pipe", "pipe"] });
    for (const stream of [this.worker.stdout, this.worker.stderr]) stream?.on("data", (chunk) => (this.output += chunk));
  }

  static async start(program: string, ...args: string[]): Promise<Scene> {
    const server = await LeaseholdServer.start();
    const postgres = await PostgresServer.start();
    postgres.psql("-f", "../../crates/fence/src/postgres/install.sql");
    postgres.psql("-c", "CREATE TABLE paid (id text, cents int)");
    postgres.psql("-c", `SELECT leasehold.arm('jobs/settle', '${server.cluster}')`);
    postgres.psql("-c", "SELECT leasehold.protect('paid', 'jobs/settle')");
    return new Scene(server, postgres, program, args);
  }

  write(line: string): void {
    this.worker.stdin?.write(`${line}\n`);
  }

  async says(text: string): Promise<void> {
    await until(`the worker says ${text}`, () => {
      if (this.worker.exitCode !== null && !this.output.includes(text)) assert.fail(`the worker ended: ${this.output}`);
      return this.output.includes(text);
    });
  }

  /** Pauses the worker past its ttl. A successor acquires, claims and writes. Then the worker goes on, and ends. */
  async replaceWorker(claim: (lease: Lease) => Promise<void>): Promise<void> {
    this.worker.kill("SIGSTOP");
    await using successor = new Client({ servers: this.server.address, holder: "successor" });
    const lease = await successor.acquire("jobs/settle", { wait: "60s" });
    await claim(lease);
    await postgresFence(lease).transaction(this.pool, (tx) => tx.query("INSERT INTO paid VALUES ('successor', 1)"));
    this.write("late");
    this.worker.kill("SIGCONT");
    await until("the worker ends", () => this.worker.exitCode !== null || this.worker.signalCode !== null);
  }

  /** Ids of all rows. */
  get paid(): string {
    return this.postgres.psql("-c", "SELECT string_agg(id, ',' ORDER BY id) FROM paid");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.worker.kill("SIGKILL");
    await this.pool.end();
    await this.postgres[Symbol.asyncDispose]();
    await this.server.stop();
  }
}

test("a worker that was paused between two writes is refused with LH001", async () => {
  await using scene = await Scene.start("build/test/examples/fenced-postgres-write.mjs");
  await scene.says("claimed");
  scene.write("early");
  await scene.says("paid early");
  // The worker waits for the next line, outside of a transaction.
  await scene.replaceWorker((lease) => postgresFence(lease).claim(scene.pool));
  assert.match(scene.output, /^claimed\npaid early\nrefused: STALE_TOKEN LH001\n$/);
  assert.equal(scene.worker.exitCode, 0);
  assert.equal(scene.paid, "early,successor");
});

test("a transaction that was paused is ended by PostgreSQL when the lease ends, and nothing of it is written", async () => {
  await using scene = await Scene.start("build/test/support/open-transaction.program.mjs", "limited");
  await scene.says("in the transaction");
  await scene.replaceWorker((lease) => postgresFence(lease).claim(scene.pool));
  assert.match(scene.output, /^in the transaction\nfailed: 25P03\nrows: 0\n$/);
  assert.equal(scene.paid, "successor");
});

test("a paused transaction without a limit is ended by a claim that terminates what blocks it", async () => {
  await using scene = await Scene.start("build/test/support/open-transaction.program.mjs", "unlimited");
  await scene.says("in the transaction");
  await scene.replaceWorker(async (lease) => {
    await assert.rejects(postgresFence(lease).claim(scene.pool), { code: "UNAVAILABLE" });
    await postgresFence(lease).claim(scene.pool, { terminate: true });
  });
  assert.match(scene.output, /^in the transaction\nfailed: 57P01\nrows: 0\n$/);
  assert.equal(scene.paid, "successor");
});
