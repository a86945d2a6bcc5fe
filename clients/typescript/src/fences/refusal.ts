// Refusals of fences, as the errors of this client.

import { errorFromProblem, type Code, type LeaseholdError, type ProblemFields } from "../errors.js";

/** Codes by SQLSTATE, as the fence of PostgreSQL raises them. */
const SQLSTATES: Readonly<Record<string, Code>> = {
  LH001: "STALE_TOKEN",
  LH002: "TOKEN_INVALID",
  LH003: "TOKEN_IMPLAUSIBLE",
  LH004: "WRONG_CLUSTER",
  LH005: "STORAGE_FAILED",
  LH006: "UNAVAILABLE",
  LH007: "CONFIG",
  LH008: "UNSUPPORTED_VERSION",
  LH009: "CONFLICT",
  LH010: "NOT_ADOPTED",
};

const NEXT_STEPS: Partial<Record<Code, string>> = {
  STALE_TOKEN: "Stop writing. The lease of this token has ended.",
  NOT_ADOPTED: "Adopt the incarnation at the target if the restore was intended.",
  TOKEN_INVALID: "Pass the token text from the grant unchanged.",
  TOKEN_IMPLAUSIBLE: "Compare the clocks, and find the origin of the token.",
  WRONG_CLUSTER: "Send the request to the cluster that issued the token.",
  STORAGE_FAILED: "Arm the fence, or re-arm it after a restore.",
  UNAVAILABLE: "Retry the same request later.",
};

const REDIS_CODES: ReadonlySet<string> = new Set([
  "STALE_TOKEN",
  "TOKEN_INVALID",
  "TOKEN_IMPLAUSIBLE",
  "WRONG_CLUSTER",
  "STORAGE_FAILED",
  "NOT_ADOPTED",
  "CONFLICT",
  "INVALID_ARGUMENT",
  "UNSUPPORTED_VERSION",
]);

/** Values of a detail such as `presented=33 mark=34`. */
function valuesOf(text: string): ProblemFields {
  const fields: Record<string, string> = {};
  for (const [, key, value] of text.matchAll(/\b([a-z_]+)=([^\s,]+)/g)) if (key && value) fields[key] = value.replace(/^0+(?=\d)/, "");
  return fields as ProblemFields;
}

/**
 * The error of a fence in PostgreSQL, from any driver that exposes the SQLSTATE as `code` (node-postgres, knex, Drizzle, postgres.js) or
 * as `meta.code` (Prisma); undefined for other errors.
 */
export function postgresRefusal(error: unknown): LeaseholdError | undefined {
  for (let at = error, depth = 0; typeof at === "object" && at !== null && depth < 5; at = (at as Error).cause, depth++) {
    const { code, detail, message, hint, meta } = at as { code?: string; detail?: string; message?: string; hint?: string; meta?: { code?: string; message?: string } };
    const state = [code, meta?.code].find((candidate) => candidate !== undefined && candidate in SQLSTATES);
    const mapped = state === undefined ? undefined : SQLSTATES[state];
    if (!mapped) continue;
    const text = meta?.message ?? message ?? mapped;
    return errorFromProblem({ ...valuesOf(`${detail ?? ""} ${text}`), code: mapped, detail: text, next_step: hint ?? NEXT_STEPS[mapped] ?? "See the detail." }, error);
  }
  return undefined;
}

/** The error of a fence in Redis, whose first word is the code; undefined for other errors. */
export function redisRefusal(error: unknown): LeaseholdError | undefined {
  const message = error instanceof Error ? error.message : "";
  const [code = ""] = message.split(" ", 1);
  if (/Function not found|unknown command.*FCALL/i.test(message)) {
    return errorFromProblem({ code: "STORAGE_FAILED", detail: message, next_step: "Install the functions: `leasehold fence arm redis://…`." }, error);
  }
  if (!REDIS_CODES.has(code)) return undefined;
  return errorFromProblem({ ...valuesOf(message), code, detail: message.replace(/ \((.*)\)$/, ": $1"), next_step: NEXT_STEPS[code as Code] ?? "See the detail." }, error);
}
