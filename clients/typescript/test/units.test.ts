// Parts of the client that need no server.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import test from "node:test";

import { BootClock, TestClock } from "../src/boot-clock.js";
import { configure } from "../src/client-options.js";
import { milliseconds } from "../src/duration.js";
import { errorFromProblem, InvalidArgumentError, LeaseholdError, LeaseLostError, UnavailableError } from "../src/errors.js";
import { EventParser } from "../src/event-stream.js";
import { postgresRefusal, redisRefusal } from "../src/fences/refusal.js";
import { parseToken, resourceHash } from "../src/fences/token-text.js";
import { linkSignals } from "../src/linked-signal.js";
import { encodeName } from "../src/paths.js";
import { HeldLease, localDeadline } from "../src/renewal/held-lease.js";
import { RequestGate } from "../src/request-gate.js";
import { isSameServer, parseAddress } from "../src/server-address.js";
import { SlotAllocator, SlotPages } from "../src/shared-memory.js";

test("the generated types are current", () => {
  execFileSync(process.execPath, ["scripts/generate-types.mjs", "--check"], { stdio: "pipe" });
});

test("the published files contain no fault for tests", () => {
  for (const file of ["dist/esm/index.js", "dist/cjs/index.js"]) {
    const text = readFileSync(file, "utf8");
    for (const fault of ["renewal_on_main_loop", "no_token", "deadline_from_reply"]) assert.ok(!text.includes(fault), `${file} contains ${fault}`);
  }
  // The search works: the build for tests contains them.
  assert.ok(readFileSync("build/mutants/index.js", "utf8").includes("deadline_from_reply"));
});

test("a duration is a number of milliseconds, or a text with a unit", () => {
  assert.equal(milliseconds("1500ms", "wait"), 1500);
  assert.equal(milliseconds("2m", "wait"), 120_000);
  assert.equal(milliseconds(250, "wait"), 250);
  for (const bad of ["", "5", "5 s", "-1s", -1, NaN, 1e300, "1e3s", {} as string]) {
    assert.throws(() => milliseconds(bad, "wait"), (error: InvalidArgumentError) => error.code === "INVALID_ARGUMENT" && error.field === "wait");
  }
});

test("addresses are parsed, and invalid ones are named", () => {
  assert.deepEqual(parseAddress("127.0.0.1:7421", false), { text: "127.0.0.1:7421", kind: "http", host: "127.0.0.1", port: 7421 });
  assert.equal(parseAddress("lease-1:7421", true).kind, "https");
  assert.equal(parseAddress("https://[::1]:7421", false).host, "::1");
  assert.equal(parseAddress("https://lease-1:443", false).port, 443);
  assert.equal(parseAddress("unix:/run/leasehold.sock", false).host, "/run/leasehold.sock");
  for (const bad of ["lease-1", "ftp://x:1", "unix:", "http://x:1/path", "x:port", "http://x"]) {
    assert.throws(() => parseAddress(bad, false), (error: InvalidArgumentError) => error.field === "servers" && error.message.includes(bad));
  }
  assert.throws(() => parseAddress("http://x:1", true), /write https/);
  assert.ok(isSameServer(parseAddress("lease-1:7421", false), "http://lease-1:7421"));
  assert.ok(!isSameServer(parseAddress("lease-1:7421", false), "lease-2:7421"));
});

test("options come from the environment as on the command line", () => {
  const config = configure({}, { LEASEHOLD_ADDR: "127.0.0.1:1,127.0.0.1:2" });
  assert.deepEqual(config.servers.map((server) => server.port), [1, 2]);
  assert.equal(configure({}, {}).servers[0]?.port, 7421);
  const code = (error: LeaseholdError): boolean => error.code === "CONFIG" && error.nextStep !== "";
  assert.throws(() => configure({ tls: { ca: "/nonexistent" } }, {}), code);
  assert.throws(() => configure({ tls: { cert: "c" } }, {}), code);
  assert.throws(() => configure({ servers: "192.0.2.1:7421", bearerFile: "t" }, {}), code);
  assert.throws(() => configure({ sessionTtl: 10 }, {}), (error: InvalidArgumentError) => error.field === "sessionTtl");
  assert.throws(() => configure({ holder: "" }, {}), (error: InvalidArgumentError) => error.field === "holder");
});

