// The HTTP fence as middleware for Express, and as a plugin for Fastify.

import type { IncomingMessage, ServerResponse } from "node:http";

import { LeaseholdError } from "../errors.js";
import type { HttpFence } from "./http-fence.js";
import { CLAIM_PATH } from "./presented-token.js";

/** Continues with the next handler. */
export type NextFunction = (error?: unknown) => void;

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

/** Handles a request. True if it may continue. `prefix` is what the path contains before that of the claim. */
async function gate(fence: HttpFence, request: IncomingMessage, response: ServerResponse, prefix: string): Promise<boolean> {
  const { method = "GET", url = "/" } = request;
  try {
    if (method === "POST" && url.split("?", 1)[0] === prefix + CLAIM_PATH) {
      await fence.claim(presented(request));
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ done: true }));
      return false;
    }
    const overrides = Object.keys(request.headers).some((name) => /^x[-_]http[-_]method([-_]override)?$|^x[-_]method[-_]override$/.test(name));
    if (READS.has(method) && !fence.fenceReads && !overrides) return true;
    const inFlight = await fence.admit(presented(request));
    if (response.destroyed) {
      // The caller disconnected while it waited: no handler runs, and no event would end the request.
      inFlight.end("known");
      return false;
    }
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
    gate(fence, request, response, "").then((mayContinue) => mayContinue && next(), next);
  };
}

/** What this module needs of Fastify. */
interface FastifyLike {
  readonly prefix: string;
  hasRoute(route: { method: string; url: string }): boolean;
  post(path: string, handler: () => Promise<never>): unknown;
  addHook(name: "onRequest", hook: (request: { raw: IncomingMessage }, reply: { raw: ServerResponse; hijack(): unknown }, done: (error?: Error) => void) => void): unknown;
}

/** Plugin for Fastify: `await app.register(fastifyFence(fence))`. It covers the routes of the instance that registers it. */
export function fastifyFence(fence: HttpFence): (app: unknown, options: unknown, done: (error?: Error) => void) => void {
  const plugin = (instance: unknown, _options: unknown, done: (error?: Error) => void): void => {
    const app = instance as FastifyLike;
    // Fastify runs hooks for its routes only. The hook replies to this one, so its handler never runs.
    const refuseClaim = (): Promise<never> => Promise.reject(new Error("the fence was not asked"));
    if (!app.hasRoute({ method: "POST", url: app.prefix + CLAIM_PATH })) app.post(CLAIM_PATH, refuseClaim);
    app.addHook("onRequest", (request, reply, next) => {
      gate(fence, request.raw, reply.raw, app.prefix).then(
        (mayContinue) => {
          if (mayContinue) return next();
          // The response was sent past Fastify, or there is no one to send it to.
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
