// Builds the package: dist/esm and dist/cjs with types, and build/mutants, a build with faults for the tests.

import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);

const options = { bundle: true, platform: "node", target: "node20", charset: "utf8", logLevel: "warning" };
// The published package has no faults: the text is empty, and the code behind it is removed.
const builds = [
  { define: { __LEASEHOLD_MUTANT__: '""' }, minifySyntax: true, outputs: { esm: "dist/esm", cjs: "dist/cjs" } },
  { define: { __LEASEHOLD_MUTANT__: "globalThis.leaseholdMutant" }, minifySyntax: false, outputs: { esm: "build/mutants" } },
];

/** The renewal thread as one text, which the package starts with `eval`. */
async function bundleWorker(define, minifySyntax) {
  const result = await build({ ...options, define, minifySyntax, entryPoints: ["src/renewal/worker-entry.ts"], format: "cjs", write: false });
  mkdirSync("src/generated", { recursive: true });
  const text = "// The bundled renewal thread. Written by scripts/build.mjs; not committed.\n\n" +
    `export const WORKER_SOURCE: string = ${JSON.stringify(result.outputFiles[0].text)};\n`;
  writeFileSync("src/generated/worker-source.ts", text);
}

rmSync("dist", { recursive: true, force: true });
rmSync("build/mutants", { recursive: true, force: true });
for (const { define, minifySyntax, outputs } of builds.reverse()) {
  await bundleWorker(define, minifySyntax);
  for (const [format, outdir] of Object.entries(outputs)) {
    await build({ ...options, define, minifySyntax, entryPoints: ["src/index.ts"], format, outfile: `${outdir}/index.js`, sourcemap: false });
  }
}
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
execFileSync("node_modules/.bin/tsc", ["-p", "tsconfig.json"], { stdio: "inherit" });
rmSync("dist/esm/generated/worker-source.d.ts", { force: true });
rmSync("dist/esm/renewal/worker-entry.d.ts", { force: true });
for (const entry of readdirSync("dist/esm")) if (entry !== "index.js") cpSync(`dist/esm/${entry}`, `dist/cjs/${entry}`, { recursive: true });
for (const license of ["LICENSE-APACHE", "LICENSE-MIT"]) copyFileSync(`../../${license}`, license);
