// The HTTP fence as middleware for Express, and as a plugin for Fastify.

import type { IncomingMessage, ServerResponse } from "node:http";

import { LeaseholdError } from "../errors.js";
import type { HttpFence } from "./http-fence.js";

/** Continues with the next handler. */
export type NextFunction = (error?: unknown) => void;

/** A new holder claims with a POST to this path, below the path where the middleware is mounted. */
const CLAIM_PATH = "/-/claim";
const READS = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);

/** Replies with a problem (RFC 9457). */
function refuse(response: ServerResponse, error: LeaseholdError): void {
  const { code, message, nextStep, fields } = error;
  const status = error.status ?? 500;
  const body = JSON.stringify({ ...fields, type: `urn:leasehold:error:${code}`, title: message, status, detail: message, code, next_step: nextStep });
  const retry = fields.retry_after_ms ? { "retry-after": String(Math.ceil(fields.retry_after_ms / 1000)) } : {};
  response.writeHead(status, { "content-type": "application/problem+json", ...retry });
  response.end(body);
}

function presented(request: IncomingMessage): string | undefined {
  const header = request.headers["lease-token"];
  return Array.isArray(header) ? header.join(",") : header;
}

/** Handles a request. True if it may continue. */
async function gate(fence: HttpFence, request: IncomingMessage, response: ServerResponse): Promise<boolean> {
  const { method = "GET", url = "/" } = request;
  try {
    if (method === "POST" && url.split("?", 1)[0] === CLAIM_PATH) {
      await fence.claim(presented(request));
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ done: true }));
      return false;
    }
    const overrides = Object.keys(request.headers).some((name) => /^x[-_]http[-_]method([-_]override)?$|^x[-_]method[-_]override$/.test(name));
    if (READS.has(method) && !fence.fenceReads && !overrides) return true;
    const inFlight = await fence.admit(presented(request));
    response.once("finish", () => inFlight.end("known"));
    // The caller disconnected before the response was complete: the handler may still run.
    response.once("close", () => inFlight.end(response.writableFinished ? "known" : "unknown"));
    return true;
  } catch (error) {
    if (!(error instanceof LeaseholdError)) throw error;
    refuse(response, error);
    return false;
  }
}

/** Middleware for Express: `app.use("/invoices", expressFence(fence))`. Mount it before body parsers and handlers. */
export function expressFence(fence: HttpFence): (request: IncomingMessage, response: ServerResponse, next: NextFunction) => void {
  return (request, response, next) => {
    gate(fence, request, response).then((mayContinue) => mayContinue && next(), next);
  };
}

/** What this module needs of Fastify. */
interface FastifyLike {
  addHook(name: "onRequest", hook: (request: { raw: IncomingMessage }, reply: { raw: ServerResponse; hijack(): unknown }, done: (error?: Error) => void) => void): unknown;
}

/** Plugin for Fastify: `await app.register(fastifyFence(fence))`. It covers the routes of the instance that registers it. */
export function fastifyFence(fence: HttpFence): (app: unknown, options: unknown, done: (error?: Error) => void) => void {
  const plugin = (app: unknown, _options: unknown, done: (error?: Error) => void): void => {
    (app as FastifyLike).addHook("onRequest", (request, reply, next) => {
      gate(fence, request.raw, reply.raw).then(
        (mayContinue) => {
          if (mayContinue) return next();
          // The response was sent past Fastify.
          reply.hijack();
          next();
        },
        (error: Error) => next(error),
      );
    });
    done();
  };
  // Without this mark, Fastify would apply the hook to routes of the plugin itself only.
  return Object.assign(plugin, { [Symbol.for("skip-override")]: true });
}
