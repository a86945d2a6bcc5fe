// Recipes against a real server: several resources, small state, progress, handoff, election, queue, services.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Client, LeaseLostError, type ClientOptions, type Lease } from "leasehold";

import { LeaseholdServer, until } from "./support/processes.js";

let server: LeaseholdServer;
before(async () => {
  server = await LeaseholdServer.start();
});
after(async () => {
  await server.stop();
});

const client = (options: ClientOptions = {}): Client => new Client({ servers: server.address, ...options });

test("several resources are acquired in one step, or none of them", async () => {
  await using a = client();
  await using b = client();
  const both = await a.acquireAll(["all/x", { resource: "all/y", shared: true }]);
  assert.deepEqual(both.map((lease) => lease.resource), ["all/x", "all/y"]);
  await assert.rejects(b.acquireAll(["all/z", "all/x"]), (error: { code?: string }) => error.code === "BUSY");
  assert.equal((await b.acquire("all/z")).state, "held", "nothing was acquired");
  await Promise.all(both.map((lease) => lease.release()));
  const sum = await b.usingAll(["all/x", "all/y"], { wait: "5s" }, (leases, signal) => {
    assert.equal(signal.aborted, false);
    return leases.length;
  });
  assert.equal(sum, 2);
});

test("a checkpoint is written by the holder only, with a revision", async () => {
  await using a = client();
  const lease = await a.acquire("state");
  assert.equal(await a.get("state", "next"), undefined);
  const first = await lease.put("next", "17");
  assert.equal((await a.get("state", "next"))?.text, "17");
  assert.equal((await a.get("state", "next"))?.tokenNumber, lease.tokenNumber);
  await lease.put("next", new Uint8Array([0, 255]), { expectedRevision: first });
  assert.deepEqual([...((await a.get("state", "next"))?.bytes ?? [])], [0, 255]);
  await assert.rejects(lease.put("next", "x", { expectedRevision: first }), (error: { code?: string }) => error.code === "CONFLICT");
  await lease.put("next", undefined);
  assert.equal(await a.get("state", "next"), undefined);
  await lease.release();
  await assert.rejects(lease.put("next", "late"), LeaseLostError);
});

test("a lease that requires progress is kept by it, and ends as stalled without", async () => {
  await using a = client();
  const lease = await a.acquire("progress", { progress: "5s" });
  // Longer than the required interval in all, and far below it each.
  for (let step = 1; step <= 6; step++) {
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await lease.progress(step);
  }
  assert.equal(lease.state, "held");
  assert.deepEqual(await lease.waitLost({ timeout: 15_000 }), { state: "expired", reason: "stalled" });
});

test("a rotated token replaces the old one", async () => {
  await using a = client();
  const lease = await a.acquire("rotate");
  const before = lease.token;
  const rotated = await lease.rotate();
  assert.notEqual(rotated, before);
  assert.equal(lease.token, rotated);
  await lease.check();
});

test("a handoff drains, and the successor follows", async () => {
  await using a = client();
  await using b = client({ holder: "successor" });
  const lease = await a.acquire("handoff");
  const waiting = b.acquire("handoff", { wait: "30s" });
  await until("the successor waits", async () => (await a.show("handoff")).waiters === 1);
  const { drainSignal } = lease;
  await lease.handoff({ mode: "gap", drain: "60s" });
  const left = await lease.waitDraining({ timeout: 30_000 });
  assert.ok(left > 0 && left <= 60_000);
  assert.ok(drainSignal.aborted);
  assert.equal(lease.state, "held", "a draining holder may still write");
  await lease.finishDrain();
  const successor = await waiting;
  assert.ok(BigInt(successor.tokenNumber) > BigInt(lease.tokenNumber));
  await successor.waitClaimable({ timeout: 1000 });
});

test("in an overlap the successor claims when the predecessor is done, not after the drain period", { timeout: 60_000 }, async () => {
  await using a = client();
  await using b = client({ holder: "successor" });
  const lease = await a.acquire("overlap");
  const waiting = b.acquire("overlap", { wait: "30s" });
  await until("the successor waits", async () => (await a.show("overlap")).waiters === 1);
  await lease.handoff({ mode: "overlap", drain: "10m" });
  const successor = await waiting;
  assert.ok((successor.overlapsMs ?? 0) > 0);
  await assert.rejects(successor.waitClaimable({ timeout: 200 }), (error: { code?: string }) => error.code === "TIMEOUT");
  const claimable = successor.waitClaimable();
  await lease.finishDrain();
  await claimable;
});

