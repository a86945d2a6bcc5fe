// Shows whether one property of a build of the client holds: prints `kept` or `broken`.
//
//   node probe.program.mjs BUILD PROPERTY SERVER CLUSTER

import { spawnSync } from "node:child_process";
import { createServer } from "node:http";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { TcpProxy } from "./tcp-proxy.js";

const [build = "", property = "", server = "", cluster = ""] = process.argv.slice(2);
(globalThis as { leaseholdMutant?: string }).leaseholdMutant = property;
const { Client, HttpFence, expressFence, fencedFetch } = (await import(pathToFileURL(build).href)) as typeof import("leasehold");

const probes: Record<string, () => Promise<boolean>> = {
  async renewal_on_main_loop() {
    const client = new Client({ servers: server, sessionTtl: "6s" });
    const resource = `probe/block-${process.pid}`;
    const lease = await client.acquire(resource);
    // Keeps the event loop busy until the server has renewed the lease four times, or has ended it.
    for (let renewals = 0, last = 0; renewals < 4; ) {
      const shown = spawnSync(process.env["LEASEHOLD_BIN"] ?? "", ["--addr", server, "show", resource, "--json"], { encoding: "utf8" });
      const left = shown.status === 0 ? (JSON.parse(shown.stdout) as { leases: { remaining_ms: number }[] }).leases[0]?.remaining_ms : undefined;
      if (left === undefined) return false;
      if (left > last) renewals += 1;
      last = left;
    }
    return lease.state === "held";
  },
  async no_token() {
    const directory = mkdtempSync(join(tmpdir(), "leasehold-probe-"));
    const options = { marks: join(directory, "marks"), resource: `probe/token-${process.pid}`, cluster };
    HttpFence.arm(options);
    const gate = expressFence(new HttpFence(options));
    const service = createServer((request, response) => gate(request, response, () => response.end("ok"))).listen(0, "127.0.0.1");
    await once(service, "listening");
    const lease = await new Client({ servers: server }).acquire(`probe/token-${process.pid}`);
    const write = fencedFetch(lease)(`http://127.0.0.1:${(service.address() as AddressInfo).port}/`, { method: "POST" });
    const status = await write.then((response) => response.status, (error: { status?: number }) => error.status);
    rmSync(directory, { recursive: true });
    return status === 200;
  },
  async deadline_from_reply() {
    const proxy = await TcpProxy.start(server);
    const client = new Client({ servers: proxy.address });
    await client.acquire(`probe/warm-${process.pid}`);
    proxy.replyDelayMs = 1_000;
    const lease = await client.acquire(`probe/deadline-${process.pid}`, { ttl: "10s" });
    return lease.remaining() <= 10_000 * 0.98 - 1_000;
  },
};

console.log((await probes[property]?.()) === true ? "kept" : "broken");
process.exit(0);
