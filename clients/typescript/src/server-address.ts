// Addresses of servers: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH.

import { InvalidArgumentError } from "./errors.js";

/** Where a server listens. */
export interface ServerAddress {
  /** The address as it is compared with the leader that a server names. */
  readonly text: string;
  readonly kind: "http" | "https" | "unix";
  /** Host name or IP address; the path for a unix socket. */
  readonly host: string;
  readonly port: number;
}

/** Parses one address. Without a scheme, `tls` decides between http and https. */
export function parseAddress(text: string, tls: boolean): ServerAddress {
  const invalid = (why: string): InvalidArgumentError =>
    new InvalidArgumentError("servers", `servers contains ${JSON.stringify(text)}, ${why}`);
  const trimmed = text.trim();
  if (trimmed.startsWith("unix:")) {
    const path = trimmed.slice("unix:".length).replace(/^\/\/(?=\/)/, "");
    if (!path) throw invalid("which has no path; write unix:/run/leasehold.sock");
    return { text: `unix:${path}`, kind: "unix", host: path, port: 0 };
  }
  const scheme = /^([a-z]+):\/\//.exec(trimmed)?.[1];
  if (scheme && scheme !== "http" && scheme !== "https") throw invalid(`with the unknown scheme ${scheme}; use http or https`);
  const kind = scheme === undefined ? (tls ? "https" : "http") : (scheme as "http" | "https");
  if (kind === "http" && tls) throw invalid("without TLS, but certificates are configured; write https://");
  let url: URL;
  try {
    url = new URL(`${kind}://${trimmed.replace(/^[a-z]+:\/\//, "")}`);
  } catch {
    throw invalid("which is not HOST:PORT");
  }
  if (!url.hostname || (url.pathname !== "/" && url.pathname !== "") || url.search || url.username) {
    throw invalid("which is not HOST:PORT");
  }
  const written = /:(\d+)\/?$/.exec(trimmed.replace(/^[a-z]+:\/\//, ""))?.[1];
  if (written === undefined) throw invalid("which has no port; write HOST:PORT");
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const port = Number(written);
  return { text: `${url.hostname}:${port}`, kind, host, port };
}

/** Parses a list, or a text with commas. */
export function parseAddresses(servers: string | readonly string[], tls: boolean): ServerAddress[] {
  const list = (typeof servers === "string" ? servers.split(",") : [...servers]).filter((text) => text.trim() !== "");
  if (list.length === 0) throw new InvalidArgumentError("servers", "servers is empty; name at least one HOST:PORT");
  return list.map((text) => parseAddress(text, tls));
}

/** Whether a leader that a server named is this address. */
export function isSameServer(address: ServerAddress, leader: string): boolean {
  return leader.replace(/^https?:\/\//, "").replace(/\/$/, "") === address.text;
}
