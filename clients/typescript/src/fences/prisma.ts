// Fenced writes with Prisma: the token is presented at the start of an interactive transaction.

import { presentedToken, transactionLimit, type TokenSource } from "./presented-token.js";
import { mapPostgresErrors } from "./postgres.js";

/** What this module needs of a transaction of Prisma. */
export interface PrismaTransaction {
  $executeRawUnsafe(query: string, ...values: unknown[]): PromiseLike<number>;
}

/** What this module needs of a `PrismaClient`. */
export interface PrismaLike<Tx extends PrismaTransaction> extends PrismaTransaction {
  $transaction<T>(work: (tx: Tx) => Promise<T>, options?: { timeout?: number; maxWait?: number }): Promise<T>;
}

/** Fence of the tables that one lease guards, for Prisma on PostgreSQL. */
export class PrismaFence {
  readonly #source: TokenSource;
  readonly #resource: string | null;

  constructor(lease: TokenSource, resource: string | undefined = lease.resource) {
    this.#source = lease;
    this.#resource = resource ?? null;
  }

  /** Claims the fence for this holder, before it reads anything. */
  async claim(prisma: PrismaTransaction): Promise<void> {
    await mapPostgresErrors(async () => await prisma.$executeRawUnsafe("CALL leasehold.claim($1::text, $2::text)", presentedToken(this.#source), this.#resource));
  }

  /** Runs work in an interactive transaction that presents the token first, and that does not outlast the lease. */
  async transaction<Tx extends PrismaTransaction, T>(prisma: PrismaLike<Tx>, work: (tx: Tx) => Promise<T>): Promise<T> {
    const limit = transactionLimit(this.#source);
    const timeout = limit === undefined ? {} : { timeout: limit };
    return await mapPostgresErrors(() =>
      prisma.$transaction(async (tx) => {
        await tx.$executeRawUnsafe("SELECT leasehold.admit($1::text, $2::text)", presentedToken(this.#source), this.#resource);
        return await work(tx);
      }, timeout),
    );
  }
}

/** The fence of a lease: `await prismaFence(lease).transaction(prisma, async (tx) => …)`. */
export function prismaFence(lease: TokenSource, resource?: string): PrismaFence {
  return new PrismaFence(lease, resource);
}