test("a leader is followed when it stops, and can be observed", async () => {
  await using a = client({ holder: "first" });
  await using b = client({ holder: "second" });
  await using observer = client();
  const seen: (string | undefined)[] = [];
  const stopObserving = new AbortController();
  const observing = (async () => {
    for await (const leader of observer.election("leader").observe({ signal: stopObserving.signal })) seen.push(leader?.holder);
  })();
  const stopA = new AbortController();
  const stopB = new AbortController();
  const work = async (lease: Lease, signal: AbortSignal): Promise<string> => {
    const ended = AbortSignal.any([signal, lease.drainSignal]);
    await new Promise<void>((resolve) => (ended.aborted ? resolve() : ended.addEventListener("abort", () => resolve())));
    return lease.holder;
  };
  const first = a.election("leader", { metadata: "10.0.0.1" }).lead(work, { stop: stopA.signal });
  await until("the first leads", async () => (await observer.election("leader").leader())?.holder === "first");
  assert.equal((await observer.election("leader").leader())?.metadata, "10.0.0.1");
  const second = b.election("leader").lead(work, { stop: stopB.signal });
  await until("the second waits", async () => (await observer.show("leader")).waiters === 1);
  stopA.abort();
  assert.equal(await first, "first");
  await until("the second leads", async () => (await observer.election("leader").leader())?.holder === "second");
  await until("the change is observed", () => seen.includes("second"));
  stopB.abort();
  assert.equal(await second, "second");
  stopObserving.abort();
  await observing;
  assert.ok(seen.indexOf("first") < seen.indexOf("second"));
});

test("a message is with one worker until it is acknowledged", async () => {
  await using a = client();
  await using b = client();
  const [queue, other] = [a.queue("mail"), b.queue("mail")];
  const item = await queue.send("pay 5", { maxAttempts: 3 });
  await queue.send(new Uint8Array([1, 2, 255]));
  const [first] = await queue.receive();
  assert.equal(first?.item, item);
  assert.equal(first?.text(), "pay 5");
  const [second] = await other.receive({ wait: "5s" });
  assert.deepEqual([...(second?.body ?? [])], [1, 2, 255]);
  assert.deepEqual(await other.receive(), [], "nothing else is ready");
  await first?.nack();
  const [again] = await other.receive({ wait: "5s" });
  assert.deepEqual([again?.item, again?.attempt], [item, 2]);
  await again?.ack();
  await second?.ack();
  const status = await queue.status();
  assert.deepEqual([status.ready, status.in_flight, status.dead], [0, 0, 0]);
});

test("a worker that blocks its event loop keeps its message", async () => {
  await using a = client();
  await using b = client();
  await a.queue("blocked mail").send("long");
  const [message] = await a.queue("blocked mail", { visibility: "5s" }).receive();
  const end = performance.now() + 8_000;
  while (performance.now() < end);
  assert.equal(message?.state, "held");
  assert.deepEqual(await b.queue("blocked mail").receive(), []);
  await message?.ack();
});

test("work that fails returns its message, until it is dead", async () => {
  await using a = client();
  const queue = a.queue("failing mail");
  const item = await queue.send("bad", { maxAttempts: 2 });
  for (let attempt = 1; attempt <= 2; attempt++) {
    const [message] = await queue.receive({ wait: "5s" });
    await assert.rejects(async () => await message?.process(() => Promise.reject(new Error("no such account"))), /no such account/);
  }
  assert.deepEqual(await queue.receive(), []);
  assert.equal((await queue.status()).dead, 1);
  await queue.redrive(item);
  const [message] = await queue.receive({ wait: "5s" });
  assert.equal(await message?.process((received) => received.text()), "bad");
});

test("waiting for a message can be aborted", async () => {
  await using a = client();
  const stop = new AbortController();
  const received: string[] = [];
  const working = (async () => {
    for await (const message of a.queue("idle mail").messages({ signal: stop.signal })) await message.process((one) => received.push(one.text()));
  })();
  await a.queue("idle mail").send("wake up");
  await until("the message is processed", () => received.length === 1);
  stop.abort();
  await working;
});

test("services are listed while their processes keep them", async () => {
  await using observer = client();
  const first = client({ holder: "process-1" });
  await using second = client({ holder: "process-2" });
  await first.service("services/billing", "i-1", { details: "10.0.0.1:443" }).register();
  await second.service("services/billing", "i-2", { details: "10.0.0.2:443" }).register();
  const names: string[][] = [];
  const stop = new AbortController();
  const watching = (async () => {
    for await (const instances of observer.discover("services/billing").watch({ signal: stop.signal })) names.push(instances.map(({ name }) => name));
  })();
  await until("both are listed", () => names.at(-1)?.length === 2);
  assert.deepEqual((await observer.discover("services/billing").instances())[0], {
    name: "i-1",
    details: "10.0.0.1:443",
    holder: "process-1",
    tokenNumber: (await observer.discover("services/billing").instances())[0]?.tokenNumber,
  });
  await first.close();
  await until("the first is gone", () => names.at(-1)?.length === 1);
  assert.deepEqual(names.at(-1), ["i-2"]);
  stop.abort();
  await watching;
});
