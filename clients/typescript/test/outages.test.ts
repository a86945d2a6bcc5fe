// Ends of sessions, replies that are lost or unreadable, closing and canceling at any moment, many requests at once.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";

import { Client, LeaseLostError, OutcomeUnknownError, TestClock, UnavailableError, type ClientOptions, type Lease } from "leasehold";

import { LeaseholdServer, until } from "./support/processes.js";
import { TcpProxy } from "./support/tcp-proxy.js";

let server: LeaseholdServer;
before(async () => {
  server = await LeaseholdServer.start();
});
after(async () => {
  await server.stop();
});

const client = (options: ClientOptions = {}): Client => new Client({ servers: server.address, ...options });

/** Number of leases on a resource; a resource that no one uses does not exist. */
async function held(observer: Client, resource: string): Promise<number> {
  return await observer.show(resource).then((shown) => shown.held, (error: { code?: string }) => {
    if (error.code === "NOT_FOUND") return 0;
    throw error;
  });
}

/** Ends a session at the server, as an operator does. The client is not notified. */
async function endSession(of: Client): Promise<string> {
  const session = of.sessionId ?? "";
  const response = await fetch(`http://${server.address}/v1/sessions/${session}:close`, { method: "POST" });
  assert.equal(response.status, 200);
  return session;
}

describe("a session that the server ended", () => {
  test("loses its leases, and the next acquire opens another one", async () => {
    await using a = client();
    const lease = await a.acquire("session/end");
    const { signal } = lease;
    const ended = await endSession(a);
    const next = await a.acquire("session/end");
    assert.notEqual(a.sessionId, ended);
    assert.equal(next.state, "held");
    assert.ok(BigInt(next.tokenNumber) > BigInt(lease.tokenNumber));
    assert.equal(lease.state, "lost");
    assert.ok(signal.aborted && signal.reason instanceof LeaseLostError);
    assert.equal((await lease.waitLost({ timeout: 30_000 })).state, "expired");
    assert.equal(next.state, "held", "the end of the old session changes nothing");
  });

  test("is noticed long before its next renewal", { timeout: 60_000 }, async () => {
    await using a = client({ sessionTtl: "10m" });
    // At once, and when the stream of its events is open.
    for (const delayMs of [0, 1_000]) {
      const lease = await a.acquire("session/noticed");
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      await endSession(a);
      assert.equal((await lease.waitLost()).state, "expired");
    }
  });

  test("does not end a wait: another session carries it", async () => {
    await using a = client();
    await using holder = client();
    const first = await holder.acquire("session/wait");
    const waiting = a.acquire("session/wait", { wait: "5m" });
    await until("the wait is queued", async () => (await holder.show("session/wait")).waiters === 1);
    await endSession(a);
    await until("the wait is queued again", async () => a.sessionId !== undefined && (await holder.show("session/wait")).waiters === 1);
    await first.release();
    assert.equal((await waiting).state, "held");
  });

  test("does not fail other requests", async () => {
    await using a = client();
    await a.acquire("session/other");
    await endSession(a);
    const item = await a.queue("session/mail").send("hello");
    await endSession(a);
    const [message] = await a.queue("session/mail").receive();
    assert.equal(message?.item, item);
    await message?.ack();
    await endSession(a);
    await a.setCapacity("session/capacity", 3);
  });

  test("is noticed by a request under one of its leases", async () => {
    await using a = client();
    const [lease, other] = [await a.acquire("session/check"), await a.acquire("session/check 2")];
    await endSession(a);
    await assert.rejects(lease.check(), (error: LeaseLostError) => error.reason === "session");
    assert.equal(other.state, "lost");
  });
});

describe("replies", () => {
  test("a reply that is cut in its body is a lost reply: the same grant is returned", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address });
    await a.acquire("cut/first");
    proxy.onlyFor = /:acquire /;
    proxy.shortenReplies = 1;
    const lease = await a.acquire("cut/body");
    assert.equal(proxy.shortenReplies, 0, "a reply was cut");
    await using b = client();
    assert.deepEqual((await b.show("cut/body")).leases.map((shown) => shown.token_number), [lease.tokenNumber]);
  });

  test("renewals that cannot be understood do not end the renewal thread", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address, sessionTtl: "2s" });
    const leases = [await a.acquire("strange/session"), await a.acquire("strange/own", { ttl: "2s" }), await a.acquire("strange/batch", { ttl: "2s" })];
    const numbers = leases.map((lease) => lease.tokenNumber);
    proxy.onlyFor = /:renew /;
    proxy.change = (text) => text.replaceAll('"remaining_ms":', '"remaining_??":').replace('"results":', '"r??????":');
    await Promise.all(leases.map((lease) => lease.waitState(["suspended"], { timeout: 30_000 })));
    // The server renewed them all the time: the same tokens are held again.
    proxy.change = undefined;
    await Promise.all(leases.map((lease) => lease.waitState(["held"], { timeout: 30_000 })));
    assert.deepEqual(leases.map((lease) => lease.tokenNumber), numbers);
  });

  test("a grant of an unknown outcome that no one asks about is released", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address, sessionTtl: "3s" });
    await a.acquire("unresolved/first");
    proxy.onlyFor = /:acquire /;
    proxy.replyDelayMs = 600_000;
    await assert.rejects(a.acquire("unresolved/x", { timeout: 500 }), OutcomeUnknownError);
    await using b = client();
    assert.equal(await held(b, "unresolved/x"), 1);
    proxy.replyDelayMs = 0;
    await until("it is released", async () => (await held(b, "unresolved/x")) === 0);
    assert.equal(await held(b, "unresolved/first"), 1, "the session lives on");
  });

  test("another program at the address is an error with a next step", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address, requestTimeout: "1s" });
    proxy.change = (text) => text.replaceAll('"session":', '"s??????":');
    await assert.rejects(a.acquire("foreign"), (error: { code?: string; nextStep?: string }) => error.code === "FRAME_ERROR" && error.nextStep !== "");
  });
});

