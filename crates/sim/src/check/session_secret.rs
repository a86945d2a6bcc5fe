//! S2: resuming a session requires its secret, and the secret is sufficient.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::refusal::Refusal;

use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks opened and resumed sessions.
pub fn check(history: &History) -> CheckFinding {
    let mut opening = BTreeMap::new();
    let mut resuming = BTreeMap::new();
    let mut secrets = BTreeMap::new();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::Requested { op, request: SimRequest::Open { secret, .. }, .. } => {
                opening.insert(*op, *secret);
            }
            HistoryEvent::Requested { op, request: SimRequest::Resume { session, secret }, .. } => {
                resuming.insert(*op, (*session, *secret));
            }
            // Sessions opened since are gone; their ids may be reused.
            HistoryEvent::JournalReverted { .. } => secrets.clear(),
            HistoryEvent::ReplySent { op, answer: Answer::Session(grant), .. } => {
                if let Some(secret) = opening.get(op) {
                    secrets.insert(grant.session, *secret);
                }
                if let Some((session, presented)) = resuming.get(op)
                    && secrets.get(session).is_some_and(|secret| secret != presented)
                {
                    return broken("S2", *at, format!("#{op} resumes {session} without its secret"));
                }
            }
            HistoryEvent::ReplySent { op, answer: Answer::Refused(Refusal::Denied(_)), .. } => {
                if let Some((session, presented)) = resuming.get(op)
                    && secrets.get(session) == Some(presented)
                {
                    return broken("S2", *at, format!("#{op} has the secret of {session} and is denied"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::command::SessionGrant;
    use leasehold_core::ids::SessionId;

    use super::super::sample_histories::*;
    use super::*;

    #[test]
    fn the_secret_resumes_a_session_and_a_guess_does_not() {
        let session = SessionId { slot: 0, reuse: 0 };
        let grant = Answer::Session(SessionGrant { session, ttl_ms: 1_000, remaining_ms: 1_000, mismatch: false });
        let open = || HistoryEvent::Requested {
            op: 1,
            actor: 8,
            request: SimRequest::Open { ttl: 1_000, waits_only: false, secret: 7 },
        };
        let resume =
            |secret| HistoryEvent::Requested { op: 2, actor: 9, request: SimRequest::Resume { session, secret } };
        let run = |secret, answer| {
            history([open(), reply_sent(1, 1, 0, grant.clone()), resume(secret), reply_sent(2, 1, 0, answer)])
        };
        let denied = || Answer::Refused(Refusal::Denied("not yours"));
        assert_eq!(check(&run(7, grant.clone())), Ok(()));
        assert_eq!(check(&run(8, denied())), Ok(()));
        assert_eq!(check(&run(8, grant.clone())).unwrap_err().promise, "S2");
        assert_eq!(check(&run(7, denied())).unwrap_err().promise, "S2");
    }
}
