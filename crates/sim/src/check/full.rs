//! V4: while the disk is full nothing new is granted.

use leasehold_core::command::Answer;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::fault::Fault;
use crate::history::{Event, History};

/// Reads what was decided while there was no room, against what was on record by then.
pub fn check(history: &History) -> Finding {
    let mut full = false;
    walk(history, |at, ledger, met| {
        match met {
            Met::Other(Event::Struck { fault: Fault::Full, .. }) => full = !full,
            Met::Other(Event::Healed) => full = false,
            Met::Other(Event::Decided { answer: Answer::Granted(grant), generation, .. })
                // What was granted before is told again, also when there is no room.
                if full && *generation == ledger.generation && !ledger.numbers.contains_key(&grant.number.get()) =>
            {
                return broken("V4", at, format!("{} is granted while the disk is full", grant.number));
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn a_full_disk_grants_nothing_and_repeats_what_was_said() {
        let full = || Event::Struck { fault: Fault::Full, what: String::new() };
        let begins = || landed(&[opened(1)]);
        let decide = || decides(1, 1, 0, grant(5));
        assert_eq!(check(&history([begins(), decide()])), Ok(()));
        let again = [begins(), landed(&[granted(0, 5, "jobs/a")]), full(), decide()];
        assert_eq!(check(&history(again)), Ok(()));
        assert_eq!(check(&history([begins(), full(), decide()])).unwrap_err().promise, "V4");
    }
}
