// Leases against a real server: acquire, wait, renewal, deadlines, loss, release.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import {
  BusyError,
  Client,
  InvalidArgumentError,
  LeaseLostError,
  LeaseSuspendedError,
  OutcomeUnknownError,
  TestClock,
  UnavailableError,
  WaitTimeoutError,
  type ClientOptions,
} from "leasehold";

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

/** Keeps the event loop busy until the server has renewed a lease of this client this often. Fails if the server has ended it. */
function blockUntilRenewed(resource: string, times: number): void {
  let last = 0;
  for (let renewals = 0; renewals < times; ) {
    const shown = JSON.parse(server.run("show", resource, "--json")) as { leases: { remaining_ms: number }[] };
    const left = shown.leases[0]?.remaining_ms;
    assert.ok(left !== undefined, `${resource} has ended`);
    if (left > last) renewals += 1;
    last = left;
  }
}

describe("acquire", () => {
  test("nothing is dialed before it is needed", async () => {
    await using idle = new Client({ servers: "127.0.0.1:1" });
    assert.equal(idle.sessionId, undefined);
    await assert.rejects(idle.acquire("a", { timeout: 300 }), (error: UnavailableError) => error.code === "UNAVAILABLE" && error.isRetryable);
  });

  test("a held lease is busy, and names its holder", async () => {
    await using a = client({ holder: "worker-a" });
    await using b = client();
    const lease = await a.acquire("busy");
    assert.equal(lease.state, "held");
    assert.ok(lease.remaining() > 0 && lease.remaining() <= 30_000 * 0.98);
    await assert.rejects(b.acquire("busy"), (error: BusyError) => error instanceof BusyError && error.holder === "worker-a" && error.nextStep !== "");
    assert.equal(await b.tryAcquire("busy"), undefined);
    await lease.release();
    assert.equal((await b.tryAcquire("busy"))?.state, "held");
  });

  test("waiters are served in order, with rising tokens", async () => {
    await using a = client();
    const first = await a.acquire("fifo");
    const order: string[] = [];
    const waiters = [];
    for (const name of ["one", "two", "three"]) {
      const waiter = client({ holder: name });
      waiters.push(
        waiter.using("fifo", { wait: "30s" }, (lease) => {
          order.push(name);
          return lease.tokenNumber;
        }).finally(() => waiter.close()),
      );
      await until("the waiter is queued", async () => (await a.show("fifo")).waiters === waiters.length);
    }
    await first.release();
    const numbers = [first.tokenNumber, ...(await Promise.all(waiters))].map(BigInt);
    assert.deepEqual(order, ["one", "two", "three"]);
    assert.deepEqual(numbers, [...numbers].sort((x, y) => (x < y ? -1 : 1)));
  });

  test("tasks of one client exclude each other", async () => {
    await using a = client();
    const first = await a.acquire("own");
    await assert.rejects(a.acquire("own"), BusyError);
    const waiting = a.acquire("own", { wait: "30s" });
    await until("the second waits", async () => (await a.show("own")).waiters === 1);
    await first.release();
    assert.equal((await waiting).state, "held");
  });

  test("a wait ends with TIMEOUT", async () => {
    await using a = client();
    await using b = client();
    await a.acquire("timeout");
    await assert.rejects(b.acquire("timeout", { wait: 200 }), WaitTimeoutError);
  });

  test("shared leases exclude an exclusive one, and slots are counted", async () => {
    await using a = client();
    await using b = client();
    await a.acquire("shared", { shared: true });
    assert.equal((await b.acquire("shared", { shared: true })).state, "held");
    await assert.rejects(b.acquire("shared", { holder: "writer" }), (error: { code?: string }) => ["BUSY", "ACCESS_CHANGE"].includes(error.code ?? ""));
    const slots = [await a.acquire("slots", { slots: 2 }), await b.acquire("slots", { slots: 2 })];
    assert.deepEqual(slots.map((lease) => lease.slot).sort(), [0, 1]);
    await using c = client();
    await assert.rejects(c.acquire("slots", { slots: 2 }), BusyError);
  });

  test("invalid values name their field and send nothing", async () => {
    await using a = client();
    for (const [call, field] of [
      [() => a.acquire(""), "resource"],
      [() => a.acquire("x", { wait: "soon" }), "wait"],
      [() => a.acquire("x", { ttl: -1 }), "ttl"],
    ] as const) {
      await assert.rejects(call(), (error: InvalidArgumentError) => error.field === field);
    }
    assert.equal(a.sessionId, undefined);
    await assert.rejects(a.acquire("x", { priority: 300 }), (error: InvalidArgumentError) => error.field === "priority");
  });

  test("an abort ends the wait without the server, and leaves nothing behind", { timeout: 60_000 }, async () => {
    await using a = client();
    await using proxy = await TcpProxy.start(server.address);
    await using b = client({ servers: proxy.address, requestTimeout: "30m" });
    const lease = await a.acquire("abort");
    const stop = new AbortController();
    const waiting = b.acquire("abort", { wait: "60s", signal: stop.signal });
    await until("the waiter is queued", async () => (await a.show("abort")).waiters === 1);
    const reason = new Error("enough");
    proxy.isHeld = true;
    stop.abort(reason);
    await assert.rejects(waiting, (error) => error === reason);
    proxy.isHeld = false;
    proxy.cut();
    await until("the wait is withdrawn", async () => (await a.show("abort")).waiters === 0);
    await lease.release();
    await using c = client();
    assert.equal((await c.acquire("abort", { wait: "10s" })).state, "held");
  });

  test("a grant that arrives after the abort is released", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address });
    await a.acquire("warm up");
    proxy.onlyFor = /:acquire /;
    proxy.replyDelayMs = 300;
    const stop = new AbortController();
    const waiting = a.acquire("late grant", { signal: stop.signal });
    await using b = client();
    await until("the server granted it", async () => (await held(b, "late grant")) === 1);
    stop.abort();
    await assert.rejects(waiting, { name: "AbortError" });
    proxy.replyDelayMs = 0;
    assert.equal((await b.acquire("late grant", { wait: "10s" })).state, "held");
  });

  test("an aborted signal sends nothing", async () => {
    await using a = client();
    await assert.rejects(a.acquire("x", { signal: AbortSignal.abort() }), { name: "AbortError" });
    assert.equal(a.sessionId, undefined);
  });
});

