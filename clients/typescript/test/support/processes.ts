// Real servers for tests: Leasehold, PostgreSQL and Redis, each in a temporary directory, stopped by process id.

import { execFileSync, spawn, type ChildProcess, type SpawnOptions } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The server's binary. Tests without it fail; they are never skipped. */
export function binary(): string {
  const path = process.env["LEASEHOLD_BIN"];
  if (!path) throw new Error("LEASEHOLD_BIN is not set; build the server and set it to the path of `leasehold`");
  return path;
}

const children = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});

export function start(command: string, args: readonly string[], options: SpawnOptions = {}): ChildProcess {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  children.add(child);
  child.on("exit", () => children.delete(child));
  return child;
}

export async function stop(child: ChildProcess, signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGCONT");
  child.kill(signal);
  await ended;
}

export function temporaryDirectory(): string {
  return mkdtempSync(join(tmpdir(), "leasehold-ts-"));
}

/** Waits for a condition, with a generous limit. */
export async function until<T>(what: string, ready: () => T | undefined | false | Promise<T | undefined | false>, limitMs = 30_000): Promise<T> {
  const end = performance.now() + limitMs;
  for (;;) {
    const value = await ready();
    if (value !== undefined && value !== false) return value;
    if (performance.now() > end) throw new Error(`${what} did not happen within ${limitMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function lineOf(child: ChildProcess, pattern: RegExp): Promise<RegExpExecArray> {
  let text = "";
  return await new Promise((resolve, reject) => {
    const read = (chunk: Buffer): void => {
      text += chunk.toString();
      const match = pattern.exec(text);
      if (match) resolve(match);
    };
    child.stderr?.on("data", read);
    child.stdout?.on("data", read);
    child.on("exit", () => reject(new Error(`the process ended: ${text}`)));
    child.on("error", reject);
  });
}

/** A Leasehold server with its journal in memory, or in `data`. */
export class LeaseholdServer {
  readonly address: string;
  readonly cluster: string;
  readonly child: ChildProcess;

  private constructor(child: ChildProcess, address: string, cluster: string) {
    this.child = child;
    this.address = address;
    this.cluster = cluster;
  }

  static async start(options: { data?: string; listen?: string; args?: readonly string[] } = {}): Promise<LeaseholdServer> {
    const journal = options.data === undefined ? ["--ephemeral"] : ["--data", options.data, "--socket", ""];
    const child = start(binary(), ["serve", ...journal, "--listen", options.listen ?? "127.0.0.1:0", ...(options.args ?? [])]);
    const [, address, cluster] = await lineOf(child, /serving on (127\.0\.0\.1:\d+).*cluster ([0-9a-f]{16})/);
    return new LeaseholdServer(child, address ?? "", cluster ?? "");
  }

  async stop(): Promise<void> {
    await stop(this.child);
  }

  /** Runs the command line against this server. */
  run(...args: string[]): string {
    return execFileSync(binary(), ["--addr", this.address, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

function postgresProgram(name: string): string {
  const root = "/usr/lib/postgresql";
  const version = readdirSync(root).sort((a, b) => Number(b) - Number(a))[0];
  return join(root, version ?? "", "bin", name);
}

/** A PostgreSQL server on a unix socket. PostgreSQL refuses root, so it runs as the user postgres. */
export class PostgresServer {
  readonly directory: string;
  readonly #child: ChildProcess;

  private constructor(directory: string, child: ChildProcess) {
    this.directory = directory;
    this.#child = child;
  }

  static async start(): Promise<PostgresServer> {
    const directory = temporaryDirectory();
    const user: { uid?: number; gid?: number } = {};
    if (process.getuid?.() === 0) {
      user.uid = Number(execFileSync("id", ["-u", "postgres"], { encoding: "utf8" }));
      user.gid = Number(execFileSync("id", ["-g", "postgres"], { encoding: "utf8" }));
      chownSync(directory, user.uid, user.gid);
    }
    chmodSync(directory, 0o700);
    const data = join(directory, "data");
    const initialize = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=leasehold", "-D", data];
    execFileSync(postgresProgram("initdb"), initialize, { ...user, cwd: directory, stdio: "pipe" });
    const child = start(postgresProgram("postgres"), ["-D", data, "-k", directory, "-h", "", "-c", "max_connections=30"], { ...user, cwd: directory });
    await lineOf(child, /database system is ready to accept connections/);
    return new PostgresServer(directory, child);
  }

  /** Connection parameters of node-postgres. */
  get config(): { host: string; user: string; database: string } {
    return { host: this.directory, user: "leasehold", database: "postgres" };
  }

  /** Runs statements with psql. */
  psql(...args: string[]): string {
    const connection = ["-h", this.directory, "-U", "leasehold", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-qAt"];
    return execFileSync("psql", [...connection, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await stop(this.#child, "SIGQUIT");
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** A Redis server on a unix socket. */
export class RedisServer {
  readonly socket: string;
  readonly #directory: string;
  readonly #child: ChildProcess;

  private constructor(directory: string, socket: string, child: ChildProcess) {
    this.#directory = directory;
    this.socket = socket;
    this.#child = child;
  }

  static async start(): Promise<RedisServer> {
    const directory = temporaryDirectory();
    const socket = join(directory, "redis.sock");
    const child = start("redis-server", ["--port", "0", "--unixsocket", socket, "--dir", directory, "--save", "", "--appendonly", "yes"]);
    await until("Redis accepts connections", () => new Promise<boolean>((resolve) => {
      const attempt = connect(socket, () => { attempt.destroy(); resolve(true); }).on("error", () => resolve(false));
    }));
    return new RedisServer(directory, socket, child);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await stop(this.#child);
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