describe("closing", () => {
  // A client that waited for the server would wait for longer than the tests take.
  const patient = { requestTimeout: "30m" };

  test("withdraws an acquire that opens a session, without a server", { timeout: 60_000 }, async () => {
    await using proxy = await TcpProxy.start(server.address);
    proxy.isHeld = true;
    const a = client({ servers: proxy.address, ...patient });
    const acquiring = assert.rejects(a.acquire("close/opening"), (error: UnavailableError) => error.message.includes("closed"));
    await new Promise((resolve) => setTimeout(resolve, 100));
    await a.close();
    await acquiring;
  });

  test("withdraws an acquire that waits, and later ones fail", { timeout: 60_000 }, async () => {
    await using holder = client();
    await holder.acquire("close/wait");
    const a = client(patient);
    const acquiring = assert.rejects(a.acquire("close/wait", { wait: "30m" }), (error: UnavailableError) => error.message.includes("closed"));
    await until("the wait is queued", async () => (await holder.show("close/wait")).waiters === 1);
    await a.close();
    await acquiring;
    assert.equal((await holder.show("close/wait")).waiters, 0);
    await assert.rejects(a.acquire("close/after"), (error: UnavailableError) => error.message.includes("closed"));
    await assert.rejects(a.queue("close/after").send("x"), (error: UnavailableError) => error.message.includes("closed"));
  });

  test("ends an acquire before an unreachable server is given up", { timeout: 60_000 }, async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using holder = client();
    await holder.acquire("close/unreachable");
    const a = client({ servers: proxy.address, ...patient });
    const acquiring = a.acquire("close/unreachable", { wait: "30m" });
    await until("the wait is queued", async () => (await holder.show("close/unreachable")).waiters === 1);
    proxy.isHeld = true;
    let isClosed = false;
    const closing = a.close().catch((error: UnavailableError) => error).finally(() => (isClosed = true));
    await assert.rejects(acquiring, (error: UnavailableError) => error.message.includes("closed"));
    assert.equal(isClosed, false);
    assert.ok((await closing) instanceof UnavailableError);
  });

  test("returns no lease whose reply arrives afterwards", { timeout: 60_000 }, async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using observer = client();
    const a = client({ servers: proxy.address, ...patient });
    await a.acquire("close/first");
    proxy.onlyFor = /:acquire /;
    proxy.replyDelayMs = 1_000;
    const acquiring = assert.rejects(a.acquire("close/granted"), (error: UnavailableError) => error.message.includes("closed"));
    await until("the server granted it", async () => (await held(observer, "close/granted")) === 1);
    await a.close();
    await acquiring;
    assert.equal(await held(observer, "close/granted"), 0);
  });
});

describe("canceling", () => {
  test("at any moment leaves no lease and no wait", async () => {
    await using a = client();
    await using b = client();
    for (let round = 0; round < 60; round++) {
      const stop = new AbortController();
      const acquiring = a.acquire("cancel/any", { wait: "5m", signal: stop.signal }).then((lease) => lease.release(), (error) => assert.equal(error, stop.signal.reason));
      // Aborted before, while and after the request is sent: every turn of the event loop is a moment.
      for (let turn = 0; turn < round / 3; turn++) await new Promise((resolve) => setImmediate(resolve));
      stop.abort(new Error("enough"));
      await acquiring;
    }
    await until("the resource is free", async () => (await held(b, "cancel/any")) === 0);
    const lease = await b.acquire("cancel/any", { wait: "1m" });
    assert.equal((await b.show("cancel/any")).waiters, 0);
    await lease.release();
  });

  test("of a resolution withdraws the request", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address });
    await using b = client();
    await a.acquire("cancel/first");
    proxy.onlyFor = /:acquire /;
    proxy.replyDelayMs = 600_000;
    const unknown = await a.acquire("cancel/resolve", { timeout: 500 }).then(() => assert.fail(), (error: OutcomeUnknownError<Lease>) => error);
    const stop = new AbortController();
    const resolving = assert.rejects(unknown.resolve(60_000, stop.signal), { name: "AbortError" });
    stop.abort();
    await resolving;
    proxy.replyDelayMs = 0;
    await until("it is released", async () => (await held(b, "cancel/resolve")) === 0);
  });
});

