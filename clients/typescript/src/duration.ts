// Durations of options: a number of milliseconds, or a text such as "30s".

import { InvalidArgumentError } from "./errors.js";

/** A duration: a number of milliseconds, or a text with a unit (`ms`, `s`, `m`, `h` or `d`), such as `"30s"`. */
export type Duration = number | string;

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of a duration. `field` is named in the error for an invalid value. */
export function milliseconds(duration: Duration, field: string): number {
  const invalid = (why: string): InvalidArgumentError =>
    new InvalidArgumentError(field, `${field} is ${JSON.stringify(duration)}, ${why}`);
  if (typeof duration === "number") {
    if (!Number.isFinite(duration) || duration < 0) throw invalid("not a number of milliseconds from 0");
    if (duration > Number.MAX_SAFE_INTEGER) throw invalid("too long");
    return Math.round(duration);
  }
  const match = typeof duration === "string" ? /^(\d+)(ms|s|m|h|d)$/.exec(duration.trim()) : null;
  if (!match) throw invalid('not a duration; write milliseconds as a number, or a text such as "30s"');
  const value = Number(match[1]) * (UNITS[match[2] ?? ""] ?? 0);
  if (!Number.isSafeInteger(value)) throw invalid("too long");
  return value;
}

/** A duration as the server reads it. */
export function durationText(ms: number): string {
  return `${Math.round(ms)}ms`;
}
