// Fences against real PostgreSQL, Redis and HTTP services: a late write is refused.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import express from "express";
import fastify from "fastify";
import { Redis } from "ioredis";
import knexFactory from "knex";
import {
  claimHttp,
  Client,
  expressFence,
  fastifyFence,
  fencedFetch,
  HttpFence,
  InvalidTokenError,
  knexFence,
  postgresFence,
  redisFence,
  StaleTokenError,
  type Lease,
} from "leasehold";
import pg from "pg";

import { LeaseholdServer, PostgresServer, RedisServer, start, temporaryDirectory, until } from "./support/processes.js";

let server: LeaseholdServer;
let client: Client;
const directory = temporaryDirectory();
before(async () => {
  server = await LeaseholdServer.start();
  client = new Client({ servers: server.address, holder: "fence-test" });
});
after(async () => {
  await client.close();
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});

/** A lease whose token is stale for a fence: its successor has a higher token. */
async function twoHolders(resource: string): Promise<{ late: Lease; current: Lease }> {
  const late = await client.acquire(resource);
  await late.release();
  return { late, current: await client.acquire(resource) };
}

describe("PostgreSQL", () => {
  let postgres: PostgresServer;
  let pool: pg.Pool;
  before(async () => {
    postgres = await PostgresServer.start();
    postgres.psql("-f", "../../crates/fence/src/postgres/install.sql");
    pool = new pg.Pool({ ...postgres.config, max: 4 });
    pool.on("error", () => undefined);
  });
  after(async () => {
    await pool.end();
    await postgres[Symbol.asyncDispose]();
  });
  const protect = (resource: string, table: string): void => {
    postgres.psql("-c", `CREATE TABLE ${table} (id text PRIMARY KEY)`);
    postgres.psql("-c", `SELECT leasehold.arm('${resource}', '${server.cluster}')`);
    postgres.psql("-c", `SELECT leasehold.protect('${table}', '${resource}')`);
  };
  const rows = (table: string): string => postgres.psql("-c", `SELECT string_agg(id, ',' ORDER BY id) FROM ${table}`);

  test("node-postgres: the current holder writes, a late one is refused", async () => {
    protect("pg/jobs", "pg_paid");
    const { late, current } = await twoHolders("pg/jobs");
    await postgresFence(late).claim(pool);
    await postgresFence(late).transaction(pool, (tx) => tx.query("INSERT INTO pg_paid VALUES ('before')"));
    await postgresFence(current).claim(pool);
    await assert.rejects(
      postgresFence(late).transaction(pool, (tx) => tx.query("INSERT INTO pg_paid VALUES ('late')")),
      (error: StaleTokenError) => error instanceof StaleTokenError && error.mark === current.tokenNumber && error.presented === late.tokenNumber,
    );
    const result = await postgresFence(current).transaction(pool, async (tx) => {
      await tx.query("INSERT INTO pg_paid VALUES ('after')");
      return "committed";
    });
    assert.equal(result, "committed");
    assert.equal(rows("pg_paid"), "after,before");
  });

  test("node-postgres: a failing transaction rolls back, and its own error is reported", async () => {
    protect("pg/rollback", "pg_rollback");
    const lease = await client.acquire("pg/rollback");
    const fence = postgresFence(lease);
    await fence.claim(pool);
    await assert.rejects(
      fence.transaction(pool, async (tx) => {
        await tx.query("INSERT INTO pg_rollback VALUES ('x')");
        throw new Error("out of stock");
      }),
      /out of stock/,
    );
    assert.equal(rows("pg_rollback"), "");
    await assert.rejects(pool.query("INSERT INTO pg_rollback VALUES ('no token')"), { code: "LH002" });
  });

  test("node-postgres: a session token serves plain statements of a dedicated connection", async () => {
    protect("pg/session", "pg_session");
    const { late, current } = await twoHolders("pg/session");
    await using dedicated = Object.assign(new pg.Client(postgres.config), { async [Symbol.asyncDispose](this: pg.Client) { await this.end(); } });
    await dedicated.connect();
    await postgresFence(late).claim(dedicated);
    await postgresFence(late).setSessionToken(dedicated);
    await dedicated.query("INSERT INTO pg_session VALUES ('before')");
    await postgresFence(current).claim(pool);
    await assert.rejects(dedicated.query("INSERT INTO pg_session VALUES ('late')"), { code: "LH001" });
    assert.equal(rows("pg_session"), "before");
  });

  test("knex: the current holder writes, a late one is refused", async () => {
    protect("knex/jobs", "knex_paid");
    const knex = knexFactory({ client: "pg", connection: postgres.config, pool: { min: 0, max: 2 } });
    try {
      const { late, current } = await twoHolders("knex/jobs");
      await knexFence(current).claim(knex);
      await assert.rejects(knexFence(late).transaction(knex, async (tx) => await tx("knex_paid").insert({ id: "late" })), StaleTokenError);
      await knexFence(current).transaction(knex, async (tx) => await tx("knex_paid").insert({ id: "current" }));
      assert.equal(rows("knex_paid"), "current");
    } finally {
      await knex.destroy();
    }
  });
});