describe("lost replies", () => {
  test("a lost reply is resolved to the same grant", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address });
    await a.acquire("other");
    proxy.onlyFor = /:acquire /;
    proxy.cutReplies = 1;
    const lease = await a.acquire("lost reply");
    assert.equal(proxy.cutReplies, 0, "a reply was lost");
    await using b = client();
    const shown = await b.show("lost reply");
    assert.deepEqual(shown.leases.map((held) => held.token_number), [lease.tokenNumber]);
  });

  test("an unknown outcome can be resolved", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address });
    await a.acquire("other 2");
    proxy.onlyFor = /:acquire /;
    proxy.replyDelayMs = 600_000;
    let unknown: OutcomeUnknownError<{ tokenNumber: string }> | undefined;
    await assert.rejects(a.acquire("unknown", { timeout: 600 }), (error: OutcomeUnknownError<{ tokenNumber: string }>) => {
      unknown = error;
      return error.code === "INDETERMINATE" && error.requestId?.startsWith(a.sessionId ?? "") === true;
    });
    proxy.replyDelayMs = 0;
    const lease = await unknown?.resolve();
    await using b = client();
    assert.deepEqual((await b.show("unknown")).leases.map((held) => held.token_number), [lease?.tokenNumber]);
  });

  test("the deadline counts from before the request, not from the reply", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address });
    await a.acquire("other 3");
    proxy.onlyFor = /:acquire /;
    proxy.replyDelayMs = 1000;
    const lease = await a.acquire("delayed", { ttl: "20s" });
    assert.ok(lease.remaining() <= 20_000 * 0.98 - 1000, `${lease.remaining()} ms remain`);
  });
});

