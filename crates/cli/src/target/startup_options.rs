//! Startup options of PostgreSQL connections (`PGOPTIONS`): the tokens and timeouts that a command's connections get.

use std::time::Duration;

/// Longest timeout that the server accepts, in milliseconds.
const MAX_TIMEOUT: u64 = 2_147_483_647;

/// What the options of the caller, the role and the database set already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartupOptions {
    /// The caller's own options, as in `PGOPTIONS`.
    pub callers: String,
    /// Tokens in the setting `leasehold.token`, separated by spaces.
    pub tokens: String,
    /// Timeouts of a statement and of an idle transaction in milliseconds; 0 is none.
    pub statement_timeout: u64,
    pub idle_timeout: u64,
}

impl StartupOptions {
    /// Adds a token. It replaces one for the same resource and slot.
    pub fn with_token(mut self, token: &str) -> Self {
        let others = self.tokens.split(' ').filter(|entry| !entry.is_empty() && scope(entry) != scope(token));
        self.tokens = others.chain([token]).collect::<Vec<_>>().join(" ");
        self
    }

    /// The stricter timeouts of two databases that get the same options.
    pub fn with_timeouts_of(mut self, other: &Self) -> Self {
        self.statement_timeout = shorter(self.statement_timeout, other.statement_timeout);
        self.idle_timeout = shorter(self.idle_timeout, other.idle_timeout);
        self
    }

    /// The value of `PGOPTIONS`. The caller's options come first and are unchanged. A shorter timeout of the caller is kept.
    pub fn text(&self, remaining: Duration) -> String {
        let remaining = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_TIMEOUT);
        let statement = shorter(self.statement_timeout, remaining);
        let idle = shorter(self.idle_timeout, remaining);
        let separator = if self.callers.is_empty() { "" } else { " " };
        format!(
            "{}{separator}-c leasehold.token={} -c statement_timeout={statement} \
             -c idle_in_transaction_session_timeout={idle}",
            self.callers,
            escape(&self.tokens)
        )
    }
}

/// Cluster, resource and slot of a token text.
fn scope(token: &str) -> Option<(&str, &str)> {
    Some((token.get(4..20)?, token.get(29..56)?))
}

/// The shorter of two timeouts, of which 0 is none.
const fn shorter(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        _ if a < b => a,
        _ => b,
    }
}

/// A value in the list of options, in which spaces separate and a backslash escapes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(' ', "\\ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "lh1-00000000000000aa-00000001-00000000000000f1-w00000000-0000000000000000033-00000000";
    const NEWER_A: &str = "lh1-00000000000000aa-00000002-00000000000000f1-w00000000-0000000000000000034-00000000";
    const B: &str = "lh1-00000000000000aa-00000001-00000000000000f2-w00000000-0000000000000000035-00000000";

    #[test]
    fn the_callers_options_are_kept_and_its_shorter_timeouts_too() {
        let callers = StartupOptions { callers: "-c search_path=a\\ b".into(), ..StartupOptions::default() };
        let callers = StartupOptions { statement_timeout: 2_000, idle_timeout: 60_000, ..callers };
        assert_eq!(
            callers.with_token(A).text(Duration::from_secs(10)),
            format!(
                "-c search_path=a\\ b -c leasehold.token={A} -c statement_timeout=2000 \
                 -c idle_in_transaction_session_timeout=10000"
            )
        );
    }

    #[test]
    fn a_token_joins_those_of_other_resources_and_replaces_the_one_of_its_own() {
        let tokens = |first: &str, second: &str| {
            StartupOptions::default().with_token(first).with_token(second).text(Duration::from_secs(1))
        };
        assert!(tokens(A, B).starts_with(&format!("-c leasehold.token={A}\\ {B} -c ")));
        assert!(tokens(A, NEWER_A).starts_with(&format!("-c leasehold.token={NEWER_A} -c ")));
        let unknown = StartupOptions { tokens: "x  y".into(), ..StartupOptions::default() }.with_token(A);
        assert_eq!(unknown.tokens, format!("x y {A}"), "the database refuses what is not a token");
    }

    #[test]
    fn a_timeout_is_never_zero_which_would_be_none() {
        for (remaining, expected) in [(0, 1), (7, 7), (u64::MAX, 2_147_483_647)] {
            let text = StartupOptions::default().with_token(A).text(Duration::from_millis(remaining));
            assert!(text.contains(&format!("-c statement_timeout={expected} ")), "{text}");
        }
    }

    #[test]
    fn two_databases_get_the_stricter_timeouts() {
        let a = StartupOptions { statement_timeout: 5, idle_timeout: 0, ..StartupOptions::default() };
        let b = StartupOptions { statement_timeout: 9, idle_timeout: 4, ..StartupOptions::default() };
        let both = a.with_timeouts_of(&b);
        assert_eq!((both.statement_timeout, both.idle_timeout), (5, 4));
    }
}
