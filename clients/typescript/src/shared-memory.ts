// Deadlines that the renewal thread writes and the program's thread reads, so that `lease.state` is right even if the event loop was
// blocked and no message was delivered.

/** No deadline: later than any time of the clock. */
const NEVER = 2n ** 62n;
const FIELDS = 4;
const SLOTS_PER_PAGE = 256;

const enum Field {
  Deadline = 0,
  Suspensions = 1,
  DrainUntil = 2,
  Ended = 3,
}

function toMicros(ms: number): bigint {
  return ms === Infinity ? NEVER : BigInt(Math.floor(ms * 1000));
}

function fromMicros(micros: bigint): number {
  return micros >= NEVER ? Infinity : Number(micros) / 1000;
}

/** One row of shared memory: the deadline of a session or of a lease. All times are milliseconds of the client's clock. */
export class DeadlineCell {
  readonly #page: BigInt64Array;
  readonly #start: number;

  constructor(page: BigInt64Array, index: number) {
    this.#page = page;
    this.#start = index * FIELDS;
  }

  reset(deadline: number): void {
    this.#store(Field.Deadline, toMicros(deadline));
    this.#store(Field.Suspensions, 0n);
    this.#store(Field.DrainUntil, NEVER);
    this.#store(Field.Ended, 0n);
  }

  /** Work may continue until here; infinite if another cell limits the lease. */
  get deadline(): number {
    return fromMicros(this.#load(Field.Deadline));
  }
  set deadline(ms: number) {
    this.#store(Field.Deadline, toMicros(ms));
  }

  /** How often the deadline passed before a renewal. */
  get suspensions(): number {
    return Number(this.#load(Field.Suspensions));
  }
  countSuspension(): void {
    Atomics.add(this.#page, this.#start + Field.Suspensions, 1n);
  }

  /** A draining holder stops here; infinite if it is not draining. */
  get drainUntil(): number {
    return fromMicros(this.#load(Field.DrainUntil));
  }
  set drainUntil(ms: number) {
    this.#store(Field.DrainUntil, toMicros(ms));
  }

  /** Whether the server reported the end. */
  get ended(): boolean {
    return this.#load(Field.Ended) !== 0n;
  }
  markEnded(): void {
    this.#store(Field.Ended, 1n);
  }

  #load(field: Field): bigint {
    return Atomics.load(this.#page, this.#start + field);
  }
  #store(field: Field, value: bigint): void {
    Atomics.store(this.#page, this.#start + field, value);
  }
}

/** Creates the page of one session: a single row. */
export function newSessionPage(): SharedArrayBuffer {
  return new SharedArrayBuffer(FIELDS * 8);
}

/** The only row of a session's page. */
export function sessionCell(page: SharedArrayBuffer): DeadlineCell {
  return new DeadlineCell(new BigInt64Array(page), 0);
}

/** The rows of leases, by slot number. Both threads have the same pages; the program's thread creates them. */
export class SlotPages {
  readonly #pages: BigInt64Array[] = [];

  add(number: number, page: SharedArrayBuffer): void {
    this.#pages[number] = new BigInt64Array(page);
  }

  cell(slot: number): DeadlineCell {
    const page = this.#pages[Math.floor(slot / SLOTS_PER_PAGE)];
    if (!page) throw new RangeError(`slot ${slot} has no page`);
    return new DeadlineCell(page, slot % SLOTS_PER_PAGE);
  }
}

/** Slots that leases use. A slot is reused only after the renewal thread has stopped writing to it. */
export class SlotAllocator {
  readonly pages = new SlotPages();
  readonly #onPage: (number: number, page: SharedArrayBuffer) => void;
  readonly #free: number[] = [];
  #pageCount = 0;

  constructor(onPage: (number: number, page: SharedArrayBuffer) => void) {
    this.#onPage = onPage;
  }

  allocate(): number {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    const page = new SharedArrayBuffer(SLOTS_PER_PAGE * FIELDS * 8);
    const number = this.#pageCount++;
    this.pages.add(number, page);
    this.#onPage(number, page);
    for (let index = SLOTS_PER_PAGE - 1; index > 0; index--) this.#free.push(number * SLOTS_PER_PAGE + index);
    return number * SLOTS_PER_PAGE;
  }

  free(slot: number): void {
    this.#free.push(slot);
  }
}

/** Counts requests whose grants the renewal thread cannot know yet. */
export class RequestCounter {
  readonly buffer: SharedArrayBuffer;
  readonly #counts: Int32Array;

  constructor(buffer?: SharedArrayBuffer) {
    this.buffer = buffer ?? new SharedArrayBuffer(4);
    this.#counts = new Int32Array(this.buffer);
  }

  start(): void {
    Atomics.add(this.#counts, 0, 1);
  }
  end(): void {
    Atomics.sub(this.#counts, 0, 1);
  }
  /** Requests that run now. */
  get running(): number {
    return Atomics.load(this.#counts, 0);
  }
}
