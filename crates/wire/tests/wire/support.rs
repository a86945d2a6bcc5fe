//! Messages for tests: any that a well-behaved client may send.

use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};
use leasehold_wire::v1::{self, request::Ask};
use leasehold_wire::{Caller, Issuer};
use proptest::option;
use proptest::prelude::*;

/// Who answers in tests.
pub const ISSUER: Issuer = Issuer { cluster: Cluster(*b"examples"), incarnation: Incarnation(7) };

/// A single call: nothing but the message tells who asks.
pub const CALLER: Caller = Caller { session: None, issuer: ISSUER };

/// A token of this cluster.
pub fn token(resource: &str, number: u64) -> Token {
    Token {
        cluster: ISSUER.cluster,
        incarnation: ISSUER.incarnation,
        resource: leasehold_core::name::resource_hash(resource),
        reach: Reach::Slot(0),
        number: Number::new(number).expect("a number"),
    }
}

/// A token's number.
pub fn number() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![1..100_u64, 1..=Number::MAX.get()]
}

/// Any text.
pub fn text() -> impl Strategy<Value = String> + Clone {
    "\\PC{0,20}"
}

fn bytes() -> impl Strategy<Value = Vec<u8>> + Clone {
    prop::collection::vec(any::<u8>(), 0..40)
}

fn access() -> impl Strategy<Value = (i32, u32)> + Clone {
    prop_oneof![
        Just((v1::Access::Exclusive as i32, 0)),
        Just((v1::Access::Shared as i32, 0)),
        Just((v1::Access::Slot as i32, 0)),
        any::<u32>().prop_map(|units| (v1::Access::Units as i32, units)),
    ]
}

fn terms() -> impl Strategy<Value = v1::Terms> {
    let priority = option::of((0..256_u32).prop_filter("told only where it differs", |p| *p != 100));
    (any::<u64>(), priority, any::<bool>(), option::of(any::<u64>()), option::of(any::<u64>()), bytes()).prop_map(
        |(wait_ms, priority, reentrant, max_hold_ms, progress_ms, metadata)| v1::Terms {
            wait_ms,
            priority,
            reentrant,
            max_hold_ms,
            progress_ms,
            metadata,
        },
    )
}

fn held() -> impl Strategy<Value = v1::Held> + Clone {
    let which = prop_oneof![any::<u64>().prop_map(v1::held::Which::Lease), text().prop_map(v1::held::Which::Resource),];
    (which, number(), option::of(text())).prop_map(|(which, number, holder)| v1::Held {
        which: Some(which),
        number,
        token: String::new(),
        holder,
    })
}

fn acquires() -> impl Strategy<Value = Ask> {
    let session = || option::of(any::<u64>());
    let ms = || option::of(any::<u64>());
    let one = (text(), text(), session(), access(), option::of(any::<u32>()), ms(), terms()).prop_map(
        |(resource, holder, session, (access, units), slots, ttl_ms, terms)| {
            Ask::Acquire(v1::Acquire { resource, holder, session, access, units, slots, ttl_ms, terms: Some(terms) })
        },
    );
    let wanted = (text(), access()).prop_map(|(resource, (access, units))| v1::Wanted { resource, access, units });
    let all = (prop::collection::vec(wanted, 0..5), text(), session(), ms(), terms()).prop_map(
        |(wanted, holder, session, ttl_ms, terms)| {
            Ask::AcquireAll(v1::AcquireAll { wanted, holder, session, ttl_ms, terms: Some(terms) })
        },
    );
    prop_oneof![one, all]
}

fn holds() -> impl Strategy<Value = Ask> {
    let named = || held().prop_map(Some);
    prop_oneof![
        (named(), option::of(any::<u64>()), option::of(any::<u64>()))
            .prop_map(|(held, ttl_ms, progress)| Ask::Renew(v1::Renew { held, ttl_ms, progress })),
        held().prop_map(Ask::Release),
        held().prop_map(Ask::Rotate),
        held().prop_map(Ask::Confirm),
        held().prop_map(Ask::Drained),
        held().prop_map(Ask::ConfirmHold),
        (named(), any::<u64>()).prop_map(|(held, at)| Ask::Progress(v1::Progress { held, at })),
        (named(), any::<u64>()).prop_map(|(held, at)| Ask::Pin(v1::Pin { held, at })),
        (named(), any::<u32>()).prop_map(|(held, units)| Ask::ResizeHold(v1::ResizeHold { held, units })),
        (named(), any::<u64>()).prop_map(|(held, for_ms)| Ask::Veto(v1::Veto { held, for_ms })),
        (named(), text(), option::of(bytes()), option::of(any::<u64>()))
            .prop_map(|(held, key, value, expect)| Ask::Put(v1::Put { held, key, value, expect })),
    ]
}

