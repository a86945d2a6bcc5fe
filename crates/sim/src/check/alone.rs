//! F9: a fence rules by itself: what reaches a target is ruled on there and then, whoever serves.

use std::collections::BTreeMap;

use super::{Finding, broken};
use crate::clock::{At, MS};
use crate::history::{Event, History};

/// How long a ruling may take: much longer than a write, much shorter than an outage.
const RULED: At = 1_000 * MS;

/// Reads what reached the targets and what came of it.
pub fn check(history: &History) -> Finding {
    let mut open: BTreeMap<(u32, u64), At> = BTreeMap::new();
    for (at, event) in &history.events {
        match event {
            Event::Reached { target, id } => {
                open.entry((*target, *id)).or_insert(*at);
            }
            Event::Wrote { target, id, .. } => {
                open.remove(&(*target, *id));
            }
            // What was under way in it is gone.
            Event::TargetKilled { target, .. } => open.retain(|(other, _), _| other != target),
            _ => {}
        }
        if let Some(((target, id), since)) = open.iter().find(|(_, since)| **since + RULED < *at) {
            return broken("F9", *at, format!("target {target} has not ruled on #{id}, which reached it at {since}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::n;
    use super::*;
    use crate::history::{Shown, Verdict};

    #[test]
    fn a_target_rules_at_once_or_is_found() {
        let reached = (0, Event::Reached { target: 0, id: 1 });
        let shown = Shown { number: n(5), incarnation: 1, right: true };
        let ruled = Event::Wrote { target: 0, id: 1, who: 8, shown, value: None, verdict: Verdict::Applied };
        let run = |at| History { events: vec![reached.clone(), (at, ruled.clone())] };
        assert_eq!(check(&run(RULED)), Ok(()));
        assert_eq!(check(&run(RULED + 1)), Ok(()), "it has ruled by then");
        let later = History { events: vec![reached.clone(), (RULED + 1, Event::Healed), (RULED + 2, ruled.clone())] };
        assert_eq!(check(&later).unwrap_err().promise, "F9");
    }
}
