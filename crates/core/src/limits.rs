//! Every end that a queue, a table or a step has, in one place, with how they relate.

/// Longest resource name, in bytes.
pub const NAME_BYTES: usize = 512;
/// Most segments of a resource name.
pub const NAME_SEGMENTS: usize = 16;
/// Longest holder or actor name, in bytes.
pub const HOLDER_BYTES: usize = 128;
/// Longest reason an operator gives, in bytes.
pub const REASON_BYTES: usize = 512;
/// Largest metadata of a lease or registration, in bytes.
pub const METADATA_BYTES: usize = 4_096;

/// Shortest ttl, in milliseconds.
pub const TTL_MIN: u64 = 100;
/// The cluster's longest ttl unless chosen otherwise when it is created, in milliseconds.
pub const TTL_MAX_DEFAULT: u64 = 10 * 60_000;
/// The longest that a cluster may choose as its longest ttl: seven days, so that a 32-bit stamp tells any live renewal.
pub const TTL_MAX_EVER: u64 = 7 * 24 * 3_600_000;
/// Longest maximum hold a lease may ask for.
pub const HOLD_MAX: u64 = 366 * 24 * 3_600_000;
/// Longest wait.
pub const WAIT_MAX: u64 = 24 * 3_600_000;
/// Longest drain, grace, or veto period.
pub const GRACE_MAX: u64 = 10 * 60_000;
/// How long a predecessor may drain unless its charter says otherwise. A holder that hears nothing stops after it if that is
/// shorter than its ttl, so it is no shorter than the ttl that most leases have.
pub const DRAIN_DEFAULT: u64 = 30_000;
/// A holder leaves at least this long between two attempts to renew, in milliseconds.
pub const RENEW_GAP_MIN: u64 = 10;

/// A driver takes a turn at least this often while something is held, in milliseconds.
pub const TURN_EVERY: u64 = 50;
/// One normal interval between turns, at most; what a gap has beyond it is a stall.
pub const TURN_NORMAL: u64 = 100;
/// Served time is put on record at least this often, in milliseconds.
pub const IDLE_RECORD_EVERY: u64 = 1_000;

/// Largest capacity of a resource, in units.
pub const CAPACITY: u32 = 1 << 20;
/// Most readers of one resource.
pub const READERS: u32 = 1 << 20;
/// Most resources of one atomic acquire.
pub const MULTI: usize = 128;
/// Deepest re-entrant hold.
pub const DEPTH: u32 = 255;
/// Most leases one session carries.
pub const LEASES_PER_SESSION: u32 = 1 << 17;
/// Most named actors inside one session.
pub const ACTORS_PER_SESSION: u32 = 4_096;
/// Most live leases of a cluster.
pub const LEASES: usize = 1 << 27;
/// Most live sessions.
pub const SESSIONS: usize = 1 << 20;
/// Most waiters on one resource.
pub const WAITERS_PER_RESOURCE: usize = 1 << 17;
/// Most waiters of one session.
pub const WAITERS_PER_SESSION: u32 = 1 << 12;
/// Most waiters in all.
pub const WAITERS: usize = 1 << 21;
/// Ended sessions whose end is still told.
pub const SESSIONS_TOLD: usize = 1 << 12;
/// Remembered requests of one session that its client has not acknowledged.
pub const REQUESTS_PER_SESSION: usize = 1_024;

/// Ended leases whose reason is still told.
pub const ENDS_KEPT: usize = 1 << 16;
/// Holders whose usage is counted by name; the rest is counted together.
pub const USAGE_HOLDERS: usize = 1 << 16;
/// Stalls remembered one by one; older ones count as used up.
pub const STALLS_KEPT: usize = 1 << 12;

/// Bytes of ends that one Tick puts on record; the rest follows next turn.
pub const TICK_BYTES: usize = 256 * 1_024;
/// Timers that one Tick looks at.
pub const TICK_TIMERS: usize = 1 << 10;
/// Bytes on record from which on one Tick makes no further offer; the rest follows next turn.
pub const OFFER_BYTES: usize = 4 << 20;
/// Bytes that one request may put on record.
pub const STEP_BYTES: usize = 96 << 20;
/// Freed resources that one Tick offers to their waiters.
pub const TICK_OFFERS: usize = 1 << 11;
/// Edges of the wait-for graph that one step walks.
pub const EDGES_PER_STEP: usize = 1 << 14;
/// Leases of an actor that are looked at to see whether anybody waits for it; one with more is always walked.
pub const LEASES_GLANCED: usize = 64;
/// Leases of a resource among which the holder of a refused token is looked for; beyond, only the ended ones are.
pub const HOLDERS_SOUGHT: usize = 1 << 12;
/// Members of a cycle that are told by name; the length is told in full.
pub const CYCLE_TOLD: usize = 64;
/// Deadlocks kept for the operator's list.
pub const DEADLOCKS_KEPT: usize = 256;

