// Fenced writes to Redis: check, mark and command are one step of the server.
//
// The server must have the functions of the fence (docs/how-to/fence/redis.md); `leasehold fence arm redis://…` installs them.

import { InvalidTokenError } from "../errors.js";
import { presentedToken, type TokenSource } from "./presented-token.js";
import { redisRefusal } from "./refusal.js";

/** What this module needs of a client of ioredis; a `Redis` and a `Cluster` have it. */
export interface RedisCaller {
  call(command: string, ...args: (string | Buffer | number)[]): Promise<unknown>;
}

/** Options of a fence in Redis. */
export interface RedisFenceOptions {
  /** Hash tag of the keys that the lease guards. Default: the name of the resource. All holders must use the same tag. */
  hashTag?: string;
}

/** Result of a numbered write. */
export type AppliedOnce = { readonly applied: true; readonly reply: unknown } | { readonly applied: false; readonly last: string };

/** Fence of the keys that one lease guards. */
export class RedisFence {
  readonly #source: TokenSource;
  /** Key of the mark. */
  readonly mark: string;

  constructor(lease: TokenSource, options: RedisFenceOptions = {}) {
    this.#source = lease;
    const tag = options.hashTag ?? lease.resource;
    const parts = /^lh[12]-[0-9a-f]{16}-[0-9a-f]{8}-([0-9a-f]{16})-[wru]([0-9a-f]{8})-/.exec(lease.token);
    if (!parts || tag === undefined) {
      const why = parts ? "the lease has no resource; pass hashTag" : "the text is not a token";
      throw new InvalidTokenError("TOKEN_INVALID", why, "Pass the token text from the grant unchanged.");
    }
    this.mark = `leasehold:{${tag}}:${parts[1]}:${parts[2]}`;
  }

  /** Claims the fence for this holder, before it reads anything. */
  async claim(redis: RedisCaller): Promise<void> {
    await this.#call(redis, "leasehold_claim", [], [presentedToken(this.#source)]);
  }

  /**
   * Runs a command if the token is current. `keys` are all keys of the command.
   *
   * ```ts
   * await fence.write(redis, ["{jobs/settle}:paid:7"], "SET", "{jobs/settle}:paid:7", "1200");
   * ```
   */
  async write(redis: RedisCaller, keys: readonly string[], ...command: [string, ...(string | Buffer | number)[]]): Promise<unknown> {
    return await this.#call(redis, "leasehold_write", keys, [presentedToken(this.#source), "", ...command]);
  }

  /** Like {@link RedisFence.write}, at most once per sequence. Number the writes of one lease in ascending order, one at a time. */
  async writeOnce(redis: RedisCaller, sequence: bigint | number, keys: readonly string[], ...command: [string, ...(string | Buffer | number)[]]): Promise<AppliedOnce> {
    const reply = await this.#call(redis, "leasehold_write", keys, [presentedToken(this.#source), String(sequence).padStart(20, "0"), ...command]);
    if (Array.isArray(reply) && reply[0] === "ALREADY_APPLIED") return { applied: false, last: String(BigInt(reply[1] as string)) };
    return { applied: true, reply };
  }

  async #call(redis: RedisCaller, name: string, keys: readonly string[], args: readonly (string | Buffer | number)[]): Promise<unknown> {
    try {
      return await redis.call("FCALL", name, keys.length + 1, this.mark, ...keys, ...args);
    } catch (error) {
      throw redisRefusal(error) ?? error;
    }
  }
}

/** The fence of a lease: `await redisFence(lease).write(redis, [key], "SET", key, value)`. */
export function redisFence(lease: TokenSource, options?: RedisFenceOptions): RedisFence {
  return new RedisFence(lease, options);
}
