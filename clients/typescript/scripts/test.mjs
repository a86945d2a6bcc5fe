// Builds the tests and runs them. LEASEHOLD_BIN is the server's binary. Arguments select files by a part of their name.

import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
const wanted = process.argv.slice(2);
const files = readdirSync("test").filter((name) => name.endsWith(".test.ts") && (wanted.length === 0 || wanted.some((part) => name.includes(part))));
const programs = readdirSync("test/support").filter((name) => name.endsWith(".program.ts"));
const examples = readdirSync("examples").filter((name) => name.endsWith(".ts"));
rmSync("build/test", { recursive: true, force: true });
rmSync("build/examples", { recursive: true, force: true });
const options = { bundle: true, platform: "node", target: "node20", format: "esm", packages: "external", logLevel: "warning", outExtension: { ".js": ".mjs" }, define: { __LEASEHOLD_MUTANT__: '""' } };
await build({ ...options, entryPoints: [...files.map((name) => `test/${name}`), ...programs.map((name) => `test/support/${name}`)], outdir: "build/test", outbase: "test" });
await build({ ...options, entryPoints: examples.map((name) => `examples/${name}`), outdir: "build/examples" });
const tests = files.map((name) => `build/test/${name.replace(/\.ts$/, ".mjs")}`);
const run = spawnSync(process.execPath, ["--test", "--test-concurrency=2", "--test-reporter=spec", ...tests], { stdio: "inherit" });
process.exit(run.status ?? 1);