describe("Redis", () => {
  let redisServer: RedisServer;
  let redis: Redis;
  before(async () => {
    redisServer = await RedisServer.start();
    redis = new Redis(redisServer.socket);
    const text = ["fence.lua", "functions.lua"].map((name) => readFileSync(`../../crates/fence/src/redis/${name}`, "utf8")).join("");
    await redis.call("FUNCTION", "LOAD", "REPLACE", `#!lua name=leasehold\n${text}`);
  });
  after(async () => {
    redis.disconnect();
    await redisServer[Symbol.asyncDispose]();
  });

  test("ioredis: the current holder writes, a late one is refused", async () => {
    const { late, current } = await twoHolders("redis/jobs");
    const fence = redisFence(current);
    const [, hash = "", slot = ""] = /:([0-9a-f]{16}):([0-9a-f]{8})$/.exec(fence.mark) ?? [];
    await assert.rejects(fence.claim(redis), (error: { code?: string }) => error.code === "STORAGE_FAILED");
    await redis.call("FCALL", "leasehold_arm", 1, fence.mark, server.cluster, hash, slot, "redis/jobs", "0");
    const key = "{redis/jobs}:paid:7";
    await redisFence(late).claim(redis);
    await redisFence(late).write(redis, [key], "SET", key, "before");
    await fence.claim(redis);
    await assert.rejects(
      redisFence(late).write(redis, [key], "SET", key, "late"),
      (error: StaleTokenError) => error instanceof StaleTokenError && error.mark === current.tokenNumber,
    );
    assert.equal(await redis.get(key), "before");
    assert.equal(await fence.write(redis, [key], "SET", key, "after"), "OK");
    assert.deepEqual(await fence.writeOnce(redis, 1, [key], "INCR", `${key}:count`), { applied: true, reply: 1 });
    assert.deepEqual(await fence.writeOnce(redis, 1, [key], "INCR", `${key}:count`), { applied: false, last: "1" });
  });
});