fn orders() -> impl Strategy<Value = Ask> {
    let revoked =
        prop_oneof![any::<u64>().prop_map(v1::revoke::Which::Lease), text().prop_map(v1::revoke::Which::Resource)];
    let handed =
        prop_oneof![any::<u64>().prop_map(v1::hand_off::Which::Lease), text().prop_map(v1::hand_off::Which::Resource)];
    let session = || any::<u64>().prop_map(Some);
    let known = option::of((any::<u32>(), any::<u64>()).prop_map(|(count, digest)| v1::Known { count, digest }));
    prop_oneof![
        (revoked, 1..=11_i32, text(), any::<u64>()).prop_map(|(which, reason, why, grace_ms)| {
            Ask::Revoke(v1::Revoke { which: Some(which), reason, why, grace_ms })
        }),
        (handed, option::of(number()), option::of(text()), 0..=2_i32, option::of(any::<u64>())).prop_map(
            |(which, number, to, style, drain_ms)| {
                let which = Some(which);
                Ask::HandOff(v1::HandOff { which, number, token: String::new(), to, style, drain_ms })
            }
        ),
        (text(), text()).prop_map(|(resource, why)| Ask::Free(v1::Free { resource, why })),
        (text(), any::<u32>()).prop_map(|(resource, units)| Ask::SetCapacity(v1::SetCapacity { resource, units })),
        (text(), any::<u64>()).prop_map(|(resource, below)| Ask::Collect(v1::Collect { resource, below })),
        (known, session()).prop_map(|(known, session)| Ask::RenewSession(v1::RenewSession { known, session })),
        (prop::collection::vec(any::<u64>(), 0..9), session(), session(), session())
            .prop_map(|(leases, session, from, until)| Ask::Reconcile(v1::Reconcile { leases, session, from, until })),
        session().prop_map(|session| Ask::CloseSession(v1::CloseSession { session })),
        (any::<u64>(), session()).prop_map(|(sequence, session)| Ask::Cancel(v1::Cancel { sequence, session })),
        (text(), text()).prop_map(|(prefix, why)| Ask::RemoveCharter(v1::RemoveCharter { prefix, why })),
        text().prop_map(|why| Ask::WaiveQuarantine(v1::WaiveQuarantine { why })),
        (text(), charter(), text()).prop_map(|(prefix, charter, why)| {
            Ask::SetCharter(Box::new(v1::SetCharter { prefix, charter: Some(charter), why }))
        }),
        (text(), text(), text()).prop_map(|(resource, target, why)| Ask::ForgetTarget(v1::ForgetTarget {
            resource,
            target,
            why
        })),
        prop::collection::vec(report(), 0..4)
            .prop_map(|reports| { Ask::Report(v1::Reports { cluster: CALLER.issuer.cluster.to_string(), reports }) }),
        Just(Ask::ShowToken(v1::ShowToken::default())),
        Just(Ask::StepDown(v1::StepDown {})),
    ]
}

fn report() -> impl Strategy<Value = v1::FenceReport> {
    let zombie = (number(), number(), any::<u64>(), text())
        .prop_map(|(presented, mark, times, holder)| v1::RefusedZombie { presented, mark, times, holder });
    let counts = (any::<u64>(), any::<u64>(), any::<u64>());
    (text(), any::<u32>(), text(), 1..3_i32, counts, option::of(number()), option::of(zombie)).prop_map(
        |(resource, slot, target, mode, (checks, refusals, checked_ago_ms), highest, zombie)| v1::FenceReport {
            resource,
            slot,
            target,
            mode,
            checks,
            refusals,
            checked_ago_ms,
            highest,
            zombie,
        },
    )
}

