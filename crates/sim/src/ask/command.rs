//! A request of these worlds as the core's command.

use leasehold_core::charter::{Charter, Preemption};
use leasehold_core::command::{
    Acquire, AcquireAll, Command, HandOff, Held, OpenSession, Renew, Revoke, Secret, Style, Terms, Which,
};
use leasehold_core::coverage::{Mode, Refused, Report};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::payload::{cache, delivery};

use super::{Ask, EXCLUSIVE, KEY, Known, QUEUE, READ, RUSH, RUSH_GRACE, WORK, WORK_WINDOW};
use crate::server::CLUSTER;

impl Known {
    const fn held(&self) -> Held<'static> {
        Held { lease: Which::Id(self.lease), number: self.number, session: self.session, holder: None }
    }
}

/// The secret of an actor's sessions, or of who pretends to be it.
fn secret(of: u8) -> Secret {
    Secret([of; 32])
}

impl Ask {
    /// Hands the core's command to `then`.
    pub fn command<R>(&self, holder: &str, then: impl FnOnce(Command<'_>) -> R) -> R {
        let terms = |wait: u64| Terms { wait_ms: wait, ..Terms::DEFAULT };
        let deliver = |command| Command::Delivery(command);
        let command = match self {
            Self::Open { ttl, waits_only, secret: own } => Command::OpenSession(OpenSession {
                holder,
                ttl_ms: *ttl,
                secret: secret(*own),
                waits_only: *waits_only,
            }),
            Self::RenewSession { session } => Command::RenewSession { session: *session, known: None },
            Self::Close { session } => Command::CloseSession { session: *session },
            Self::Acquire { resource, session, access, how } => Command::Acquire(Acquire {
                resource,
                holder: if session.is_some() { "" } else { holder },
                session: *session,
                access: *access,
                slots: (*access == Access::Slot).then_some(2),
                ttl_ms: how.ttl,
                terms: Terms {
                    max_hold_ms: how.max_hold,
                    priority: how.priority,
                    reentrant: how.again,
                    progress_ms: (*resource == WORK).then_some(WORK_WINDOW),
                    ..terms(how.wait)
                },
            }),
            Self::AcquireAll { resources, session, ttl, wait } => {
                let wanted: Vec<_> = resources.iter().map(|name| (*name, Access::Exclusive)).collect();
                let several = AcquireAll {
                    wanted: &wanted,
                    holder: "",
                    session: Some(*session),
                    ttl_ms: *ttl,
                    terms: terms(*wait),
                };
                return then(Command::AcquireAll(several));
            }
            Self::Cancel { session, sequence } => Command::Cancel { session: *session, sequence: *sequence },
            Self::Renew { held, progress } => {
                Command::Renew(Renew { held: held.held(), ttl_ms: None, progress: *progress })
            }
            Self::Release { held } => Command::Release(held.held()),
            Self::Confirm { held } => Command::Confirm(held.held()),
            Self::Rotate { held } => Command::Rotate(held.held()),
            Self::Drained { held } => Command::Drained(held.held()),
            Self::ConfirmHold { held } => Command::ConfirmHold(held.held()),
            Self::ResizeHold { held, units } => Command::ResizeHold { held: held.held(), units: *units },
            Self::Put { held, value } => {
                let bytes = value.to_be_bytes();
                return then(Command::Put { held: held.held(), key: "at", bytes: Some(&bytes), expect: None });
            }
            Self::Revoke { resource, grace } => Command::Revoke(Revoke {
                which: Which::Resource(resource),
                reason: Reason::Operator,
                why: "drill",
                grace_ms: *grace,
            }),
            Self::HandOff { resource, overlap, drain } => Command::HandOff(HandOff {
                which: Which::Resource(resource),
                number: None,
                to: None,
                style: Some(if *overlap { Style::Overlap } else { Style::Gap }),
                drain_ms: Some(*drain),
            }),
            Self::SetCapacity { resource, units } => Command::SetCapacity { resource, units: *units },
            Self::Enqueue { body, attempts } => {
                let body = body.to_be_bytes();
                let attempts = Some(*attempts);
                return then(deliver(delivery::Command::Enqueue {
                    queue: QUEUE,
                    body: &body,
                    delay_ms: 0,
                    max_attempts: attempts,
                }));
            }
            Self::Receive { session, visibility, most } => deliver(delivery::Command::Receive {
                queue: QUEUE,
                session: *session,
                holder,
                visibility_ms: *visibility,
                most: *most,
            }),
            Self::Ack { item, receipt } => {
                deliver(delivery::Command::Ack { queue: QUEUE, item: *item, receipt: *receipt })
            }
            Self::Nack { item, receipt } => {
                deliver(delivery::Command::Nack { queue: QUEUE, item: *item, receipt: *receipt, delay_ms: 0 })
            }
            Self::Extend { item, receipt, visibility } => deliver(delivery::Command::Extend {
                queue: QUEUE,
                item: *item,
                receipt: *receipt,
                visibility_ms: *visibility,
            }),
            Self::Resume { session, secret: own } => Command::ResumeSession { session: *session, secret: secret(*own) },
            Self::Pin { held, at } => Command::Pin { held: held.held(), at: *at },
            Self::Collect { below } => Command::Collect { resource: READ, below: *below },
            Self::Read { session, ttl } => {
                Command::Cache(cache::Command::Read { key: KEY, session: *session, reader: holder, ttl_ms: *ttl })
            }
            Self::Dropped { lease } => Command::Cache(cache::Command::Invalidated { key: KEY, lease: *lease }),
            Self::Intend { session, ttl } => {
                Command::Cache(cache::Command::Intend { key: KEY, session: *session, writer: holder, ttl_ms: *ttl })
            }
            Self::Commit { intent } => Command::Cache(cache::Command::Commit { key: KEY, intent: *intent }),
            Self::Abort { intent } => Command::Cache(cache::Command::Abort { key: KEY, number: *intent }),
            Self::Report { target, presented, mark } => {
                let refused = Refused { presented: *presented, mark: *mark, times: 1, holder: "" };
                let report = Report {
                    resource: EXCLUSIVE[*target],
                    slot: 0,
                    target: "target",
                    mode: Mode::Cooperative,
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
                Command::SetCharter { prefix: RUSH, charter, why: "the urgent go first" }
            }
            Self::Show => Command::Show,
        };
        then(command)
    }
}