test("linked signals are aborted with the first source, and unlinked sources keep nothing", () => {
  const [first, second] = [new AbortController(), new AbortController()];
  const { signal, unlink } = linkSignals(first.signal, undefined, second.signal);
  const reason = new Error("stop");
  second.abort(reason);
  assert.equal(signal.reason, reason);
  first.abort();
  assert.equal(signal.reason, reason, "the first reason stays");
  unlink();
  const long = new AbortController();
  const other = linkSignals(long.signal);
  other.unlink();
  long.abort();
  assert.equal(other.signal.aborted, false);
  assert.ok(linkSignals(undefined, long.signal).signal.aborted, "an aborted source counts at once");
});

test("requests pass the gate in their order, and one that gives up is left out", async () => {
  const gate = new RequestGate();
  const leaves = await Promise.all(Array.from({ length: 128 }, () => gate.enter(1_000)));
  const stop = new AbortController();
  const order: number[] = [];
  const enter = async (number: number, timeoutMs: number, signal?: AbortSignal): Promise<void> => {
    const leave = await gate.enter(timeoutMs, signal);
    order.push(leave ? number : -number);
    leave?.();
  };
  const waiting = [enter(1, 60_000), enter(2, 60_000, stop.signal), enter(3, 0), enter(4, 60_000)];
  stop.abort();
  await waiting[1];
  await waiting[2];
  assert.deepEqual(order, [-2, -3], "none has a turn yet");
  leaves[0]?.();
  leaves[0]?.();
  await Promise.all(waiting);
  assert.deepEqual(order, [-2, -3, 1, 4]);
  for (const leave of leaves) leave?.();
});

test("a gateway may have passed a request on", () => {
  for (const status of [502, 504]) assert.equal(errorFromProblem({ status }).code, "INDETERMINATE");
  assert.ok(errorFromProblem({ status: 503 }).isRetryable);
});

test("a name keeps its slashes in a path", () => {
  assert.equal(encodeName("jobs/a b:c"), "jobs/a%20b%3Ac");
});

test("an unknown code is treated by its status, and unknown values do not fail", () => {
  const error = errorFromProblem({ code: "FROM_THE_FUTURE", status: 503, detail: "later" });
  assert.ok(error instanceof UnavailableError);
  assert.equal(error.code, "FROM_THE_FUTURE");
  assert.ok(error.isRetryable);
  assert.ok(!errorFromProblem({ code: "FROM_THE_FUTURE", status: 400 }).isRetryable);
  const lost = errorFromProblem({ code: "LEASE_LOST", state: "evaporated", reason: "cosmic", status: 410 });
  assert.ok(lost instanceof LeaseLostError);
  assert.deepEqual([lost.state, lost.reason], ["evaporated", "cosmic"]);
  assert.equal(errorFromProblem({ status: 503 }).code, "UNAVAILABLE");
  assert.equal(errorFromProblem({ status: 504 }).code, "INDETERMINATE");
});

test("every error has a next step", () => {
  for (const code of ["BUSY", "TIMEOUT", "LEASE_LOST", "NOT_CURRENT", "INDETERMINATE", "CONFIG", "UNKNOWN"]) {
    assert.notEqual(errorFromProblem({ code, status: 400 }).nextStep, "");
  }
});

test("the deadline counts from before the request, less twice the drift", () => {
  assert.equal(localDeadline(1000, 1800, 30_000), 1000 + 29_400);
});

test("a lease of a session has no deadline of its own, until the server grants less", () => {
  const allocator = new SlotAllocator(() => undefined);
  const slot = allocator.allocate();
  const cell = allocator.pages.cell(slot);
  cell.reset(Infinity);
  const spec = { kind: "lease", resource: "x", lease: "0.0", token: "t", tokenNumber: "1", secret: undefined, spanMs: undefined, ttlMs: 30_000, silenceMs: undefined, rotates: false, overlaps: false, sent: 0 } as const;
  const lease = new HeldLease(slot, cell, spec);
  assert.equal(lease.isTimed, false);
  assert.equal(lease.apply({ remaining_ms: 30_000 }, 100, 110, 20_000), undefined);
  assert.equal(lease.isTimed, false);
  lease.apply({ remaining_ms: 3_000 }, 200, 210, 20_000);
  assert.equal(lease.deadline, 200 + 2_940);
  assert.ok(lease.observe(4_000), "the deadline has passed");
  assert.ok(!lease.observe(4_001), "it is counted once");
  assert.equal(cell.suspensions, 1);
  assert.equal(lease.apply({ remaining_ms: 3_000, drain_ms: 1_000 }, 5_000, 5_010, 20_000), "draining");
  assert.equal(lease.deadline, 5_000 + 980, "a drain ends the lease earlier");
  lease.apply({ remaining_ms: 3_000, drain_ms: 5_000 }, 5_100, 5_110, 20_000);
  assert.equal(lease.deadline, 5_980, "a drain is never extended");
});

