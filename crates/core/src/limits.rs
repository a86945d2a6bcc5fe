//! All limits of queues, tables and steps, and assertions about how they relate.

/// Longest resource name, in bytes.
pub const NAME_BYTES: usize = 512;
/// Maximum number of segments of a resource name.
pub const NAME_SEGMENTS: usize = 16;
/// Longest holder or actor name, in bytes.
pub const HOLDER_BYTES: usize = 128;
/// Longest identity of a caller, in bytes: that of a SPIFFE id.
pub const PRINCIPAL_BYTES: usize = 2_048;
/// Longest name of a credential that is recorded, in bytes; the rest is cut.
pub const CREDENTIAL_BYTES: usize = 64;
/// Longest comment of an operator, in bytes.
pub const COMMENT_BYTES: usize = 512;
/// Largest metadata of a lease or registration, in bytes.
pub const METADATA_BYTES: usize = 4_096;

/// Shortest ttl, in milliseconds.
pub const TTL_MIN: u64 = 100;
/// Default of a cluster's longest ttl, in milliseconds. It is set when the cluster is created.
pub const TTL_MAX_DEFAULT: u64 = 10 * 60_000;
/// Upper bound of a cluster's longest ttl: seven days, so that a 32-bit timestamp identifies any live renewal.
pub const TTL_MAX_EVER: u64 = 7 * 24 * 3_600_000;
/// Longest maximum hold that a lease may request.
pub const HOLD_MAX: u64 = 366 * 24 * 3_600_000;
/// Longest wait.
pub const WAIT_MAX: u64 = 24 * 3_600_000;
/// Longest drain, grace, or veto period.
pub const GRACE_MAX: u64 = 10 * 60_000;
/// Default drain period. A holder without contact stops after it if it is shorter than its ttl, so it is not shorter than
/// the ttl of most leases.
pub const DRAIN_DEFAULT: u64 = 30_000;
/// Shortest pause between two renewal attempts of a holder, in milliseconds.
pub const RENEW_GAP_MIN: u64 = 10;

/// Longest interval between turns while a lease is held, in milliseconds.
pub const TURN_EVERY: u64 = 50;
/// Longest normal gap between turns; the excess of a longer gap is a stall.
pub const TURN_NORMAL: u64 = 100;
/// Grantor time is recorded at least this often, in milliseconds.
pub const IDLE_RECORD_EVERY: u64 = 1_000;

/// Largest capacity of a resource, in units.
pub const CAPACITY: u32 = 1 << 20;
/// Maximum number of readers of one resource.
pub const READERS: u32 = 1 << 20;
/// Maximum number of resources of one atomic acquire.
pub const MULTI: usize = 128;
/// Deepest re-entrant hold.
pub const DEPTH: u32 = 255;
/// Maximum number of leases of one session.
pub const LEASES_PER_SESSION: u32 = 1 << 17;
/// Maximum number of named actors in one session.
pub const ACTORS_PER_SESSION: u32 = 4_096;
/// Maximum number of live leases of a cluster.
pub const LEASES: usize = 1 << 27;
/// Maximum number of live sessions.
pub const SESSIONS: usize = 1 << 20;
/// Maximum number of live sessions that carry only waits, above which no session is opened for an idempotency key.
pub const KEY_SESSIONS: usize = 1 << 17;
/// Time that the reply to a request under an idempotency key of its client is stored after its last use, in milliseconds; less if the
/// longest ttl of the cluster is shorter.
pub const KEY_TTL: u64 = 10 * 60_000;
/// Maximum number of waiters on one resource.
pub const WAITERS_PER_RESOURCE: usize = 1 << 17;
/// Maximum number of waiters of one session.
pub const WAITERS_PER_SESSION: u32 = 1 << 12;
/// Maximum number of waiters of a cluster.
pub const WAITERS: usize = 1 << 21;
/// Ended sessions whose end reason is still known.
pub const ENDED_SESSIONS: usize = 1 << 12;
/// Remembered requests of one session that its client has not acknowledged.
pub const REQUESTS_PER_SESSION: usize = 1_024;

