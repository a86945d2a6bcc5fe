// Server-sent events: reads a stream and splits it into events.

import type { HttpConnection } from "./http-connection.js";
import { problemOf } from "./server-pool.js";
import { errorFromProblem } from "./errors.js";

/** One event. */
export interface StreamEvent {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: Record<string, unknown>;
}

/** Without a line for this long, the stream is dead: the server sends a comment every 10 s. */
const SILENCE_MS = 25_000;
const MAX_EVENT_BYTES = 1 << 20;

/** Splits text into events. */
export class EventParser {
  #buffer = "";

  /** The events that are complete with this text. */
  push(text: string): StreamEvent[] {
    this.#buffer += text.replaceAll("\r\n", "\n");
    if (this.#buffer.length > MAX_EVENT_BYTES) throw new RangeError("an event of the server is longer than 1 MiB");
    const events: StreamEvent[] = [];
    for (let end = this.#buffer.indexOf("\n\n"); end >= 0; end = this.#buffer.indexOf("\n\n")) {
      const event = parseEvent(this.#buffer.slice(0, end));
      this.#buffer = this.#buffer.slice(end + 2);
      if (event) events.push(event);
    }
    return events;
  }
}

function parseEvent(block: string): StreamEvent | undefined {
  let event = "message";
  let id: string | undefined;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    else if (field === "id") id = value;
    else if (field === "data") data.push(value);
  }
  if (data.length === 0) return undefined;
  try {
    const parsed: unknown = JSON.parse(data.join("\n"));
    return { event, id, data: typeof parsed === "object" && parsed !== null ? (parsed as Record<string, unknown>) : {} };
  } catch {
    return { event, id, data: {} };
  }
}

/**
 * Opens a stream and yields its events until it ends. `onOpen` is called when the server has accepted. Rejects with the server's
 * problem, or a TransportError.
 */
export async function* readEvents(
  connection: HttpConnection,
  path: string,
  headers: Record<string, string>,
  signal: AbortSignal,
  onOpen: () => void,
): AsyncGenerator<StreamEvent, void, undefined> {
  const open = new AbortController();
  const onAbort = (): void => open.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  let silence = setTimeout(() => open.abort(new Error("no response")), 5_000);
  try {
    const exchange = { method: "GET", path, headers: { ...headers, accept: "text/event-stream" } } as const;
    const response = await connection.open(exchange, 0, open.signal);
    response.setEncoding("utf8");
    if (response.statusCode !== 200) {
      let body = "";
      for await (const chunk of response) body += chunk as string;
      throw errorFromProblem(problemOf({ status: response.statusCode ?? 0, body }));
    }
    onOpen();
    const parser = new EventParser();
    const arm = (): void => {
      clearTimeout(silence);
      silence = setTimeout(() => open.abort(new Error("the event stream is silent")), SILENCE_MS);
    };
    arm();
    for await (const chunk of response) {
      arm();
      yield* parser.push(chunk as string);
    }
  } finally {
    clearTimeout(silence);
    signal.removeEventListener("abort", onAbort);
    open.abort(new Error("closed"));
  }
}