describe("renewal and deadlines", () => {
  test("a blocked event loop keeps its leases", async () => {
    await using a = client({ sessionTtl: "6s" });
    const [lived, own] = [await a.acquire("blocked"), await a.acquire("blocked with ttl", { ttl: "6s" })];
    // A ttl passes in the time of four renewals.
    blockUntilRenewed("blocked with ttl", 4);
    blockUntilRenewed("blocked", 1);
    assert.deepEqual([lived.state, own.state], ["held", "held"]);
    await lived.check();
    await own.check();
    assert.ok(!lived.signal.aborted && !own.signal.aborted);
  });

  test("without a server the lease is suspended by its deadline, and resumed with the same token", async () => {
    await using proxy = await TcpProxy.start(server.address);
    const clock = new TestClock();
    await using a = client({ servers: proxy.address, clock });
    const lease = await a.acquire("suspended");
    const events: string[] = [];
    for (const event of ["suspended", "resumed"] as const) lease.on(event, () => events.push(event));
    const work = lease.run((signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))));
    const { tokenNumber } = lease;
    proxy.isHeld = true;
    // To just before the deadline, and past it: before the server's ttl of 30 s ends.
    clock.advance(Math.max(0, lease.remaining() - 5_000));
    assert.equal(lease.state, "held");
    clock.advance(5_000);
    await assert.rejects(work, LeaseSuspendedError);
    assert.equal(lease.state, "suspended");
    assert.equal(lease.remaining(), 0);
    proxy.isHeld = false;
    proxy.cut();
    await lease.waitState(["held"], { timeout: 30_000 });
    assert.ok(lease.signal.aborted, "work that was stopped stays stopped");
    assert.equal(lease.tokenNumber, tokenNumber);
    assert.deepEqual(events, ["suspended", "resumed"]);
    assert.equal(await lease.run(() => "again"), "again");
  });

  test("a suspend of the machine is noticed", async () => {
    const clock = new TestClock();
    await using a = client({ clock });
    const lease = await a.acquire("suspend");
    const { signal } = lease;
    clock.advance(60_000);
    assert.equal(lease.state, "suspended", "before any timer has fired");
    assert.throws(() => lease.throwIfStopped(), LeaseSuspendedError);
    assert.ok(signal.aborted);
    // The server's time did not jump: it renews the same token.
    await lease.waitState(["held"], { timeout: 30_000 });
    assert.throws(() => lease.throwIfStopped(), LeaseSuspendedError);
  });

  test("an expired lease is lost, and is not extended", async () => {
    await using proxy = await TcpProxy.start(server.address);
    await using a = client({ servers: proxy.address, sessionTtl: "600ms" });
    const lease = await a.acquire("expired");
    proxy.down();
    await using b = client();
    await until("the server ended the lease", async () => (await held(b, "expired")) === 0);
    const successor = await b.acquire("expired");
    proxy.up();
    const loss = await lease.waitLost({ timeout: 30_000 });
    assert.equal(loss.state, "expired");
    assert.ok(BigInt(successor.tokenNumber) > BigInt(lease.tokenNumber));
    await assert.rejects(lease.check(), LeaseLostError);
    await assert.rejects(lease.release(), (error: LeaseLostError) => error.state === "expired");
    // The client goes on with a new session.
    assert.equal((await a.acquire("expired again")).state, "held");
  });

  test("a revoked lease is lost with its state and reason", async () => {
    await using a = client();
    await using operator = client();
    const lease = await a.acquire("revoked");
    const { signal } = lease;
    const released = await a.acquire("revoked before the release");
    await operator.revoke("revoked before the release", "maintenance");
    await assert.rejects(released.release(), (error: LeaseLostError) => error.state === "revoked" && error.reason === "operator");
    await operator.revoke("revoked", "maintenance");
    const loss = await lease.waitLost({ timeout: 30_000 });
    assert.deepEqual(loss, { state: "revoked", reason: "operator" });
    assert.ok(signal.reason instanceof LeaseLostError);
    assert.equal((signal.reason as LeaseLostError).state, "revoked");
  });

  test("the maximum hold ends a lease, first by the holder's clock", async () => {
    await using a = client();
    const lease = await a.acquire("max hold", { maxHold: "2s" });
    await lease.waitState(["suspended", "lost"], { timeout: 30_000 });
    const loss = await lease.waitLost({ timeout: 30_000 });
    assert.deepEqual(loss, { state: "expired", reason: "max_hold" });
  });

  test("after a wait the lease has its whole time", async () => {
    const clock = new TestClock();
    await using a = client();
    await using b = client({ clock });
    const first = await a.acquire("after wait");
    const waiting = b.acquire("after wait", { wait: "30m", ttl: "20s" });
    await until("the waiter is queued", async () => (await a.show("after wait")).waiters === 1);
    // The deadline counts from before the request, so that the grant alone would prove nothing.
    clock.advance(60_000);
    await first.release();
    const lease = await waiting;
    assert.equal(lease.state, "held");
    assert.ok(!lease.signal.aborted);
  });
});