describe("many requests at once", () => {
  test("share a signal without a warning", async () => {
    const warnings: string[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning.name);
    process.on("warning", onWarning);
    await using a = client();
    const { signal } = new AbortController();
    const leases = await Promise.all(Array.from({ length: 50 }, (_, index) => a.acquire(`signal/${index}`, { signal })));
    await Promise.all(leases.map((lease) => lease.release()));
    await new Promise((resolve) => setImmediate(resolve));
    process.off("warning", onWarning);
    assert.deepEqual(warnings, []);
  });

  test("thousands of acquires of one client succeed, each with a token of its own", async () => {
    await using a = client({ requestTimeout: "10m" });
    const leases = await Promise.all(Array.from({ length: 3_000 }, (_, index) => a.acquire(`burst/${index}`)));
    assert.equal(new Set(leases.map((lease) => lease.tokenNumber)).size, 3_000);
    assert.equal(a.heldCount, 3_000);
    assert.ok(leases.every((lease) => !lease.signal.aborted), "all were held from their beginning");
    await Promise.all(leases.map((lease) => lease.release()));
    assert.equal(a.heldCount, 0);
  });

  test("hundreds of tasks take turns", async () => {
    await using a = client({ requestTimeout: "10m" });
    let running = 0;
    let turns = 0;
    await Promise.all(Array.from({ length: 300 }, () => a.using("turns", { wait: "10m" }, async () => {
      assert.equal(++running, 1, "one at a time");
      await new Promise((resolve) => setImmediate(resolve));
      running -= 1;
      turns += 1;
    })));
    assert.equal(turns, 300);
  });

  test("a wait that the server has forgotten is made again", { timeout: 45_000 }, async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using holder = client();
    const first = await holder.acquire("forgotten");
    await using a = client({ servers: proxy.address, requestTimeout: "10m" });
    const waiting = a.acquire("forgotten", { wait: "10m" });
    await until("the wait is queued", async () => (await holder.show("forgotten")).waiters === 1);
    // A server remembers the last 512 requests of a session.
    await Promise.all(Array.from({ length: 600 }, (_, index) => a.acquire(`later/${index}`)));
    // Cut off, the wait is granted under the forgotten request, or withdrawn. A grant whose reply is lost is released at once.
    proxy.cut();
    await first.release();
    assert.equal((await waiting).state, "held");
    assert.equal(await held(holder, "forgotten"), 1);
    assert.equal((await holder.show("forgotten")).waiters, 0);
  });
});

describe("clocks and timers", () => {
  test("an acquire after a suspend of the machine returns a held lease", async () => {
    const clock = new TestClock();
    await using a = client({ clock });
    const before = await a.acquire("jump/before");
    clock.advance(600_000);
    assert.equal(before.state, "suspended");
    // The session was kept by the server, whose clock did not jump.
    const after = await a.acquire("jump/after");
    assert.equal(after.state, "held");
    assert.ok(!after.signal.aborted, "it was held from its beginning");
    clock.advance(600_000);
    assert.equal(await a.using("jump/using", () => "done"), "done");
  });

  test("an endless timeout does not end at once", async () => {
    await using a = client();
    await using operator = client();
    const lease = await a.acquire("endless");
    let isLost = false;
    const waiting = Promise.all([Infinity, 2 ** 40].map((timeout) => lease.waitLost({ timeout }))).then(() => (isLost = true));
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(isLost, false);
    await operator.revoke("endless", "test");
    await waiting;
  });

  test("times that no server accepts are refused with their field", async () => {
    await using a = client();
    for (const ttl of [1e300, Number.MAX_SAFE_INTEGER, "365d", 1, 0]) {
      await assert.rejects(a.acquire("times", { ttl }), (error: { code?: string; field?: string }) => error.code === "INVALID_ARGUMENT" && error.field === "ttl");
    }
    await assert.rejects(a.acquire("times", { wait: 1e300 }), (error: { field?: string }) => error.field === "wait");
  });
});

describe("the end of the process", () => {
  const run = (end: string): string => execFileSync(process.execPath, ["build/test/support/abandoned-acquire.program.mjs", end, server.address], { encoding: "utf8" });

  test("while an acquire waits: nothing keeps the process, and its leases expire", async () => {
    assert.equal(run("exit"), "waiting\n");
    await using b = client();
    assert.equal((await b.acquire("exit/held", { wait: "1m" })).state, "held");
  });

  test("a client that holds a lease does not keep the process alive", async () => {
    assert.equal(run("return"), "returning\n");
    await using b = client();
    assert.equal((await b.acquire("exit/held", { wait: "1m" })).state, "held");
  });
});