/// Ended leases whose end reason is still known.
pub const ENDED_LEASES: usize = 1 << 16;
/// Holders whose usage is counted by name; all others are counted together.
pub const USAGE_HOLDERS: usize = 1 << 16;
/// Stalls stored individually; older ones count as used up.
pub const STALLS: usize = 1 << 12;

/// Bytes of expiry records that one tick writes; the rest follows in the next turn.
pub const TICK_BYTES: usize = 256 * 1_024;
/// Timers that one tick processes.
pub const TICK_TIMERS: usize = 1 << 10;
/// Batch size in bytes at which one tick stops offering resources; the rest follows in the next turn.
pub const OFFER_BYTES: usize = 4 << 20;
/// Bytes of records that one request may write.
pub const STEP_BYTES: usize = 96 << 20;
/// Freed resources that one tick offers to their waiters.
pub const TICK_OFFERS: usize = 1 << 11;
/// Edges of the wait-for graph that one step visits.
pub const EDGES_PER_STEP: usize = 1 << 14;
/// Leases of an actor that the quick deadlock check inspects; an actor with more is always searched.
pub const QUICK_CHECK_LEASES: usize = 64;
/// Live leases of a resource that are searched for the holder of a refused token, before the ended ones.
pub const HOLDER_SEARCH: usize = 1 << 12;
/// Steps that one query may take, so that it does not delay a turn. A step is one inspected lease.
pub const QUERY_STEPS: usize = 1 << 18;
/// Steps that the scan of a resource slot counts as.
pub const SLOT_STEPS: usize = 1 << 2;
/// Steps that a name in the key of a sorted listing counts as, besides its slot.
pub const NAME_KEY_STEPS: usize = 1 << 4;
/// Steps that the view of a lease counts as.
pub const VIEW_STEPS: usize = 1 << 5;
/// Members of a deadlock that are reported by name; the length is always reported.
pub const CYCLE_MEMBERS: usize = 64;
/// Deadlocks stored for the operator's list.
pub const DEADLOCKS: usize = 256;
/// Gaps in the token numbers that are remembered, one per opening that granted something.
pub const NUMBER_GAPS: usize = 1_024;
/// Openings of a journal that are remembered by content.
pub const TENURES: usize = 4_096;
/// Incarnations of a journal that are remembered by content.
pub const INCARNATIONS: usize = 256;

/// Proposals of a cluster that wait for an approval.
pub const PROPOSALS: usize = 1_024;
/// Bytes of the commands of all these proposals: a list of them fits into one response.
pub const PROPOSAL_BYTES: usize = 1 << 20;
/// Proposals of one identity that wait for an approval.
pub const PROPOSALS_PER_IDENTITY: usize = 64;
/// Bytes of the commands of these proposals: the largest charter fits, and sixteen identities fill the list.
pub const PROPOSAL_BYTES_PER_IDENTITY: usize = PROPOSAL_BYTES / 16;
/// Time until a proposal expires, in milliseconds.
pub const PROPOSAL_TTL: u64 = 15 * 60_000;