describe("using and release", () => {
  test("the lease is released after the work, and its result is returned", async () => {
    await using a = client();
    let seen: string | undefined;
    const result = await a.using("using", async (lease, signal) => {
      seen = lease.state;
      assert.equal(signal.aborted, false);
      return 42;
    });
    assert.deepEqual([result, seen], [42, "held"]);
    assert.equal(await held(a, "using"), 0);
  });

  test("an error of the work is never masked by a failed release", async () => {
    await using proxy = await TcpProxy.start(server.address);
    const a = client({ servers: proxy.address, sessionTtl: "1s" });
    const business = new Error("out of stock");
    await assert.rejects(
      a.using("masked", () => {
        proxy.down();
        throw business;
      }),
      (error) => error === business,
    );
    await assert.rejects(a.close(), UnavailableError);
  });

  test("an abort does not wait for the release", { timeout: 60_000 }, async () => {
    await using proxy = await TcpProxy.start(server.address);
    // A release waits for 5 s at most; the work would be seen to wait for them by the order of events.
    const a = client({ servers: proxy.address });
    const order: string[] = [];
    const stop = new AbortController();
    let released: Promise<unknown> = Promise.resolve();
    const working = a.using("abort work", { signal: stop.signal }, (lease, signal) => new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => {
        // The same promise as that of the client's own release.
        released = lease.release().catch(() => order.push("release ended"));
        reject(signal.reason);
      });
      proxy.isHeld = true;
      setImmediate(() => stop.abort(new Error("stop now")));
    }));
    await assert.rejects(working, /stop now/);
    order.push("rejected");
    await released;
    assert.deepEqual(order, ["rejected", "release ended"]);
    proxy.down();
    await a.close().catch(() => undefined);
  });

  test("work that outlives its lease rejects with the loss", async () => {
    await using a = client();
    await using operator = client();
    const working = a.using("outlived", async (lease) => {
      await operator.revoke("outlived", "test");
      await lease.waitLost({ timeout: 30_000 });
      return "done too late";
    });
    await assert.rejects(working, (error: LeaseLostError) => error.state === "revoked");
  });

  test("a release is idempotent, and a disposal never throws", async () => {
    await using a = client();
    const lease = await a.acquire("idempotent");
    await Promise.all([lease.release(), lease.release()]);
    await lease.release();
    assert.deepEqual(lease.loss, { state: "released", reason: "released" });
    {
      await using scoped = await a.acquire("scoped");
      assert.equal(scoped.state, "held");
    }
    assert.equal(await held(a, "scoped"), 0);
  });

  test("closing releases everything, and is bounded without a server", { timeout: 60_000 }, async () => {
    const a = client();
    const leases = await Promise.all(["c/1", "c/2", "c/3"].map((name) => a.acquire(name)));
    await a.close();
    assert.ok(leases.every((lease) => lease.loss?.state === "released"));
    await using b = client();
    assert.equal(await held(b, "c/1"), 0);
    await assert.rejects(a.acquire("c/1"), (error: UnavailableError) => error.message.includes("closed"));

    await using proxy = await TcpProxy.start(server.address);
    const cut = client({ servers: proxy.address, requestTimeout: "30m" });
    await cut.acquire("c/4");
    proxy.isHeld = true;
    await assert.rejects(cut.close(), UnavailableError);
  });

  test("a thousand leases are renewed while the event loop is blocked", async () => {
    await using a = client({ sessionTtl: "6s" });
    await Promise.all(Array.from({ length: 1000 }, (_, index) => a.acquire(`many/${index}`)));
    assert.equal(a.heldCount, 1000);
    blockUntilRenewed("many/999", 4);
    assert.equal(a.heldCount, 1000);
  });
});
