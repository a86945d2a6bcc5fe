//! One sentence on why a resource is held or free. The dashboard and `leasehold top` say the same.

use super::text::{count, duration, plural, shortened};

/// What the sentence is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldReason<'a> {
    /// Number of leases.
    pub held: u64,
    /// The first lease.
    pub first: Option<FirstLease<'a>>,
    /// Number of waiters.
    pub waiters: u64,
    /// A revocation reserved the resource for an operator.
    pub held_for_operator: bool,
    /// Units that were turned into commitments.
    pub confirmed: u64,
    /// Capacity in units.
    pub capacity: u32,
}

/// The first lease of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstLease<'a> {
    /// Name of the holder.
    pub holder: &'a str,
    /// Time since the grant.
    pub held_ms: u64,
    /// Lifetime after each renewal; none if it is that of the session.
    pub ttl_ms: Option<u64>,
    /// Time since the last renewal; none if it is not known.
    pub silent_ms: Option<u64>,
    /// Why the lease is being drained, and the remaining time.
    pub draining: Option<(&'a str, u64)>,
}

impl HoldReason<'_> {
    /// The sentence.
    pub fn sentence(&self) -> String {
        let waiting = match self.waiters {
            0 => String::new(),
            waiters => format!("; {} wait{}", count(waiters), if waiters == 1 { "s" } else { "" }),
        };
        let Some(lease) = &self.first else {
            return match () {
                () if self.held_for_operator => {
                    format!("Blocked after a revocation until an operator frees it{waiting}.")
                }
                () if self.confirmed > 0 => {
                    format!("Free; {} of {} units are committed{waiting}.", self.confirmed, self.capacity)
                }
                () if self.waiters > 0 => format!("Free, and not granted yet{waiting}."),
                () => "Free: no one holds it and no one waits.".to_owned(),
            };
        };
        let holder = shortened(lease.holder, 60);
        let held = duration(lease.held_ms);
        let others = if self.held > 1 { format!(" and {}", plural(self.held - 1, "other")) } else { String::new() };
        let end = match (lease.draining, lease.ttl_ms, lease.silent_ms) {
            (Some((reason, left)), ..) => {
                format!(", asked to stop ({}), ends in {}", reason.replace('_', " "), duration(left))
            }
            (None, None, _) => ", held as long as its session".to_owned(),
            (None, Some(_), Some(silent)) => format!(", renewed {} ago", duration(silent)),
            (None, Some(_), None) => String::new(),
        };
        format!("Held by {holder}{others} for {held}{end}{waiting}.")
    }
}
