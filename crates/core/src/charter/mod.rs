//! What is agreed about a resource before anybody holds it, written down so that it can be enforced and questioned.

mod check;
mod concerns;
mod encode;
mod question;
#[cfg(test)]
mod sample;
mod table;
mod terms;
mod validate;

pub use check::{Answer, By, Finding, check, is_complete};
pub use question::{Axis, Question};
pub use table::{Charters, TooManyCharters};
pub use terms::{
    AfterRevocation, AtExpiry, Handoff, Mode, OnDeadlock, Payload, Preemption, Renewal, StartsFrom, Style, Target,
    TokenOnRenewal, Uncommitted,
};
pub use validate::CharterError;

use crate::lease::Rung;
use crate::limits::TTL_MIN;

/// The terms of every lease under one prefix. What nobody answered is absent, and [`check`] asks for it.
///
/// The default is what a resource without a charter gets: it works, with the careful choice for every term
/// (`unwrap_or_default` of an absent one), and answers almost nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charter {
    /// What the lease is for.
    pub payload: Option<Payload>,
    /// What its validity must rest on.
    pub rung: Option<Rung>,
    /// Who watches that rung, and when a holder's view may differ.
    pub observer: Option<String>,
    /// What is lost when two act at once, and whether the rung is worth it.
    pub price_of_failure: Option<String>,
    /// What the holder may touch, item by item.
    pub authority: Vec<String>,
    /// Where the holder's writes go.
    pub targets: Vec<Target>,
    /// What a renewal proves.
    pub renewal: Option<Renewal>,
    /// Shortest ttl, in milliseconds; absent: the shortest there is.
    pub ttl_min_ms: Option<u64>,
    /// Longest ttl, in milliseconds; absent: the cluster's.
    pub ttl_max_ms: Option<u64>,
    /// Longest hold over all renewals, in milliseconds; absent: as each lease asks.
    pub max_hold_ms: Option<u64>,
    /// How it changes hands.
    pub handoff: Option<Handoff>,
    /// What becomes of the predecessor's unrecorded work.
    pub uncommitted: Option<Uncommitted>,
    /// Where a successor goes on.
    pub starts_from: Option<StartsFrom>,
    /// What happens when it runs out.
    pub at_expiry: AtExpiry,
    /// What happens after a revocation.
    pub after_revocation: AfterRevocation,
    /// What is done about a deadlock.
    pub deadlock: OnDeadlock,
    /// Whether a waiter may take it.
    pub preemption: Preemption,
    /// Which token a renewal leaves.
    pub token_on_renewal: TokenOnRenewal,
    /// Units of each resource; absent: one, or as the resource was sized. A smaller number takes nothing away (C3).
    pub capacity: Option<u32>,
}

impl Charter {
    /// Shortest and longest ttl under this charter, in milliseconds.
    pub fn ttl_bounds(&self, cluster_max_ttl: u64) -> (u64, u64) {
        let longest = self.ttl_max_ms.map_or(cluster_max_ttl, |max| max.min(cluster_max_ttl));
        (self.ttl_min_ms.unwrap_or(TTL_MIN), longest)
    }

    /// The window in which work must move, if a renewal has to prove it (G1).
    pub fn progress_window(&self) -> Option<u64> {
        match self.renewal {
            Some(Renewal::Progress { window_ms }) => Some(window_ms),
            Some(Renewal::Pulse) | None => None,
        }
    }
}

/// Whether a text says anything at all; a lone dash or question mark is no answer.
fn says_something(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charter_narrows_the_clusters_ttl_and_never_widens_it() {
        assert_eq!(Charter::default().ttl_bounds(60_000), (TTL_MIN, 60_000));
        let narrow = Charter { ttl_min_ms: Some(1_000), ttl_max_ms: Some(5_000), ..Charter::default() };
        assert_eq!(narrow.ttl_bounds(60_000), (1_000, 5_000));
        let wide = Charter { ttl_max_ms: Some(90_000), ..Charter::default() };
        assert_eq!(wide.ttl_bounds(60_000), (TTL_MIN, 60_000));
    }

    #[test]
    fn only_a_charter_that_asks_for_progress_has_a_window() {
        assert_eq!(Charter::default().progress_window(), None);
        let pulse = Charter { renewal: Some(Renewal::Pulse), ..Charter::default() };
        assert_eq!(pulse.progress_window(), None);
        let progress = Charter { renewal: Some(Renewal::Progress { window_ms: 700 }), ..Charter::default() };
        assert_eq!(progress.progress_window(), Some(700));
    }
}
