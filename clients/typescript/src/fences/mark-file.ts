// The mark of an HTTP fence in a file: the highest token number it has admitted, durable before it counts.

import { randomUUID } from "node:crypto";
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, renameSync, unlinkSync, writeSync } from "node:fs";
import { dirname } from "node:path";

import { errorFromProblem, type LeaseholdError } from "../errors.js";

/** What the file contains. */
export interface Mark {
  readonly version: 1;
  readonly cluster: string;
  readonly resource: string;
  readonly slot: number;
  /** Highest admitted number, as decimal text. */
  readonly number: string;
  /** Requests may be in flight: a process that finds this at its start does not know their outcome. */
  readonly begun: boolean;
}

function storageFailed(reason: string, detail: string, cause?: unknown): LeaseholdError {
  const next = reason === "missing" ? "If nothing was written yet, arm the fence." : "Restore the file, then arm the fence again.";
  return errorFromProblem({ code: "STORAGE_FAILED", status: 500, reason, detail, next_step: next }, cause);
}

/** Writes a file so that either the old or the new content survives a crash. Synchronous: nothing else of the gate runs meanwhile. */
function replaceDurably(path: string, text: string, flags: "w" | "wx"): void {
  const temporary = flags === "wx" ? path : `${path}.new`;
  const file = openSync(temporary, flags, 0o600);
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  if (temporary !== path) renameSync(temporary, path);
  const directory = openSync(dirname(path), "r");
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

/** Creates the mark file of a resource; an existing one is kept. Returns whether it was created. */
export function armMark(path: string, id: { cluster: string; resource: string; slot?: number }): boolean {
  const mark: Mark = { version: 1, cluster: id.cluster, resource: id.resource, slot: id.slot ?? 0, number: "0", begun: false };
  try {
    replaceDurably(path, JSON.stringify(mark) + "\n", "wx");
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw storageFailed("unreadable", `cannot create the mark file ${path}`, error);
  }
}

/** An open mark file. One process at a time has it open. */
export class MarkFile {
  readonly path: string;
  readonly #owner = `${process.pid} ${startOf(process.pid) ?? ""} ${randomUUID()}`;
  #mark: Mark;

  constructor(path: string) {
    this.path = path;
    this.#lock();
    this.#mark = this.#read();
  }

  get mark(): Mark {
    return this.#mark;
  }

  /** Fails if another process has taken the file. */
  requireOwner(): void {
    if (this.#lockText() === this.#owner) return;
    throw errorFromProblem({ code: "CONFLICT", status: 409, subject: this.path, detail: "another process has taken the mark file", next_step: "Restart this process; run one process per mark file." });
  }

  /** Stores a new mark durably. */
  store(change: Partial<Pick<Mark, "number" | "begun">>): void {
    this.requireOwner();
    const mark = { ...this.#mark, ...change };
    try {
      replaceDurably(this.path, JSON.stringify(mark) + "\n", "w");
    } catch (error) {
      throw storageFailed("unreadable", `cannot write the mark file ${this.path}`, error);
    }
    this.#mark = mark;
  }

  close(): void {
    if (this.#lockText() === this.#owner) unlinkSync(`${this.path}.lock`);
  }

  #read(): Mark {
    let text: string;
    try {
      text = readFileSync(this.path, "utf8");
    } catch (error) {
      this.close();
      throw storageFailed("missing", `no mark is stored in ${this.path}`, error);
    }
    try {
      const mark = JSON.parse(text) as Mark;
      if (mark.version === 1 && /^\d+$/.test(mark.number) && typeof mark.cluster === "string") return mark;
    } catch {
      // Reported below.
    }
    this.close();
    throw storageFailed("unreadable", `${this.path} contains no mark`);
  }

  #lockText(): string | undefined {
    return textOf(`${this.path}.lock`);
  }

  /** Removes the lock of an owner that is gone. False if another process has replaced it meanwhile. */
  #removeLock(found: string | undefined): boolean {
    const aside = `${this.path}.lock.${randomUUID()}`;
    try {
      // Moved before it is compared: only one process moves it, and a lock that is not the one that was read is put back.
      renameSync(`${this.path}.lock`, aside);
    } catch {
      return true;
    }
    const isSame = textOf(aside) === found;
    if (!isSame) linkSync(aside, `${this.path}.lock`);
    unlinkSync(aside);
    return isSame;
  }

  #lock(): void {
    for (let attempt = 0; attempt < 2; attempt++) {
      try {
        const file = openSync(`${this.path}.lock`, "wx", 0o600);
        writeSync(file, this.#owner);
        closeSync(file);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw storageFailed("unreadable", `cannot lock ${this.path}`, error);
        const found = this.#lockText();
        const [pid = "", start = ""] = found?.split(" ") ?? [];
        if (startOf(Number(pid)) === start && start !== "") break;
        if (!this.#removeLock(found)) break;
      }
    }
    if (this.#lockText() === this.#owner) return;
    throw errorFromProblem({ code: "CONFLICT", status: 409, subject: this.path, detail: `another process has ${this.path} open`, next_step: "Stop it first; run one process per mark file." });
  }
}

/** Reads a file that may be missing. */
function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** When a process started, so that a reused process id is not taken for it. Linux; elsewhere whether it runs. */
function startOf(pid: number): string | undefined {
  try {
    if (process.platform !== "linux") return process.kill(pid, 0) ? "running" : undefined;
    return readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ")[19];
  } catch {
    return undefined;
  }
}
