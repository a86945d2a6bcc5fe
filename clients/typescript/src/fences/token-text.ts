// Parses a fencing token, for a fence that checks tokens in this process (docs/reference/token-format.md).

import { createHash } from "node:crypto";

import { errorFromProblem, type LeaseholdError } from "../errors.js";

/** The parts of a token. */
export interface TokenParts {
  readonly cluster: string;
  readonly incarnation: string;
  readonly resourceHash: string;
  readonly scope: string;
  readonly slot: number;
  readonly number: bigint;
}

const TOKEN = /^lh([12])-([0-9a-f]{16})-([0-9a-f]{8})-([0-9a-f]{16})-([wru])([0-9a-f]{8})-(\d{19})-([0-9a-f]{8})(-[\w-]{85}[AQgw])?$/;
/** Numbers count milliseconds from here, times 2^22. */
const EPOCH_MS = 1_735_689_600_000n;
const DAY_MS = 86_400_000n;

/** Hash of a resource's name, as tokens contain it. */
export function resourceHash(name: string): string {
  return createHash("sha256").update(name, "utf8").digest("hex").slice(0, 16);
}

function invalid(reason: string, detail: string): LeaseholdError {
  return errorFromProblem({ code: "TOKEN_INVALID", status: 400, reason, detail, next_step: "Pass the token text from the grant unchanged." });
}

/** Parses a token text. Throws InvalidTokenError with the reason. */
export function parseToken(text: string | undefined): TokenParts {
  if (text === undefined || text === "") throw invalid("absent", "no token was presented");
  const match = TOKEN.exec(text);
  const [, version, cluster, incarnation, hash, scope, slot, digits, checksum, seal] = match ?? [];
  if (!match || !digits || (version === "1") !== (seal === undefined)) throw invalid("shape", "the text is not a token");
  if (version === "1" && crc32(text.slice(0, 76)) !== checksum) throw invalid("checksum", "the checksum of the token does not match");
  const number = BigInt(digits);
  if (number === 0n) throw invalid("zero", "the number of the token is zero");
  if (number >= 2n ** 63n) throw invalid("too_large", "the number of the token is too large");
  return { cluster: cluster ?? "", incarnation: incarnation ?? "", resourceHash: hash ?? "", scope: scope ?? "", slot: parseInt(slot ?? "", 16), number };
}

/** Whether a number is further ahead than clock differences explain. */
export function isImplausible(number: bigint, wallMs: number): boolean {
  return number > (BigInt(Math.floor(wallMs)) - EPOCH_MS + DAY_MS) << 22n;
}

function crc32(text: string): string {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text, "latin1")) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ((crc ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}
