// The packed package in an empty directory: ESM, CommonJS and TypeScript.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";

import { LeaseholdServer, temporaryDirectory } from "./support/processes.js";

const directory = temporaryDirectory();
let server: LeaseholdServer;
const env = (): NodeJS.ProcessEnv => ({ PATH: process.env["PATH"], HOME: directory, LEASEHOLD_ADDR: server.address });

before(async () => {
  server = await LeaseholdServer.start();
  const packed = execFileSync("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", directory], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const [{ filename, files }] = JSON.parse(packed) as [{ filename: string; files: { path: string }[] }];
  const paths = files.map(({ path }) => path);
  assert.ok(paths.every((path) => /^(dist\/|examples\/|README\.md$|LICENSE-|package\.json$)/.test(path)), paths.join());
  writeFileSync(join(directory, "package.json"), '{ "private": true }');
  // The package has no dependencies, so nothing is downloaded.
  execFileSync("npm", ["install", "--offline", "--no-audit", "--no-fund", join(directory, filename)], { cwd: directory, stdio: "pipe" });
});
after(async () => {
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});

test("it has no dependencies and no native code", () => {
  const manifest = JSON.parse(readFileSync(join(directory, "node_modules/leasehold/package.json"), "utf8")) as Record<string, unknown>;
  assert.equal(manifest["dependencies"], undefined);
  assert.equal(manifest["version"], (JSON.parse(readFileSync("../../docs/reference/openapi.json", "utf8")) as { info: { version: string } }).info.version);
  const installed = execFileSync("find", ["node_modules", "-name", "*.node", "-o", "-name", "binding.gyp"], { cwd: directory, encoding: "utf8" });
  assert.equal(installed, "");
});

const program = (load: string): string => `${load}
(async () => {
  const client = new Client({ holder: "packed" });
  const held = await client.using("packed", { wait: "5s" }, async (lease, signal) => lease.state + " " + signal.aborted);
  await client.close();
  console.log(held, new StaleTokenError("STALE_TOKEN", "m", "n") instanceof LeaseholdError);
})();
`;
const run = (file: string): string => execFileSync(process.execPath, [file], { cwd: directory, env: env(), encoding: "utf8" }).trim();

test("it works as an ES module", () => {
  writeFileSync(join(directory, "esm.mjs"), program('import { Client, LeaseholdError, StaleTokenError } from "leasehold";'));
  assert.equal(run("esm.mjs"), "held false true");
});

test("it works with require", () => {
  writeFileSync(join(directory, "cjs.cjs"), program('const { Client, LeaseholdError, StaleTokenError } = require("leasehold");'));
  assert.equal(run("cjs.cjs"), "held false true");
});

test("its types serve strict TypeScript, as ES module and as CommonJS", () => {
  mkdirSync(join(directory, "node_modules/@types"), { recursive: true });
  for (const name of ["@types/node", "undici-types"]) {
    if (existsSync(`node_modules/${name}`)) symlinkSync(resolve(`node_modules/${name}`), join(directory, "node_modules", name));
  }
  const source = `import { Client, BusyError, type Lease } from "leasehold";
async function main(): Promise<void> {
  await using client = new Client();
  await using lease: Lease = await client.acquire("typed", { ttl: "10s" });
  const number: string = lease.tokenNumber;
  const state: "held" | "suspended" | "lost" = lease.state;
  try {
    await new Client().acquire("typed");
  } catch (error) {
    if (error instanceof BusyError) console.log(state, number.length > 0, error.code);
  }
  // @ts-expect-error: an unknown option is a compile error
  void client.acquire("x", { waits: 1 }).catch(() => undefined);
}
void main().then(() => process.exit(0));
`;
  writeFileSync(join(directory, "typed.mts"), source);
  writeFileSync(join(directory, "typed.cts"), source);
  const options = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,esnext.disposable", "--types", "node"];
  execFileSync(process.execPath, [resolve("node_modules/typescript/bin/tsc"), ...options, "typed.mts", "typed.cts"], { cwd: directory, stdio: "pipe" });
  assert.equal(run("typed.mjs"), "held true BUSY");
  assert.equal(run("typed.cjs"), "held true BUSY");
});
