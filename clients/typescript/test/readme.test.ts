// The quickstart of the README and the examples run.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { LeaseholdServer, start, until } from "./support/processes.js";

let server: LeaseholdServer;
before(async () => {
  server = await LeaseholdServer.start();
});
after(async () => {
  await server.stop();
});

const env = (): NodeJS.ProcessEnv => ({ ...process.env, LEASEHOLD_ADDR: server.address });
const run = (...args: string[]): string => execFileSync(process.execPath, args, { encoding: "utf8", env: env() });

test("the quickstart runs", () => {
  const [, code] = /```js quickstart\n([\s\S]*?)```/.exec(readFileSync("README.md", "utf8")) ?? [];
  assert.ok(code);
  mkdirSync("build/test", { recursive: true });
  writeFileSync("build/test/quickstart.mjs", code.replace("127.0.0.1:7421", server.address));
  assert.match(run("build/test/quickstart.mjs"), /^holding jobs\/settle with token \d+, aborted: false\n$/);
});

test("the lock example runs", () => {
  assert.match(run("build/test/examples/lock.mjs"), /working with token \d+\ndone/);
});

test("the leader example hands off to another candidate", async () => {
  const output: string[] = [];
  const candidate = (name: string): ReturnType<typeof start> => {
    const child = start(process.execPath, ["build/test/examples/leader.mjs", name], { env: env() });
    child.stdout?.on("data", (chunk: Buffer) => output.push(...chunk.toString().trim().split("\n")));
    return child;
  };
  const [first, second] = [candidate("first"), candidate("second")];
  const leader = await until("one leads", () => output.find((line) => line.includes("leads"))?.split(" ")[0]);
  const [leading, other] = leader === "first" ? [first, second] : [second, first];
  leading.kill("SIGTERM");
  await until("the other leads", () => output.filter((line) => line.includes("leads")).length === 2);
  assert.ok(output.includes(`${leader} is done`) || (await until("the first is done", () => output.includes(`${leader} is done`))));
  other.kill("SIGTERM");
  await until("both ended", () => first.exitCode === 0 && second.exitCode === 0);
});

test("the queue example sends and works", async () => {
  assert.match(run("build/test/examples/queue.mjs", "send", "a", "b"), /sent \d+\nsent \d+/);
  const worker = start(process.execPath, ["build/test/examples/queue.mjs", "work"], { env: env() });
  let text = "";
  worker.stdout?.on("data", (chunk) => (text += chunk));
  await until("both are processed", () => text.includes("a (attempt 1)") && text.includes("b (attempt 1)"));
  worker.kill("SIGINT");
  await until("the worker ended", () => worker.exitCode === 0);
});
