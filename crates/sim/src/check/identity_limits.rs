//! A12: no identity has more than its limits, each one is refused by its own limits only, and no renewal is refused by a limit.

use std::collections::BTreeSet;

use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};

/// Checks what each identity has after every turn, and every refusal by a limit of an identity.
pub fn check(history: &History) -> CheckFinding {
    let mut decided = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::Decided { op, .. } => {
                decided.insert(*op);
            }
            HistoryEvent::UsageReported { identity, has, limits } => {
                let counts = [
                    ("sessions", has.sessions, limits.sessions),
                    ("idempotency keys", has.keys, limits.keys),
                    ("leases", has.leases, limits.leases),
                    ("waiters", has.waiters, limits.waiters),
                    ("charters", has.charters, limits.charters),
                    ("targets", has.targets, limits.targets),
                    ("messages", has.messages, limits.messages),
                    ("cache grants", has.cache_grants, limits.cache_grants),
                    ("bytes of state", has.state_bytes, limits.state_bytes),
                ];
                if let Some((what, count, max)) = counts.into_iter().find(|(_, count, max)| count > max) {
                    return broken("A12", *at, format!("{identity} has {count} {what} and may have {max}"));
                }
            }
            HistoryEvent::LimitReached { op, identity, limit, max, has, more, is_renewal } => {
                if *is_renewal {
                    return broken("A12", *at, format!("a renewal of {identity} is refused by its limit of {limit}"));
                }
                // The answer to a retry is the first one, whatever the identity has by now.
                if has + more <= *max && !decided.contains(op) {
                    let what =
                        format!("{identity} has {has} {limit}, requests {more} and may have {max}, but is refused");
                    return broken("A12", *at, what);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::access::{IdentityLimits, IdentityUsage};

    use super::super::sample_histories::history;
    use super::*;

    #[test]
    fn an_identity_above_its_limit_is_found() {
        let reported = |has| {
            let limits = IdentityLimits {
                leases: 2,
                charters: 1,
                targets: 2,
                messages: 1,
                cache_grants: 1,
                state_bytes: 9,
                ..IdentityLimits::UNLIMITED
            };
            history([HistoryEvent::UsageReported { identity: "a".to_owned(), has, limits }])
        };
        let none = IdentityUsage::default();
        let within = IdentityUsage { leases: 2, charters: 1, targets: 2, ..none };
        assert_eq!(check(&reported(within)), Ok(()));
        let above = [
            IdentityUsage { leases: 3, ..none },
            IdentityUsage { charters: 2, ..none },
            IdentityUsage { targets: 3, ..none },
            IdentityUsage { messages: 2, ..none },
            IdentityUsage { cache_grants: 2, ..none },
            IdentityUsage { state_bytes: 10, ..none },
        ];
        for has in above {
            assert_eq!(check(&reported(has)).unwrap_err().promise, "A12", "{has:?}");
        }
    }

    #[test]
    fn a_refusal_below_the_limit_and_a_refused_renewal_are_found() {
        let refused = |has, is_renewal| {
            let (identity, limit) = ("a".to_owned(), "identity_leases");
            history([HistoryEvent::LimitReached { op: 1, identity, limit, max: 2, has, more: 1, is_renewal }])
        };
        assert_eq!(check(&refused(2, false)), Ok(()));
        assert_eq!(check(&refused(1, false)).unwrap_err().promise, "A12");
        assert_eq!(check(&refused(2, true)).unwrap_err().promise, "A12");
    }
}
