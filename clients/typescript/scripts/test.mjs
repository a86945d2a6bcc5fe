// Builds the tests and runs them against the packed package, which is installed into an empty directory. LEASEHOLD_BIN is the server's
// binary. Arguments select files by a part of their name.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
const wanted = process.argv.slice(2);
const files = readdirSync("test").filter((name) => name.endsWith(".test.ts") && (wanted.length === 0 || wanted.some((part) => name.includes(part))));
const programs = readdirSync("test/support").filter((name) => name.endsWith(".program.ts"));
const examples = readdirSync("examples").filter((name) => name.endsWith(".ts"));

// A package.json of its own, so that `import "leasehold"` finds the installed package and not this directory.
rmSync("build/test", { recursive: true, force: true });
mkdirSync("build/test", { recursive: true });
writeFileSync("build/test/package.json", '{ "private": true, "type": "module" }\n');
const [{ filename }] = JSON.parse(execFileSync("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", "build/test"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }));
execFileSync("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${filename}`], { cwd: "build/test", stdio: ["ignore", "ignore", "inherit"] });

const options = { bundle: true, platform: "node", target: "node20", format: "esm", packages: "external", logLevel: "warning", outExtension: { ".js": ".mjs" }, define: { __LEASEHOLD_MUTANT__: '""' } };
await build({ ...options, entryPoints: [...files.map((name) => `test/${name}`), ...programs.map((name) => `test/support/${name}`)], outdir: "build/test", outbase: "test" });
await build({ ...options, entryPoints: examples.map((name) => `examples/${name}`), outdir: "build/test/examples" });
const tests = files.map((name) => `build/test/${name.replace(/\.ts$/, ".mjs")}`);
const run = spawnSync(process.execPath, ["--test", "--test-concurrency=2", "--test-reporter=spec", ...tests], { stdio: "inherit" });
process.exit(run.status ?? 1);
