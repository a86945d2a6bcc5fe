//! V4: while the disk is full nothing new is granted.

use std::collections::BTreeSet;

use leasehold_core::command::Answer;

use super::{Finding, broken};
use crate::fault::Fault;
use crate::history::{Event, History};

/// Reads what was decided while there was no room.
pub fn check(history: &History) -> Finding {
    let mut full = false;
    let mut granted = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            Event::Struck { fault: Fault::Full, .. } => full = !full,
            Event::Healed => full = false,
            // What was decided before is told again, also when there is no room.
            Event::Decided { op, answer: Answer::Granted(grant), .. } if granted.insert(*op) && full => {
                return broken("V4", *at, format!("{} is granted while the disk is full", grant.number));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn a_full_disk_grants_nothing_and_repeats_what_was_said() {
        let full = || Event::Struck { fault: Fault::Full, what: String::new() };
        let decide = |op| decides(op, 1, 0, grant(5));
        assert_eq!(check(&history([decide(1), full(), decide(1), full(), decide(2)])), Ok(()));
        assert_eq!(check(&history([full(), decide(1)])).unwrap_err().promise, "V4");
    }
}