test("an older reply does not move the deadline back", () => {
  const allocator = new SlotAllocator(() => undefined);
  const cell = allocator.pages.cell(allocator.allocate());
  cell.reset(10_000);
  const spec = { kind: "lease", resource: "x", lease: "0.0", token: "t", tokenNumber: "1", secret: undefined, spanMs: 10_000, ttlMs: 30_000, silenceMs: undefined, rotates: false, overlaps: false, sent: 0 } as const;
  const lease = new HeldLease(0, cell, spec);
  lease.apply({ remaining_ms: 10_000 }, 3_000, 3_100, Infinity);
  lease.apply({ remaining_ms: 10_000 }, 1_000, 3_200, Infinity);
  assert.equal(lease.deadline, 3_000 + 9_800);
  lease.apply({ remaining_ms: 1e12 }, 4_000, 4_100, Infinity);
  assert.equal(lease.deadline, 4_000 + 29_400, "no reply extends it beyond its ttl");
});

test("slots are in pages that both threads have, and are reused", () => {
  const other = new SlotPages();
  const allocator = new SlotAllocator((number, page) => other.add(number, page));
  const slots = Array.from({ length: 600 }, () => allocator.allocate());
  assert.equal(new Set(slots).size, 600);
  allocator.pages.cell(599).deadline = 1234.5;
  assert.equal(other.cell(599).deadline, 1234.5);
  allocator.free(7);
  assert.equal(allocator.allocate(), 7);
});

test("the clock includes a jump, in all threads that share it", () => {
  const clock = new TestClock();
  const other = new BootClock(clock.share);
  const before = other.now();
  clock.advance(5_000);
  assert.ok(other.now() - before >= 5_000);
  assert.ok(other.now() - before < 6_000);
  assert.ok(new BootClock().now() < before + 5_000, "another clock has not moved");
});

test("events are split, whatever the chunks are", () => {
  const text = ': heartbeat\n\nid: 42\nevent: draining\ndata: {"lease":"3.0"}\n\nevent: ended\ndata: {"lease":\ndata: "4.0"}\n\n';
  for (const size of [1, 7, 1000]) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
    assert.deepEqual(events, [
      { event: "draining", id: "42", data: { lease: "3.0" } },
      { event: "ended", id: undefined, data: { lease: "4.0" } },
    ]);
  }
});

test("a token is parsed, and a changed one is refused", () => {
  const text = "lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73";
  assert.equal(parseToken(text).number, 258755447193600007n);
  assert.equal(parseToken(text).slot, 3);
  const reason = (token: string | undefined): string | undefined => {
    try {
      parseToken(token);
    } catch (error) {
      return (error as LeaseholdError).fields.reason ?? undefined;
    }
    return undefined;
  };
  assert.equal(reason(undefined), "absent");
  assert.equal(reason(text.slice(0, -1)), "shape");
  assert.equal(reason(text.replace("w00000003", "w00000004")), "checksum");
  assert.equal(resourceHash("x"), "2d711642b726b044");
});

test("refusals of PostgreSQL and Redis are mapped, and other errors are not", () => {
  const stale = postgresRefusal(Object.assign(new Error("STALE_TOKEN: stop"), { code: "LH001", detail: "presented=33 mark=34" }));
  assert.equal(stale?.code, "STALE_TOKEN");
  assert.deepEqual([stale?.fields.presented, stale?.fields.mark], ["33", "34"]);
  assert.equal(postgresRefusal(Object.assign(new Error("x"), { code: "P2010", meta: { code: "LH002", message: "no token" } }))?.code, "TOKEN_INVALID");
  assert.equal(postgresRefusal(Object.assign(new Error("x"), { code: "23505" })), undefined);
  assert.equal(redisRefusal(new Error("STALE_TOKEN presented=0000000000000000033 mark=0000000000000000034 (stop)"))?.fields.mark, "34");
  assert.equal(redisRefusal(new Error("WRONGTYPE Operation against a key")), undefined);
});
