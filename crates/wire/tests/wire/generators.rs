//! Generators of valid messages.

use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_wire::v1::{self, request::Operation};
use leasehold_wire::{CommandContext, TokenIssuer};
use proptest::option;
use proptest::prelude::*;

/// The cluster of the tests.
pub const ISSUER: TokenIssuer = TokenIssuer { cluster: Cluster(*b"examples"), incarnation: Incarnation(7) };

/// The caller of a unary call, which has no session.
pub const CALLER: CommandContext = CommandContext { session: None, issuer: ISSUER };

/// A token of the test cluster.
pub fn token(resource: &str, number: u64) -> Token {
    Token {
        cluster: ISSUER.cluster,
        incarnation: ISSUER.incarnation,
        resource: leasehold_core::name::resource_hash(resource),
        scope: TokenScope::Slot(0),
        number: Number::new(number).expect("a number"),
    }
}

/// Any valid token number.
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

fn options() -> impl Strategy<Value = v1::AcquireOptions> {
    let priority = option::of((0..256_u32).prop_filter("the default priority is not encoded", |p| *p != 100));
    (any::<u64>(), priority, any::<bool>(), option::of(any::<u64>()), option::of(any::<u64>()), bytes()).prop_map(
        |(wait_ms, priority, reentrant, max_hold_ms, progress_ms, metadata)| v1::AcquireOptions {
            wait_ms,
            priority,
            reentrant,
            max_hold_ms,
            progress_ms,
            metadata,
        },
    )
}

fn lease_ref() -> impl Strategy<Value = v1::LeaseRef> + Clone {
    let which = prop_oneof![
        any::<u64>().prop_map(v1::lease_ref::Selector::Lease),
        text().prop_map(v1::lease_ref::Selector::Resource),
    ];
    (which, number(), option::of(text())).prop_map(|(which, number, holder)| v1::LeaseRef {
        selector: Some(which),
        token_number: number,
        token: String::new(),
        holder,
    })
}

fn acquire_operations() -> impl Strategy<Value = Operation> {
    let session = || option::of(any::<u64>());
    let ms = || option::of(any::<u64>());
    let one = (text(), text(), session(), access(), option::of(any::<u32>()), ms(), options()).prop_map(
        |(resource, holder, session, (access, units), slots, ttl_ms, terms)| {
            Operation::Acquire(v1::Acquire {
                resource,
                holder,
                session,
                access,
                units,
                slots,
                ttl_ms,
                options: Some(terms),
            })
        },
    );
    let wanted =
        (text(), access()).prop_map(|(resource, (access, units))| v1::ResourceAccess { resource, access, units });
    let all = (prop::collection::vec(wanted, 0..5), text(), session(), ms(), options()).prop_map(
        |(wanted, holder, session, ttl_ms, terms)| {
            Operation::AcquireAll(v1::AcquireAll { resources: wanted, holder, session, ttl_ms, options: Some(terms) })
        },
    );
    prop_oneof![one, all]
}

fn lease_operations() -> impl Strategy<Value = Operation> {
    let named = || lease_ref().prop_map(Some);
    prop_oneof![
        (named(), option::of(any::<u64>()), option::of(any::<u64>()))
            .prop_map(|(held, ttl_ms, progress)| Operation::Renew(v1::Renew { lease: held, ttl_ms, progress })),
        lease_ref().prop_map(Operation::Release),
        lease_ref().prop_map(Operation::Rotate),
        lease_ref().prop_map(Operation::Check),
        lease_ref().prop_map(Operation::FinishDrain),
        lease_ref().prop_map(Operation::ConfirmHold),
        (named(), any::<u64>()).prop_map(|(held, at)| Operation::Progress(v1::Progress { lease: held, progress: at })),
        (named(), any::<u64>()).prop_map(|(held, at)| Operation::Pin(v1::Pin { lease: held, position: at })),
        (named(), any::<u32>()).prop_map(|(held, units)| Operation::ResizeHold(v1::ResizeHold { lease: held, units })),
        (named(), any::<u64>())
            .prop_map(|(held, for_ms)| Operation::Veto(v1::Veto { lease: held, duration_ms: for_ms })),
        (named(), text(), option::of(bytes()), option::of(any::<u64>())).prop_map(|(held, key, value, expect)| {
            Operation::Put(v1::Put { lease: held, key, value, expected_revision: expect })
        }),
    ]
}

