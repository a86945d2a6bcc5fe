//! S2: who comes back to a session has its secret, and who has it may come back.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::refusal::Refusal;

use super::{Finding, broken};
use crate::ask::Ask;
use crate::history::{Event, History};

/// Reads who opened what, and what came of coming back.
pub fn check(history: &History) -> Finding {
    let mut opening = BTreeMap::new();
    let mut coming = BTreeMap::new();
    let mut secrets = BTreeMap::new();
    for (at, event) in &history.events {
        match event {
            Event::Asked { op, ask: Ask::Open { secret, .. }, .. } => drop(opening.insert(*op, *secret)),
            Event::Asked { op, ask: Ask::Resume { session, secret }, .. } => {
                coming.insert(*op, (*session, *secret));
            }
            // What was opened since is not there any more; its place may be another's.
            Event::SetBack { .. } => secrets.clear(),
            Event::Told { op, answer: Answer::Session(grant), .. } => {
                if let Some(secret) = opening.get(op) {
                    secrets.insert(grant.session, *secret);
                }
                if let Some((session, shown)) = coming.get(op)
                    && secrets.get(session).is_some_and(|secret| secret != shown)
                {
                    return broken("S2", *at, format!("#{op} comes back to {session} without its secret"));
                }
            }
            Event::Told { op, answer: Answer::Refused(Refusal::Denied(_)), .. } => {
                if let Some((session, shown)) = coming.get(op)
                    && secrets.get(session) == Some(shown)
                {
                    return broken("S2", *at, format!("#{op} has the secret of {session} and is not let in"));
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

    use super::super::sample::*;
    use super::*;

    #[test]
    fn the_secret_lets_in_and_a_guess_does_not() {
        let session = SessionId { slot: 0, reuse: 0 };
        let grant = Answer::Session(SessionGrant { session, ttl_ms: 1_000, remaining_ms: 1_000, mismatch: false });
        let open = || Event::Asked { op: 1, who: 8, ask: Ask::Open { ttl: 1_000, waits_only: false, secret: 7 } };
        let come = |secret| Event::Asked { op: 2, who: 9, ask: Ask::Resume { session, secret } };
        let run =
            |secret, answer| history([open(), tells(1, 1, 0, grant.clone()), come(secret), tells(2, 1, 0, answer)]);
        let denied = || Answer::Refused(Refusal::Denied("not yours"));
        assert_eq!(check(&run(7, grant.clone())), Ok(()));
        assert_eq!(check(&run(8, denied())), Ok(()));
        assert_eq!(check(&run(8, grant.clone())).unwrap_err().promise, "S2");
        assert_eq!(check(&run(7, denied())).unwrap_err().promise, "S2");
    }
}
