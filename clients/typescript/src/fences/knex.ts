// Fenced writes with knex: the token is presented at the start of every transaction.

import { presentedToken, transactionLimit, type TokenSource } from "./presented-token.js";
import { mapPostgresErrors } from "./postgres.js";

/** What this module needs of knex and of its transactions. */
export interface KnexLike {
  raw(sql: string, bindings?: readonly unknown[]): PromiseLike<unknown>;
}

/** What this module needs of a knex instance. */
export interface KnexInstance<Tx extends KnexLike> extends KnexLike {
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
}

/** Fence of the tables that one lease guards, for knex on PostgreSQL. */
export class KnexFence {
  readonly #source: TokenSource;
  readonly #resource: string | null;

  constructor(lease: TokenSource, resource: string | undefined = lease.resource) {
    this.#source = lease;
    this.#resource = resource ?? null;
  }

  /** Claims the fence for this holder, before it reads anything. */
  async claim(knex: KnexLike): Promise<void> {
    await mapPostgresErrors(async () => await knex.raw("CALL leasehold.claim(?, ?)", [presentedToken(this.#source), this.#resource]));
  }

  /** Runs work in a transaction that presents the token first. */
  async transaction<Tx extends KnexLike, T>(knex: KnexInstance<Tx>, work: (tx: Tx) => Promise<T>): Promise<T> {
    return await mapPostgresErrors(() =>
      knex.transaction(async (tx) => {
        const limit = transactionLimit(this.#source);
        const [more, bindings] = limit === undefined ? ["", []] : [", remaining => ?::interval", [`${limit} milliseconds`]];
        await tx.raw(`SELECT leasehold.admit(?, ?${more})`, [presentedToken(this.#source), this.#resource, ...bindings]);
        return await work(tx);
      }),
    );
  }
}

/** The fence of a lease: `await knexFence(lease).transaction(knex, async (tx) => …)`. */
export function knexFence(lease: TokenSource, resource?: string): KnexFence {
  return new KnexFence(lease, resource);
}