/// Charters of a cluster.
pub const CHARTERS: usize = 1 << 14;
/// Largest charter as it is stored, in bytes.
pub const CHARTER_BYTES: usize = 16 * 1_024;
/// Longest free text of a charter, in bytes.
pub const CHARTER_TEXT_BYTES: usize = 1_024;
/// Entries of a charter's `authority` list.
pub const CHARTER_AUTHORITY: usize = 64;
/// Targets of one charter.
pub const CHARTER_TARGETS: usize = 64;
/// Targets that reported, over all resources; each slot counts separately.
pub const TARGETS: usize = 1 << 16;
/// Entries of one batch of fence reports; each may search all stored ends for a holder.
pub const REPORTS: usize = 256;
/// How much less far ahead of the clock than a first one a further number of a reporter may be that was never issued, in
/// milliseconds: half a day instead of a day. So no reporter keeps the numbers of all grants where fences with slower clocks refuse
/// them (F5).
pub const REPEATED_REPORT_MARGIN: u64 = 12 * 3_600_000;
/// Longest name of a target, in bytes.
pub const TARGET_NAME_BYTES: usize = 128;
/// State keys of one resource.
pub const STATE_KEYS: usize = 64;
/// Longest state key, in bytes.
pub const STATE_KEY_BYTES: usize = 128;
/// Largest state value, in bytes.
pub const STATE_BYTES: usize = 64 * 1_024;
/// State of all resources together, in bytes.
pub const STATE_TOTAL: usize = 1 << 30;
/// Messages of one queue, live and dead.
pub const QUEUE_ITEMS: usize = 1 << 20;
/// Largest message, in bytes.
pub const ITEM_BYTES: usize = 64 * 1_024;
/// Default number of deliveries before a message becomes a dead letter.
pub const ATTEMPTS_DEFAULT: u32 = 5;
/// Largest number of deliveries that a message may request.
pub const ATTEMPTS_MAX: u32 = 10_000;
/// Longest delay before a message can be received, in milliseconds.
pub const DELAY_MAX: u64 = 7 * 24 * 3_600_000;
/// Messages of all queues together, live and dead.
pub const QUEUE_ITEMS_TOTAL: usize = 1 << 22;
/// Messages and queue names of all queues together, in bytes.
pub const QUEUE_TOTAL: usize = 1 << 30;
/// Messages that one receive returns.
pub const RECEIVE_MAX: usize = 1_024;
/// Bytes after which one receive returns no further message.
pub const RECEIVE_BYTES: usize = 1 << 20;
/// Cached keys under invalidation.
pub const CACHE_KEYS: usize = 1 << 20;
/// Live readers of one cached key.
pub const CACHE_READERS: usize = 1 << 16;
/// Live pins on one resource.
pub const PINS: usize = 1 << 20;
/// Largest entry of a fenced append log, in bytes; it also bounds a torn tail without its header.
pub const LOG_ENTRY_BYTES: usize = 16 << 20;

const _: () = assert!(TTL_MIN >= TURN_NORMAL && TURN_NORMAL >= 2 * TURN_EVERY, "a lease outlives a turn");
const _: () = assert!(TTL_MIN >= 10 * RENEW_GAP_MIN, "the shortest lease leaves time for several renewal attempts");
const _: () = assert!(TTL_MAX_DEFAULT <= TTL_MAX_EVER);
const _: () = assert!(TTL_MAX_EVER * 4 < u32::MAX as u64, "a 32-bit timestamp covers deadline, credit and drain");
const _: () = assert!(IDLE_RECORD_EVERY >= TURN_EVERY);
const _: () = assert!(TICK_BYTES < OFFER_BYTES && OFFER_BYTES < STEP_BYTES, "ends leave space for offers");
const _: () = assert!(CYCLE_MEMBERS >= 2);
const _: () = assert!((WAITERS_PER_SESSION as usize) < WAITERS);
const _: () = assert!((LEASES_PER_SESSION as usize) < LEASES);
const _: () = assert!(LEASES_PER_SESSION as usize * 2 <= QUERY_STEPS, "a query lists all leases of a session");
const _: () = assert!(KEY_SESSIONS * 4 <= SESSIONS, "idempotency keys leave sessions for holders");
const _: () = assert!(MULTI <= LEASES_PER_SESSION as usize);
const _: () = assert!(RECEIVE_MAX <= LEASES_PER_SESSION as usize);
const _: () = assert!(QUEUE_ITEMS <= QUEUE_ITEMS_TOTAL);
const _: () = assert!(ITEM_BYTES + NAME_BYTES <= QUEUE_TOTAL, "the largest message fits an empty table");
const _: () = assert!(ATTEMPTS_DEFAULT <= ATTEMPTS_MAX);
const _: () = assert!(DRAIN_DEFAULT >= TTL_MIN && DRAIN_DEFAULT <= GRACE_MAX);
const _: () = assert!(CHARTER_TEXT_BYTES * 8 <= CHARTER_BYTES, "every free text of a small charter fits");
