// Actor names for leases. Every lease is its own actor, so that tasks of one process exclude each other.

/** Unnamed actors of one session; further leases share them. The rest of the server's limit is for actors that programs name. */
export const UNNAMED_ACTORS = 4_096 - 256;

export class ActorPool {
  readonly #uses: number[] = [];
  readonly #free: number[] = [];
  #nextShared = 0;

  acquire(): number {
    const actor = this.#free.pop() ?? this.#another();
    this.#uses[actor] = (this.#uses[actor] ?? 0) + 1;
    return actor;
  }

  /** Counts more leases of the same actor. */
  share(actor: number, count: number): void {
    this.#uses[actor] = (this.#uses[actor] ?? 0) + count;
  }

  release(actor: number): void {
    const uses = (this.#uses[actor] ?? 0) - 1;
    this.#uses[actor] = uses;
    if (uses === 0) this.#free.push(actor);
  }

  /** Name of an actor; the first one has the session's own. */
  static nameOf(actor: number, holder: string): string {
    return actor === 0 ? "" : `${holder}#${actor}`;
  }

  #another(): number {
    if (this.#uses.length < UNNAMED_ACTORS) return this.#uses.push(0) - 1;
    this.#nextShared = (this.#nextShared + 1) % UNNAMED_ACTORS;
    return this.#nextShared;
  }
}
