// Options of a client, with their defaults from the environment.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";

import { BootClock, type TestClock } from "./boot-clock.js";
import { milliseconds, type Duration } from "./duration.js";
import { InvalidArgumentError } from "./errors.js";
import type { Credentials } from "./http-connection.js";
import { parseAddresses, type ServerAddress } from "./server-address.js";

/** Certificates, as files in PEM. */
export interface TlsOptions {
  /** CA certificates that verify the servers. */
  ca?: string;
  /** Certificate of this client. */
  cert?: string;
  /** Private key of the certificate. */
  key?: string;
}

/** Options of a client. What is absent is read from the environment, as the command line does. */
export interface ClientOptions {
  /**
   * Addresses of the servers: `HOST:PORT`, `http://…`, `https://…` or `unix:/path`, as a list or with commas. Default:
   * `LEASEHOLD_ADDR`, then `127.0.0.1:7421`.
   */
  servers?: string | readonly string[];
  /** Name shown to others as the holder. Default: host name and process id. */
  holder?: string;
  /** Lifetime of the session after each renewal: how long a crashed process keeps its leases. Default: 30 s. */
  sessionTtl?: Duration;
  /** Time to wait for the reply to a request; an acquire adds its wait. Default: 10 s. */
  requestTimeout?: Duration;
  /** Certificates. Default: `LEASEHOLD_TLS_CA`, `LEASEHOLD_TLS_CERT` and `LEASEHOLD_TLS_KEY`. */
  tls?: TlsOptions;
  /** File with the bearer token of this client, read for each request. Default: `LEASEHOLD_BEARER_FILE`. */
  bearerFile?: string;
  /** Clock of local deadlines, for tests that move time. */
  clock?: TestClock;
}

/** Options, checked. */
export interface ClientConfig {
  readonly servers: readonly ServerAddress[];
  readonly credentials: Credentials;
  readonly holder: string;
  readonly sessionTtlMs: number;
  readonly requestTimeoutMs: number;
  readonly clock: BootClock;
}

/** Checks the options and reads the certificates. Dials nothing. */
export function configure(options: ClientOptions, env: NodeJS.ProcessEnv = process.env): ClientConfig {
  const variable = (name: string): string | undefined => env[name] || undefined;
  const files: TlsOptions = options.tls ?? {};
  const ca = files.ca ?? variable("LEASEHOLD_TLS_CA");
  const cert = files.cert ?? variable("LEASEHOLD_TLS_CERT");
  const key = files.key ?? variable("LEASEHOLD_TLS_KEY");
  const bearerFile = options.bearerFile ?? variable("LEASEHOLD_BEARER_FILE");
  if ((cert === undefined) !== (key === undefined)) {
    const field = cert === undefined ? "tls.cert" : "tls.key";
    throw new InvalidArgumentError(field, `${field} is missing; set tls.cert and tls.key together`, {}, "CONFIG");
  }
  if (cert !== undefined && ca === undefined) {
    throw new InvalidArgumentError("tls.ca", "tls.ca is missing; set tls.ca, tls.cert and tls.key together", {}, "CONFIG");
  }
  const servers = parseAddresses(options.servers ?? variable("LEASEHOLD_ADDR") ?? "127.0.0.1:7421", ca !== undefined);
  if (bearerFile !== undefined) requireProtected(servers);
  const sessionTtlMs = milliseconds(options.sessionTtl ?? 30_000, "sessionTtl");
  if (sessionTtlMs < 100) throw new InvalidArgumentError("sessionTtl", `sessionTtl is ${sessionTtlMs} ms; use at least 100 ms`);
  const requestTimeoutMs = milliseconds(options.requestTimeout ?? 10_000, "requestTimeout");
  if (requestTimeoutMs < 1) throw new InvalidArgumentError("requestTimeout", "requestTimeout is 0; use at least 1 ms");
  const holder = options.holder ?? `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
  if (holder === "") throw new InvalidArgumentError("holder", "holder is empty; name the process");
  return {
    servers,
    credentials: {
      ...(ca === undefined ? {} : { ca: readPem("tls.ca", ca) }),
      ...(cert === undefined ? {} : { cert: readPem("tls.cert", cert) }),
      ...(key === undefined ? {} : { key: readPem("tls.key", key) }),
      ...(bearerFile === undefined ? {} : { bearerFile }),
    },
    holder,
    sessionTtlMs,
    requestTimeoutMs,
    clock: options.clock ?? new BootClock(),
  };
}

function readPem(field: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new InvalidArgumentError(field, `cannot read ${field} ${file}: ${(error as Error).message}`, {}, "CONFIG");
  }
}

/** A bearer token is a secret: it is sent over TLS, a unix socket or loopback only. */
function requireProtected(servers: readonly ServerAddress[]): void {
  const isLoopback = (host: string): boolean => host === "localhost" || host === "::1" || /^127\./.test(host);
  const open = servers.find((server) => server.kind === "http" && !isLoopback(server.host));
  if (!open) return;
  throw new InvalidArgumentError("bearerFile", `a bearer token would be sent to ${open.text} without TLS; use https://`, {}, "CONFIG");
}
