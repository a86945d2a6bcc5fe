// Connections to one server: HTTP/1.1 with keep-alive over TCP, TLS or a unix socket.

import { readFile } from "node:fs/promises";
import * as http from "node:http";
import * as https from "node:https";

import type { ServerAddress } from "./server-address.js";

/** Credentials as plain values, so that the renewal thread can receive them. */
export interface Credentials {
  /** CA certificates, PEM. */
  readonly ca?: string;
  /** Certificate of this client, PEM. */
  readonly cert?: string;
  /** Private key of the certificate, PEM. */
  readonly key?: string;
  /** File with the bearer token, read for each request. */
  readonly bearerFile?: string;
}

/** One HTTP request. */
export interface Exchange {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Path and query, percent-encoded. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Called when the server may have received the request, for each attempt. */
  readonly onSent?: () => void;
}

/** Longest response that is read. */
const MAX_REPLY_BYTES = 64 << 20;

/** One HTTP response, complete. */
export interface ExchangeReply {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

/** A request got no complete response. */
export class TransportError extends Error {
  /** Whether the server may have received the request. */
  readonly maybeSent: boolean;

  constructor(message: string, maybeSent: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = "TransportError";
    this.maybeSent = maybeSent;
  }
}

/** Idle connections and long polls of one server. */
export class HttpConnection {
  readonly address: ServerAddress;
  readonly #credentials: Credentials;
  readonly #agent: http.Agent;

  constructor(address: ServerAddress, credentials: Credentials) {
    this.address = address;
    this.#credentials = credentials;
    const options = { keepAlive: true, keepAliveMsecs: 10_000, maxFreeSockets: 64 };
    const { ca, cert, key } = credentials;
    this.#agent =
      address.kind === "https"
        ? new https.Agent({ ...options, minVersion: "TLSv1.3", ...defined({ ca, cert, key }) })
        : new http.Agent(options);
  }

  /** Closes idle connections, and ends running requests. */
  close(): void {
    this.#agent.destroy();
  }

  /** Sends a request and reads the whole response. Rejects with a {@link TransportError}, or with the reason of the signal. */
  async exchange(exchange: Exchange, timeoutMs: number, signal?: AbortSignal, onWritten?: () => void): Promise<ExchangeReply> {
    const response = await this.open(exchange, timeoutMs, signal, onWritten);
    const chunks: Buffer[] = [];
    let length = 0;
    // The request's timer and signal stay armed until the body is complete, and destroy the response.
    try {
      for await (const chunk of response) {
        chunks.push(chunk as Buffer);
        length += (chunk as Buffer).length;
        if (length > MAX_REPLY_BYTES) throw new RangeError("the response is longer than 64 MiB");
      }
    } catch (error) {
      signal?.throwIfAborted();
      throw new TransportError(`connection to ${this.address.text} broke in a response`, true, error);
    }
    return { status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks).toString("utf8") };
  }

  /**
   * Sends a request and returns its response when the head has arrived. `timeoutMs` covers the body too; 0 is no limit. `onWritten` is
   * called when the request was handed to the connection.
   */
  async open(exchange: Exchange, timeoutMs: number, signal?: AbortSignal, onWritten?: () => void): Promise<http.IncomingMessage> {
    const headers = { ...exchange.headers, ...(await this.#authorization()) };
    signal?.throwIfAborted();
    return await new Promise((resolve, reject) => {
      let maybeSent = false;
      const onSent = (): void => {
        maybeSent = true;
        exchange.onSent?.();
      };
      let timer: NodeJS.Timeout | undefined;
      const request = this.#request(exchange, headers);
      const fail = (error: unknown): void => reject(error);
      const onAbort = (): void => {
        fail(signal?.reason);
        request.destroy(new Error("aborted"));
      };
      const settle = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      };
      if (timeoutMs > 0) {
        timer = setTimeout(() => {
          fail(new TransportError(`no response from ${this.address.text} within ${Math.round(timeoutMs)} ms`, maybeSent));
          request.destroy(new Error("timed out"));
        }, timeoutMs);
      }
      signal?.addEventListener("abort", onAbort, { once: true });
      request.on("socket", (socket) => {
        // A reused connection, or one that is established by now, can carry the request at once.
        if (!socket.connecting) onSent();
        else socket.once(this.address.kind === "https" ? "secureConnect" : "connect", onSent);
      });
      if (onWritten) request.once("finish", onWritten);
      request.on("error", (error) => {
        settle();
        fail(new TransportError(`cannot reach ${this.address.text}: ${error.message}`, maybeSent, error));
      });
      request.on("response", (response) => {
        response.on("close", settle);
        resolve(response);
      });
      request.end(exchange.body);
    });
  }

  #request(exchange: Exchange, headers: Record<string, string>): http.ClientRequest {
    const { kind, host, port } = this.address;
    const body = exchange.body === undefined ? {} : { "content-type": "application/json", "content-length": String(Buffer.byteLength(exchange.body)) };
    const options: https.RequestOptions = {
      method: exchange.method,
      path: exchange.path,
      headers: { ...(kind === "unix" ? { host: "localhost" } : {}), ...body, ...headers },
      agent: this.#agent,
      ...(kind === "unix" ? { socketPath: host } : { host, port }),
    };
    return kind === "https" ? https.request(options) : http.request(options);
  }

  async #authorization(): Promise<Record<string, string>> {
    const file = this.#credentials.bearerFile;
    if (file === undefined) return {};
    try {
      return { authorization: `Bearer ${(await readFile(file, "utf8")).trim()}` };
    } catch (error) {
      throw new TransportError(`cannot read the bearer token file ${file}`, false, error);
    }
  }
}

function defined<T extends object>(values: T): Partial<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<T>;
}
