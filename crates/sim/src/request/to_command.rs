//! Conversion of a simulated request to a core command.

use leasehold_core::charter::{Charter, Preemption};
use leasehold_core::command::{
    Acquire, AcquireAll, AcquireOptions, Command, Handoff, HandoffMode, LeaseRef, LeaseSelector, OpenSession, Renew,
    Revoke,
};
use leasehold_core::coverage::{FenceMode, FenceReport, RefusedZombie};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::secret::SecretDigest;

use super::{KnownLease, SimRequest};
use crate::run_constants::{CLUSTER, EXCLUSIVE, KEY, QUEUE, READ, RUSH, RUSH_GRACE, WORK, WORK_WINDOW};

impl KnownLease {
    const fn held(&self) -> LeaseRef<'static> {
        LeaseRef { selector: LeaseSelector::Id(self.lease), number: self.number, session: self.session, holder: None }
    }
}

/// Secret of an actor's sessions, or of an actor that pretends to be it.
fn secret(of: u8) -> SecretDigest {
    [of; 32].into()
}

impl SimRequest {
    /// Passes the core's command to `then`.
    pub fn command<R>(&self, holder: &str, then: impl FnOnce(Command<'_>) -> R) -> R {
        let terms = |wait: u64| AcquireOptions { wait_ms: wait, ..AcquireOptions::DEFAULT };
        let deliver = |command| Command::Delivery(command);
        let command = match self {
            Self::Open { ttl, waits_only, secret: own } => Command::OpenSession(OpenSession {
                holder,
                ttl_ms: *ttl,
                secret: secret(*own),
                waits_only: *waits_only,
            }),
            Self::RenewSession { session } => Command::RenewSession { session: *session, held: None },
            Self::Close { session } => Command::CloseSession { session: *session },
            Self::Acquire { resource, session, access, options } => Command::Acquire(Acquire {
                resource,
                holder,
                session: *session,
                access: *access,
                slots: (*access == Access::Slot).then_some(2),
                ttl_ms: options.ttl,
                options: AcquireOptions {
                    max_hold_ms: options.max_hold,
                    priority: options.priority,
                    reentrant: options.reentrant,
                    progress_ms: (*resource == WORK).then_some(WORK_WINDOW),
                    ..terms(options.wait)
                },
            }),
            Self::AcquireAll { resources, session, ttl, wait } => {
                let wanted: Vec<_> = resources.iter().map(|name| (*name, Access::Exclusive)).collect();
                let several = AcquireAll {
                    resources: &wanted,
                    holder: "",
                    session: Some(*session),
                    ttl_ms: *ttl,
                    options: terms(*wait),
                };
                return then(Command::AcquireAll(several));
            }
            Self::Cancel { session, sequence } => Command::Cancel { session: *session, sequence: *sequence },
            Self::Renew { held, progress } => {
                Command::Renew(Renew { lease: held.held(), ttl_ms: None, progress: *progress })
            }
            Self::Release { held } => Command::Release(held.held()),
            Self::Confirm { held } => Command::Confirm(held.held()),
            Self::Rotate { held } => Command::Rotate(held.held()),
            Self::Drained { held } => Command::Drained(held.held()),
            Self::ConfirmHold { held } => Command::ConfirmHold(held.held()),
            Self::ResizeHold { held, units } => Command::ResizeHold { lease: held.held(), units: *units },
            Self::Put { held, value } => {
                let bytes = value.to_be_bytes();
                return then(Command::Put { lease: held.held(), key: "at", bytes: Some(&bytes), expect: None });
            }
            Self::Revoke { resource, grace } => Command::Revoke(Revoke {
                selector: LeaseSelector::Resource(resource),
                reason: EndReason::Operator,
                comment: "drill",
                grace_ms: *grace,
            }),
            Self::Handoff { resource, overlap, drain } => Command::Handoff(Handoff {
                selector: LeaseSelector::Resource(resource),
                number: None,
                to: None,
                mode: Some(if *overlap { HandoffMode::Overlap } else { HandoffMode::Gap }),
                drain_ms: Some(*drain),
            }),
            Self::SetCapacity { resource, units } => Command::SetCapacity { resource, units: *units },
            Self::Enqueue { body, attempts } => {
                let body = body.to_be_bytes();
                let attempts = Some(*attempts);
                return then(deliver(delivery::DeliveryCommand::Enqueue {
                    queue: QUEUE,
                    body: &body,
                    delay_ms: 0,
                    max_attempts: attempts,
                }));
            }
            Self::Receive { session, visibility, limit } => deliver(delivery::DeliveryCommand::Receive {
                queue: QUEUE,
                session: *session,
                holder,
                visibility_ms: *visibility,
                limit: *limit,
            }),
            Self::Ack { item, receipt } => {
                deliver(delivery::DeliveryCommand::Ack { queue: QUEUE, item: *item, receipt: *receipt })
            }
            Self::Nack { item, receipt } => {
                deliver(delivery::DeliveryCommand::Nack { queue: QUEUE, item: *item, receipt: *receipt, delay_ms: 0 })
            }
            Self::Extend { item, receipt, visibility } => deliver(delivery::DeliveryCommand::Extend {
                queue: QUEUE,
                item: *item,
                receipt: *receipt,
                visibility_ms: *visibility,
            }),
            Self::Resume { session, secret: own } => Command::ResumeSession { session: *session, secret: secret(*own) },
            Self::Pin { held, at } => Command::Pin { lease: held.held(), at: *at },
            Self::Collect { below } => Command::Collect { resource: READ, below: *below },
            Self::Read { session, ttl } => {
                Command::Cache(cache::CacheCommand::Read { key: KEY, session: *session, reader: holder, ttl_ms: *ttl })
            }
            Self::Dropped { lease } => Command::Cache(cache::CacheCommand::Invalidated { key: KEY, lease: *lease }),
            Self::Intend { session, ttl } => Command::Cache(cache::CacheCommand::Intend {
                key: KEY,
                session: *session,
                writer: holder,
                ttl_ms: *ttl,
            }),
            Self::Commit { intent } => Command::Cache(cache::CacheCommand::Commit { key: KEY, intent: *intent }),
            Self::Abort { intent } => Command::Cache(cache::CacheCommand::Abort { key: KEY, number: *intent }),
            Self::Report { target, presented, mark } => {
                let refused = RefusedZombie { presented: *presented, mark: *mark, times: 1, holder: "" };
                let report = FenceReport {
                    resource: EXCLUSIVE[*target],
                    slot: 0,
                    target: "target",
                    mode: FenceMode::Cooperative,
                    checks: 1,
                    refusals: 1,
                    checked_ago_ms: 0,
                    highest: Some(*mark),
                    zombie: Some(refused),
                };
                return then(Command::Report { cluster: CLUSTER, reports: &[report] });
            }
            Self::SetCharter => {
                let preemption = Preemption::LowerPriority { grace_ms: RUSH_GRACE };
                let charter = Box::new(Charter { preemption, ..Charter::default() });
                Command::SetCharter { prefix: RUSH, charter, comment: "higher priority preempts" }
            }
            Self::ObserveToken => Command::ObserveToken,
        };
        then(command)
    }
}
