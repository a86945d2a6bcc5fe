// Each property that sets this client apart can fail: a build with that fault turns its probe red.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";

import { LeaseholdServer } from "./support/processes.js";

let server: LeaseholdServer;
before(async () => {
  server = await LeaseholdServer.start();
});
after(async () => {
  await server.stop();
});

const probe = (build: string, property: string): string =>
  execFileSync(process.execPath, ["build/test/support/probe.program.mjs", build, property, server.address, server.cluster], { encoding: "utf8" }).trim();

for (const property of ["renewal_on_main_loop", "no_token", "deadline_from_reply"]) {
  test(`the package does not have the fault ${property}`, () => {
    assert.equal(probe("build/test/node_modules/leasehold/dist/esm/index.js", property), "kept");
  });

  test(`the fault ${property} is caught`, () => {
    assert.equal(probe("build/mutants/index.js", property), "broken");
  });
}