/// Charters of a cluster.
pub const CHARTERS: usize = 1 << 14;
/// Largest charter as it is stored, in bytes.
pub const CHARTER_BYTES: usize = 16 * 1_024;
/// Longest free text of a charter, in bytes.
pub const CHARTER_TEXT_BYTES: usize = 1_024;
/// Entries of what a charter's holder may touch.
pub const CHARTER_AUTHORITY: usize = 64;
/// Targets of one charter.
pub const CHARTER_TARGETS: usize = 64;
/// Targets of all resources that reported, each slot on its own.
pub const TARGETS: usize = 1 << 16;
/// Entries of one batch of fences' reports: each may look for a holder among all remembered ends.
pub const REPORTS: usize = 256;
/// Longest name of a target, in bytes.
pub const TARGET_NAME_BYTES: usize = 128;
/// Keys of small state under one resource.
pub const STATE_KEYS: usize = 64;
/// Longest key of small state, in bytes.
pub const STATE_KEY_BYTES: usize = 128;
/// Largest value of small state, in bytes.
pub const STATE_BYTES: usize = 64 * 1_024;
/// Small state of all resources together, in bytes.
pub const STATE_TOTAL: usize = 1 << 30;
/// Messages of one queue, live and dead.
pub const QUEUE_ITEMS: usize = 1 << 20;
/// Largest message, in bytes.
pub const ITEM_BYTES: usize = 64 * 1_024;
/// Deliveries before a message is dead, unless the queue says otherwise.
pub const ATTEMPTS_DEFAULT: u32 = 5;
/// Most deliveries that a message may ask for before it is dead.
pub const ATTEMPTS_MAX: u32 = 10_000;
/// Longest delay before a message can be received, in milliseconds.
pub const DELAY_MAX: u64 = 7 * 24 * 3_600_000;
/// Messages of all queues together, live and dead.
pub const QUEUE_ITEMS_TOTAL: usize = 1 << 22;
/// Messages and queue names of all queues together, in bytes.
pub const QUEUE_TOTAL: usize = 1 << 30;
/// Messages that one receive hands out.
pub const RECEIVE_MOST: usize = 1_024;
/// Bytes after which one receive hands out no further message.
pub const RECEIVE_BYTES: usize = 1 << 20;
/// Cached keys under invalidation.
pub const CACHE_KEYS: usize = 1 << 20;
/// Live readers of one cached key.
pub const CACHE_READERS: usize = 1 << 16;
/// Live pins on one resource.
pub const PINS: usize = 1 << 20;
/// Largest entry of a fenced append log, in bytes; also the most that a torn tail can be, beside its head.
pub const LOG_ENTRY_BYTES: usize = 16 << 20;

const _: () = assert!(TTL_MIN >= TURN_NORMAL && TURN_NORMAL >= 2 * TURN_EVERY, "a lease outlives a turn");
const _: () = assert!(TTL_MIN >= 10 * RENEW_GAP_MIN, "the shortest lease has room for several attempts to renew");
const _: () = assert!(TTL_MAX_DEFAULT <= TTL_MAX_EVER);
const _: () = assert!(TTL_MAX_EVER * 4 < u32::MAX as u64, "a 32-bit stamp tells deadline, credit and drain apart");
const _: () = assert!(IDLE_RECORD_EVERY >= TURN_EVERY);
const _: () = assert!(TICK_BYTES < OFFER_BYTES && OFFER_BYTES < STEP_BYTES, "ends leave room for offers");
const _: () = assert!(CYCLE_TOLD >= 2);
const _: () = assert!((WAITERS_PER_SESSION as usize) < WAITERS);
const _: () = assert!((LEASES_PER_SESSION as usize) < LEASES);
const _: () = assert!(MULTI <= LEASES_PER_SESSION as usize);
const _: () = assert!(RECEIVE_MOST <= LEASES_PER_SESSION as usize);
const _: () = assert!(QUEUE_ITEMS <= QUEUE_ITEMS_TOTAL);
const _: () = assert!(ITEM_BYTES + NAME_BYTES <= QUEUE_TOTAL, "the largest message fits an empty table");
const _: () = assert!(ATTEMPTS_DEFAULT <= ATTEMPTS_MAX);
const _: () = assert!(DRAIN_DEFAULT >= TTL_MIN && DRAIN_DEFAULT <= GRACE_MAX);
const _: () = assert!(CHARTER_TEXT_BYTES * 8 <= CHARTER_BYTES, "every free text of a small charter fits");