fn admin_operations() -> impl Strategy<Value = Operation> {
    let revoked = prop_oneof![
        any::<u64>().prop_map(v1::revoke::Selector::Lease),
        text().prop_map(v1::revoke::Selector::Resource)
    ];
    let handed = prop_oneof![
        any::<u64>().prop_map(v1::handoff::Selector::Lease),
        text().prop_map(v1::handoff::Selector::Resource)
    ];
    let session = || any::<u64>().prop_map(Some);
    let known = option::of((any::<u32>(), any::<u64>()).prop_map(|(count, digest)| v1::HeldDigest { count, digest }));
    prop_oneof![
        (revoked, 1..=11_i32, text(), any::<u64>()).prop_map(|(which, reason, comment, grace_ms)| {
            Operation::Revoke(v1::Revoke { selector: Some(which), reason, comment, grace_ms })
        }),
        (handed, option::of(number()), option::of(text()), 0..=2_i32, option::of(any::<u64>())).prop_map(
            |(which, number, to, style, drain_ms)| {
                let which = Some(which);
                Operation::Handoff(v1::Handoff {
                    selector: which,
                    token_number: number,
                    token: String::new(),
                    to,
                    mode: style,
                    drain_ms,
                })
            }
        ),
        (text(), text()).prop_map(|(resource, comment)| Operation::Free(v1::Free { resource, comment })),
        (text(), any::<u32>())
            .prop_map(|(resource, units)| Operation::SetCapacity(v1::SetCapacity { resource, units })),
        (text(), any::<u64>()).prop_map(|(resource, below)| Operation::Collect(v1::Collect { resource, below })),
        (known, session())
            .prop_map(|(known, session)| Operation::RenewSession(v1::RenewSession { held: known, session })),
        (prop::collection::vec(any::<u64>(), 0..9), session(), session(), session()).prop_map(
            |(leases, session, from, until)| Operation::Reconcile(v1::Reconcile { leases, session, from, until })
        ),
        session().prop_map(|session| Operation::CloseSession(v1::CloseSession { session })),
        (any::<u64>(), session()).prop_map(|(sequence, session)| Operation::Cancel(v1::Cancel { sequence, session })),
        (text(), text()).prop_map(|(prefix, comment)| Operation::RemoveCharter(v1::RemoveCharter { prefix, comment })),
        text().prop_map(|comment| Operation::WaiveQuarantine(v1::WaiveQuarantine { comment })),
        (any::<u64>(), text())
            .prop_map(|(max_ttl_ms, comment)| Operation::SetMaxTtl(v1::SetMaxTtl { max_ttl_ms, comment })),
        (text(), charter(), text()).prop_map(|(prefix, charter, comment)| {
            Operation::SetCharter(Box::new(v1::SetCharter { prefix, charter: Some(charter), comment }))
        }),
        (text(), text(), text()).prop_map(|(resource, target, comment)| Operation::ForgetTarget(v1::ForgetTarget {
            resource,
            target,
            comment
        })),
        prop::collection::vec(report(), 0..4).prop_map(|reports| {
            Operation::ReportFences(v1::FenceReports { cluster: CALLER.issuer.cluster.to_string(), reports })
        }),
        Just(Operation::ObserveToken(v1::ObserveToken::default())),
        Just(Operation::StepDown(v1::StepDown {})),
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

fn payload_operations() -> impl Strategy<Value = Operation> {
    use v1::cache_command::Command as Cache;
    use v1::delivery_command::Command as Queue;
    let receipt = || (any::<u64>(), number()).prop_map(|(item, receipt)| v1::Receipt { item, receipt });
    let queue = prop_oneof![
        (bytes(), any::<u64>(), option::of(any::<u32>())).prop_map(|(body, delay_ms, max_attempts)| {
            Queue::Enqueue(v1::Enqueue { body, delay_ms, max_attempts })
        }),
        (text(), option::of(any::<u64>()), any::<u64>(), any::<u32>()).prop_map(
            |(holder, session, visibility_ms, limit)| {
                Queue::Receive(v1::Receive { holder, session, visibility_ms, limit, wait_ms: 0 })
            }
        ),
        (receipt(), any::<u64>())
            .prop_map(|(of, visibility_ms)| Queue::Extend(v1::Extend { delivery: Some(of), visibility_ms })),
        receipt().prop_map(Queue::Ack),
        (receipt(), any::<u64>()).prop_map(|(of, delay_ms)| Queue::Nack(v1::Nack { delivery: Some(of), delay_ms })),
        any::<u64>().prop_map(Queue::Redrive),
        any::<u64>().prop_map(Queue::Drop),
    ];
    let actor = || {
        (text(), option::of(any::<u64>()), any::<u64>()).prop_map(|(holder, session, ttl_ms)| v1::CacheActor {
            holder,
            session,
            ttl_ms,
        })
    };
    let cache = prop_oneof![
        actor().prop_map(Cache::Read),
        actor().prop_map(Cache::Intend),
        number().prop_map(Cache::RenewRead),
        number().prop_map(Cache::Invalidated),
        number().prop_map(Cache::Commit),
        number().prop_map(Cache::Abort),
        number().prop_map(Cache::Filled),
        (actor(), option::of(any::<u64>())).prop_map(|(actor, missing_version)| Cache::GetOrFill(v1::GetOrFill {
            actor: Some(actor),
            missing_version
        })),
    ];
    prop_oneof![
        (text(), queue).prop_map(|(queue, ask)| Operation::Delivery(v1::DeliveryCommand { queue, command: Some(ask) })),
        (text(), cache).prop_map(|(key, ask)| Operation::Cache(v1::CacheCommand { key, command: Some(ask) })),
    ]
}

/// Any charter, whether the grantor can honor it or not.
pub fn charter() -> impl Strategy<Value = v1::Charter> {
    let mode = prop_oneof![
        Just(v1::target::Mode::Forced(true)),
        Just(v1::target::Mode::Cooperative(true)),
        Just(v1::target::Mode::Grantor(true)),
        (any::<u64>(), option::of(text())).prop_map(|(assumed_ms, blast_radius)| {
            v1::target::Mode::BoundedPause(v1::BoundedPause { assumed_ms, blast_radius })
        }),
        option::of(text()).prop_map(|comment| v1::target::Mode::None(v1::Unfenced { comment })),
    ];
    let target = (text(), text(), option::of(mode), option::of(text()))
        .prop_map(|(name, at, mode, reporter)| v1::Target { name, at, mode, reporter });
    let starts_from = prop_oneof![
        Just(v1::starts_from::At::Newest(true)),
        Just(v1::starts_from::At::Nothing(true)),
        text().prop_map(v1::starts_from::At::Key),
    ];
    let handoff = (1..=2_i32, any::<u64>()).prop_map(|(style, drain_ms)| v1::HandoffTerms { mode: style, drain_ms });
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
        validity: words.1,
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

/// Any valid operation.
pub fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![acquire_operations(), lease_operations(), admin_operations(), payload_operations()]
}