fn payloads() -> impl Strategy<Value = Ask> {
    use v1::cache::Ask as OfCache;
    use v1::delivery::Ask as OfQueue;
    let receipt = || (any::<u64>(), number()).prop_map(|(item, receipt)| v1::Receipt { item, receipt });
    let queue = prop_oneof![
        (bytes(), any::<u64>(), option::of(any::<u32>())).prop_map(|(body, delay_ms, max_attempts)| {
            OfQueue::Enqueue(v1::Enqueue { body, delay_ms, max_attempts })
        }),
        (text(), option::of(any::<u64>()), any::<u64>(), any::<u32>()).prop_map(
            |(holder, session, visibility_ms, most)| {
                OfQueue::Receive(v1::Receive { holder, session, visibility_ms, most })
            }
        ),
        (receipt(), any::<u64>())
            .prop_map(|(of, visibility_ms)| OfQueue::Extend(v1::Extend { of: Some(of), visibility_ms })),
        receipt().prop_map(OfQueue::Ack),
        (receipt(), any::<u64>()).prop_map(|(of, delay_ms)| OfQueue::Nack(v1::Nack { of: Some(of), delay_ms })),
        any::<u64>().prop_map(OfQueue::Redrive),
        any::<u64>().prop_map(OfQueue::Drop),
    ];
    let party = || {
        (text(), option::of(any::<u64>()), any::<u64>()).prop_map(|(holder, session, ttl_ms)| v1::CacheParty {
            holder,
            session,
            ttl_ms,
        })
    };
    let cache = prop_oneof![
        party().prop_map(OfCache::Read),
        party().prop_map(OfCache::Intend),
        number().prop_map(OfCache::RenewRead),
        number().prop_map(OfCache::Invalidated),
        number().prop_map(OfCache::Commit),
        number().prop_map(OfCache::Abort),
        number().prop_map(OfCache::Filled),
        (party(), option::of(any::<u64>()))
            .prop_map(|(by, missing)| OfCache::GetOrFill(v1::GetOrFill { by: Some(by), missing })),
    ];
    prop_oneof![
        (text(), queue).prop_map(|(queue, ask)| Ask::Delivery(v1::Delivery { queue, ask: Some(ask) })),
        (text(), cache).prop_map(|(key, ask)| Ask::Cache(v1::Cache { key, ask: Some(ask) })),
    ]
}

/// Any charter, possible or not.
pub fn charter() -> impl Strategy<Value = v1::Charter> {
    let mode = prop_oneof![
        Just(v1::target::Mode::Forced(true)),
        Just(v1::target::Mode::Cooperative(true)),
        Just(v1::target::Mode::Grantor(true)),
        (any::<u64>(), option::of(text())).prop_map(|(assumed_ms, blast_radius)| {
            v1::target::Mode::BoundedPause(v1::BoundedPause { assumed_ms, blast_radius })
        }),
        option::of(text()).prop_map(|why| v1::target::Mode::None(v1::Unfenced { why })),
    ];
    let target = (text(), text(), option::of(mode)).prop_map(|(name, at, mode)| v1::Target { name, at, mode });
    let starts_from = prop_oneof![
        Just(v1::starts_from::At::Newest(true)),
        Just(v1::starts_from::At::Nothing(true)),
        text().prop_map(v1::starts_from::At::Key),
    ];
    let handoff = (1..=2_i32, any::<u64>()).prop_map(|(style, drain_ms)| v1::HandoffTerms { style, drain_ms });
    let ms = || option::of(any::<u64>());
    let words = (0..=8_i32, 0..=3_i32, 0..=3_i32, 0..=1_i32, 0..=2_i32, 0..=1_i32);
    let texts = (option::of(text()), option::of(text()), prop::collection::vec(text(), 0..3));
    let times = (ms(), ms(), ms(), ms(), ms());
    let rest = (
        prop::collection::vec(target, 0..3),
        option::of(ms().prop_map(|window_ms| v1::RenewalTerms { window_ms })),
        option::of(handoff),
        option::of(starts_from.prop_map(|at| v1::StartsFrom { at: Some(at) })),
        option::of(any::<u32>()),
    );
    (words, texts, times, rest).prop_map(|(words, texts, times, rest)| v1::Charter {
        payload: words.0,
        rung: words.1,
        uncommitted: words.2,
        after_revocation: words.3,
        deadlock: words.4,
        token_on_renewal: words.5,
        observer: texts.0,
        price_of_failure: texts.1,
        authority: texts.2,
        ttl_min_ms: times.0,
        ttl_max_ms: times.1,
        max_hold_ms: times.2,
        veto_ms: times.3,
        preempt_after_ms: times.4,
        targets: rest.0,
        renewal: rest.1,
        handoff: rest.2,
        starts_from: rest.3,
        capacity: rest.4,
    })
}

/// Anything that a well-behaved client may ask.
pub fn any_ask() -> impl Strategy<Value = Ask> {
    prop_oneof![acquires(), holds(), orders(), payloads()]
}
