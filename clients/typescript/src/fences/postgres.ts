// Fenced writes to PostgreSQL: claim before the first read, then present the token in every transaction.
//
// The database must have the fence (docs/how-to/fence/postgres.md). The checks run in the server; these functions send the token and
// map SQLSTATE LH001 to StaleTokenError.

import { presentedToken, transactionLimit, type TokenSource } from "./presented-token.js";
import { postgresRefusal } from "./refusal.js";

/** What this module needs of a client of node-postgres; a `Client` and a `PoolClient` have it. */
export interface PgQueryable {
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/** A connection that reports its end. */
interface PgEmitter {
  on(event: "error", listener: (error: Error) => void): unknown;
  off(event: "error", listener: (error: Error) => void): unknown;
}

/** What this module needs of a `Pool` of node-postgres. */
export interface PgPool<C extends PgQueryable> {
  connect(): Promise<C & { release(error?: Error | boolean): void }>;
}

/** Options of a claim. */
export interface ClaimOptions {
  /** Ends the backends that block the claim, if the role may. */
  terminate?: boolean;
}

/** Milliseconds of a lease as an interval; none for a source without a deadline. */
function interval(source: TokenSource): string | null {
  const limit = transactionLimit(source);
  return limit === undefined ? null : `${limit} milliseconds`;
}

/** Runs a call, and maps refusals of the fence to the errors of this client. */
export async function mapPostgresErrors<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw postgresRefusal(error) ?? error;
  }
}

/** Fence of the tables that one lease guards. */
export class PostgresFence {
  readonly #source: TokenSource;
  readonly #resource: string | null;

  /** `lease` is presented; `resource` is its resource, unless the fence has another name. */
  constructor(lease: TokenSource, resource: string | undefined = lease.resource) {
    this.#source = lease;
    this.#resource = resource ?? null;
  }

  /** Claims the fence for this holder, before it reads anything. Outside of a transaction. Predecessors cannot write afterwards. */
  async claim(db: PgQueryable, options: ClaimOptions = {}): Promise<void> {
    const values = [presentedToken(this.#source), this.#resource, options.terminate ?? false];
    await mapPostgresErrors(() => db.query("CALL leasehold.claim($1, $2, terminate => $3)", values));
  }

  /** Presents the token in the current transaction. The server ends a transaction that outlasts the lease. */
  async admit(tx: PgQueryable): Promise<void> {
    const left = interval(this.#source);
    const [text, values] =
      left === null
        ? ["SELECT leasehold.admit($1, $2)", [presentedToken(this.#source), this.#resource]]
        : ["SELECT leasehold.admit($1, $2, remaining => $3::interval)", [presentedToken(this.#source), this.#resource, left]];
    await mapPostgresErrors(() => tx.query(text as string, values as unknown[]));
  }

  /**
   * Runs work in a transaction that presents the token first. Commits if the work returns, and rolls back otherwise.
   *
   * The server ends a transaction that outlasts the lease, together with its connection: then nothing was written, and the error has the
   * SQLSTATE 25P03 (idle for too long) or 57P01 (ended by a claim). A statement that is too long is canceled with 57014.
   */
  async transaction<C extends PgQueryable, T>(pool: PgPool<C>, work: (tx: C) => Promise<T>): Promise<T> {
    const client = await pool.connect();
    const connection = client as Partial<PgEmitter>;
    let broken: Error | undefined;
    // The end of a connection is an event if no statement runs. Without a listener it would end the process.
    const onError = (error: Error): void => void (broken ??= error);
    connection.on?.("error", onError);
    try {
      await client.query("BEGIN");
      try {
        await this.admit(client);
        const result = await mapPostgresErrors(() => work(client));
        await mapPostgresErrors(() => client.query("COMMIT"));
        return result;
      } catch (error) {
        // A statement on a connection that has ended fails without the reason; the reason counts.
        const reason = broken ?? error;
        // A connection that cannot roll back is not returned to the pool.
        await client.query("ROLLBACK").catch((failure: Error) => (broken ??= failure));
        throw reason;
      }
    } finally {
      client.release(broken);
      connection.off?.("error", onError);
    }
  }

  /**
   * Sets the token for all later statements of a connection that only this lease uses. A protected table then checks each of them. Do
   * not use it on connections that a pool shares with other leases.
   */
  async setSessionToken(connection: PgQueryable): Promise<void> {
    const values = [presentedToken(this.#source), this.#resource];
    await mapPostgresErrors(() => connection.query("CALL leasehold.set_session_token($1, $2)", values));
  }
}

/** The fence of a lease: `await postgresFence(lease).transaction(pool, async (tx) => …)`. */
export function postgresFence(lease: TokenSource, resource?: string): PostgresFence {
  return new PostgresFence(lease, resource);
}