describe("HTTP", () => {
  const open = (name: string, resource: string): HttpFence => {
    const options = { marks: join(directory, name), resource, cluster: server.cluster, settleTime: 500, claimTimeout: 2000 };
    HttpFence.arm(options);
    return new HttpFence(options);
  };

  async function listen(listener: RequestListener): Promise<{ url: string; close: () => Promise<void> }> {
    const service = createServer(listener).listen(0, "127.0.0.1");
    await once(service, "listening");
    return {
      url: `http://127.0.0.1:${(service.address() as AddressInfo).port}`,
      close: async () => {
        service.closeAllConnections();
        service.close();
        await once(service, "close");
      },
    };
  }

  async function checkFence(url: string, resource: string, written: string[]): Promise<void> {
    const { late, current } = await twoHolders(resource);
    const write = (lease: Lease, body: string): Promise<Response> =>
      fencedFetch(lease)(`${url}/invoices`, { method: "POST", body, headers: { "content-type": "text/plain" } });
    assert.equal((await write(late, "before")).status, 200);
    await claimHttp(current, url);
    await assert.rejects(write(late, "late"), (error: StaleTokenError) => error instanceof StaleTokenError && error.status === 412 && error.mark === current.tokenNumber);
    assert.equal((await write(current, "after")).status, 200);
    const without = await fetch(`${url}/invoices`, { method: "POST", body: "without", headers: { "content-type": "text/plain" } });
    assert.equal(without.status, 400);
    assert.equal(((await without.json()) as { code: string }).code, "TOKEN_INVALID");
    assert.equal((await fetch(`${url}/invoices`)).status, 200, "a read needs no token");
    assert.deepEqual(written, ["before", "after"]);
  }

  test("Express: a stale token does not reach the handler", async () => {
    const fence = open("express", "http/express");
    const written: string[] = [];
    const app = express();
    app.use(expressFence(fence));
    app.use(express.text());
    app.post("/invoices", (request, response) => {
      written.push(request.body as string);
      response.send("paid");
    });
    app.get("/invoices", (_, response) => void response.send(written));
    const service = await listen(app);
    await checkFence(service.url, "http/express", written);
    await service.close();
    fence.close();
  });

  test("Fastify: a stale token does not reach the handler", async () => {
    const fence = open("fastify", "http/fastify");
    const written: string[] = [];
    const app = fastify();
    await app.register(fastifyFence(fence));
    app.post("/invoices", async (request) => {
      written.push(request.body as string);
      return "paid";
    });
    app.get("/invoices", async () => written);
    const url = await app.listen({ port: 0, host: "127.0.0.1" });
    await checkFence(url, "http/fastify", written);
    await app.close();
    fence.close();
  });

  test("a claim finds the fence below the path where it is mounted", async () => {
    for (const framework of ["Express", "Fastify"]) {
      const resource = `http/mounted/${framework}`;
      const fence = open(`mounted-${framework}`, resource);
      const written: string[] = [];
      const { late, current } = await twoHolders(resource);
      let url: string;
      let close: () => Promise<unknown>;
      if (framework === "Express") {
        const app = express();
        app.use("/billing", expressFence(fence));
        app.post("/billing/invoices", (_, response) => void response.send(String(written.push("x"))));
        ({ url, close } = await listen(app));
      } else {
        const app = fastify();
        await app.register(async (billing) => {
          await billing.register(fastifyFence(fence));
          billing.post("/invoices", async () => written.push("x"));
        }, { prefix: "/billing" });
        // Routes beside it have no fence.
        app.get("/health", async () => "ok");
        url = await app.listen({ port: 0, host: "127.0.0.1" });
        assert.equal((await fetch(`${url}/health`)).status, 200);
        close = () => app.close();
      }
      for (const base of [`${url}/billing`, `${url}/billing/`]) await claimHttp(current, base);
      assert.equal(fence.mark, current.tokenNumber, framework);
      await assert.rejects(fencedFetch(late)(`${url}/billing/invoices`, { method: "POST" }), StaleTokenError);
      assert.equal((await fencedFetch(current)(`${url}/billing/invoices`, { method: "POST" })).status, 200);
      await assert.rejects(claimHttp(current, url), (error: { status?: number }) => error.status === 404);
      assert.deepEqual(written, ["x"]);
      await close();
      fence.close();
    }
  });

  test("a caller that disconnects while its request waits blocks no later claim", async () => {
    const resource = "http/disconnect";
    const fence = open("disconnect", resource);
    let handled = 0;
    let isGone = false;
    const app = express();
    app.use((_, response, next) => {
      response.once("close", () => (isGone = true));
      next();
    });
    app.use(expressFence(fence));
    app.post("/invoices", (_, response) => void response.send(String(++handled)));
    const service = await listen(app);
    const { late, current } = await twoHolders(resource);
    // The first request under the higher token waits for this one, and its caller goes away meanwhile.
    const running = await fence.admit(late.token);
    const stop = new AbortController();
    const waiting = fencedFetch(current)(`${service.url}/invoices`, { method: "POST", signal: stop.signal });
    await new Promise((resolve) => setTimeout(resolve, 100));
    stop.abort();
    await assert.rejects(waiting, { name: "AbortError" });
    await until("the service notices it", () => isGone);
    running.end("known");
    await until("the mark is raised", () => fence.mark === current.tokenNumber);
    await current.release();
    const next = await client.acquire(resource);
    await claimHttp(next, service.url);
    assert.equal(fence.mark, next.tokenNumber);
    assert.equal(handled, 0, "no handler ran for a caller that is gone");
    await service.close();
    fence.close();
  });

  test("a process that lost its mark file admits nothing more", async () => {
    const fence = open("taken", "http/taken");
    const lease = await client.acquire("http/taken");
    (await fence.admit(lease.token)).end("known");
    // The lock of a process that is gone is taken over; here the other process believes that of this one.
    writeFileSync(join(directory, "taken.lock"), "999999999 0 gone");
    const other = open("taken", "http/taken");
    await assert.rejects(fence.admit(lease.token), (error: { code?: string }) => error.code === "CONFLICT");
    other.close();
  });

  test("a claim waits for requests in flight, and refuses later ones", async () => {
    const fence = open("in-flight", "http/in-flight");
    const { late, current } = await twoHolders("http/in-flight");
    const running = await fence.admit(late.token);
    const order: string[] = [];
    const claim = fence.claim(current.token).then(() => order.push("claimed"));
    const behind = fence.admit(late.token).then(() => order.push("admitted"), (error: Error) => order.push(error.name));
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.deepEqual(order, [], "the mark is not raised while a request is in flight");
    running.end("known");
    await Promise.all([claim, behind]);
    assert.deepEqual(order, ["claimed", "StaleTokenError"]);
    fence.close();
  });

  test("after an unknown outcome no higher token is admitted for the settle time", async () => {
    const fence = open("unknown", "http/unknown");
    const { late, current } = await twoHolders("http/unknown");
    (await fence.admit(late.token)).end("unknown");
    const started = performance.now();
    await fence.claim(current.token);
    assert.ok(performance.now() - started >= 490);
    fence.close();
  });

  test("the mark survives a restart, and two processes do not share it", async () => {
    const fence = open("restart", "http/restart");
    const { late, current } = await twoHolders("http/restart");
    await fence.claim(current.token);
    assert.throws(() => open("restart", "http/restart"), (error: { code?: string }) => error.code === "CONFLICT");
    fence.close();
    const again = open("restart", "http/restart");
    assert.equal(again.mark, current.tokenNumber);
    await assert.rejects(again.admit(late.token), StaleTokenError);
    await assert.rejects(again.admit((await client.acquire("http/other")).token), InvalidTokenError);
    again.close();
    assert.throws(() => new HttpFence({ marks: join(directory, "never-armed"), resource: "x", cluster: server.cluster }), (error: { code?: string }) => error.code === "STORAGE_FAILED");
  });

  test("fetch presents the token to the proxy of the server's package", async () => {
    const written: string[] = [];
    const service = await listen((request, response) => {
      let body = "";
      request.on("data", (chunk) => (body += chunk));
      request.on("end", () => {
        if (request.method === "POST") written.push(body);
        response.end("ok");
      });
    });
    const marks = join(directory, "proxy.marks");
    const arguments_ = ["fence", "http", "--upstream", service.url, "--resource", "http/proxy", "--marks", marks, "--cluster", server.cluster, "--arm", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    const proxy = start(process.env["LEASEHOLD_BIN"] ?? "", arguments_);
    let text = "";
    proxy.stderr?.on("data", (chunk) => (text += chunk));
    const url = await until("the proxy listens", () => /127\.0\.0\.1:\d+/.exec(text.split("listen").slice(1).join("") || text)?.[0]).catch(() => assert.fail(text));
    await checkFence(`http://${url}`, "http/proxy", written);
    proxy.kill("SIGTERM");
    await service.close();
  });
});
