//! Validation of charters: rejects terms that no grantor can enforce. Missing answers are allowed here.

use std::collections::BTreeSet;
use std::fmt;

use super::{
    AtExpiry, Charter, HandoffMode, Payload, Preemption, RenewalProof, StartsFrom, Target, TargetMode, has_words,
};
use crate::lease::Validity;
use crate::limits;
use crate::unicode::{is_invisible, is_misleading};

/// An invalid field of a charter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CharterError {
    /// The field, as spelled in a charter file.
    pub field: &'static str,
    /// The entry, counted from 1, if the field is in a list.
    pub entry: Option<usize>,
    /// What is allowed.
    pub reason: &'static str,
}

impl fmt::Display for CharterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some(entry) => write!(f, "{} (entry {entry}): {}", self.field, self.reason),
            None => write!(f, "{}: {}", self.field, self.reason),
        }
    }
}

impl std::error::Error for CharterError {}

// The reasons below spell these bounds out in words.
const _: () = assert!(limits::TTL_MIN == 100 && limits::GRACE_MAX == 10 * 60_000);
const _: () = assert!(limits::HOLD_MAX == 366 * 24 * 3_600_000 && limits::CAPACITY == 1 << 20);
const _: () = assert!(limits::CHARTER_TARGETS == 64 && limits::CHARTER_AUTHORITY == 64);
const _: () = assert!(limits::CHARTER_TEXT_BYTES == 1_024 && limits::TARGET_NAME_BYTES == 128);
const _: () = assert!(limits::STATE_KEY_BYTES == 128 && limits::CHARTER_BYTES == 16 * 1_024);

const PERIOD_RANGE: &str = "from 1 ms to 10 minutes";
const TEXT_LONG: &str = "at most 1024 bytes";
const KEY_LONG: &str = "at most 128 bytes";

impl Charter {
    /// Rejects terms that a cluster with this longest ttl cannot enforce.
    pub fn validate(&self, cluster_max_ttl: u64) -> Result<(), CharterError> {
        self.times(cluster_max_ttl)?;
        self.choices()?;
        self.texts()?;
        self.all_targets()?;
        ensure(self.encode().len() <= limits::CHARTER_BYTES, "charter", "at most 16 KiB in all; shorten its texts")
    }

    fn times(&self, cluster_max_ttl: u64) -> Result<(), CharterError> {
        if let Some(min) = self.ttl_min_ms {
            ensure(min >= limits::TTL_MIN, "ttl_min_ms", "at least 100 ms")?;
            ensure(min <= cluster_max_ttl, "ttl_min_ms", "not above the cluster's longest ttl")?;
        }
        if let Some(max) = self.ttl_max_ms {
            ensure(max >= limits::TTL_MIN, "ttl_max_ms", "at least 100 ms")?;
            ensure(max <= cluster_max_ttl, "ttl_max_ms", "not above the cluster's longest ttl")?;
        }
        let (min, max) = self.ttl_bounds(cluster_max_ttl);
        ensure(min <= max, "ttl_min_ms", "not above ttl_max_ms")?;
        let hold = self.max_hold_ms.unwrap_or(limits::HOLD_MAX);
        ensure(hold >= min, "max_hold_ms", "not below the shortest ttl; omit it for no limit")?;
        ensure(hold <= limits::HOLD_MAX, "max_hold_ms", "at most 366 days")?;
        if let Some(RenewalProof::Progress { window_ms }) = self.renewal {
            ensure(window_ms >= limits::TTL_MIN, "renewal.window_ms", "at least 100 ms")?;
            ensure(
                window_ms <= hold,
                "renewal.window_ms",
                "not above the maximum hold, which would end the lease first",
            )?;
        }
        if let Some(handoff) = self.handoff {
            check_period(handoff.drain_ms, "handoff.drain_ms")?;
        }
        if let Preemption::LowerPriority { grace_ms } = self.preemption {
            check_period(grace_ms, "preemption.grace_ms")?;
        }
        if let AtExpiry::Veto { max_ms } = self.at_expiry {
            check_period(max_ms, "at_expiry.max_ms")?;
        }
        Ok(())
    }

    fn choices(&self) -> Result<(), CharterError> {
        if let Some(units) = self.capacity {
            ensure((1..=limits::CAPACITY).contains(&units), "capacity", "from 1 to 1048576 units")?;
        }
        let Some(payload) = self.payload else { return Ok(()) };
        let overlap = self.handoff.is_some_and(|handoff| handoff.mode == HandoffMode::Overlap);
        ensure(
            !(overlap && payload == Payload::Exclusion),
            "handoff",
            "payload exclusion never has two holders; choose gap, or another payload",
        )?;
        ensure(
            self.validity != Some(Validity::Issuer) || payload == Payload::Permission,
            "validity",
            "issuer is only for payload permission; choose session or quorum",
        )?;
        ensure(
            self.at_expiry == AtExpiry::Free || payload == Payload::Capacity,
            "at_expiry",
            "veto is only for payload capacity; choose free",
        )
    }

    fn texts(&self) -> Result<(), CharterError> {
        for (field, answer) in [("observer", &self.observer), ("price_of_failure", &self.price_of_failure)] {
            if let Some(answer) = answer {
                text(answer, limits::CHARTER_TEXT_BYTES, field, TEXT_LONG)?;
            }
        }
        ensure(self.authority.len() <= limits::CHARTER_AUTHORITY, "authority", "at most 64 entries")?;
        for (i, item) in self.authority.iter().enumerate() {
            text(item, limits::CHARTER_TEXT_BYTES, "authority", TEXT_LONG).map_err(|e| e.in_entry(i))?;
        }
        match &self.starts_from {
            Some(StartsFrom::Key(key)) => text(key, limits::STATE_KEY_BYTES, "starts_from.key", KEY_LONG),
            Some(StartsFrom::Newest | StartsFrom::Nothing) | None => Ok(()),
        }
    }

    fn all_targets(&self) -> Result<(), CharterError> {
        ensure(self.targets.len() <= limits::CHARTER_TARGETS, "targets", "at most 64 entries")?;
        let mut names = BTreeSet::new();
        for (i, target) in self.targets.iter().enumerate() {
            target.validate().map_err(|e| e.in_entry(i))?;
            ensure(names.insert(&target.name), "targets.name", "each name once").map_err(|e| e.in_entry(i))?;
        }
        Ok(())
    }
}

impl Target {
    fn validate(&self) -> Result<(), CharterError> {
        text(&self.name, limits::TARGET_NAME_BYTES, "targets.name", KEY_LONG)?;
        let visible = !self.name.chars().any(|c| c.is_control() || is_invisible(c));
        ensure(visible, "targets.name", "no line breaks and no invisible characters")?;
        text(&self.at, limits::CHARTER_TEXT_BYTES, "targets.at", TEXT_LONG)?;
        ensure(
            !contains_password(&self.at),
            "targets.at",
            "must not contain a password; charters are stored and displayed",
        )?;
        if let Some(reporter) = &self.reporter {
            text(reporter, limits::CHARTER_TEXT_BYTES, "targets.reporter", TEXT_LONG)?;
            let plain = !reporter.chars().any(|c| c.is_control() || c.is_whitespace() || is_invisible(c));
            ensure(plain, "targets.reporter", "an identity, for example spiffe://example/fences/ledger")?;
        }
        match &self.mode {
            Some(TargetMode::BoundedPause { assumed_ms, blast_radius }) => {
                let possible = (1..=limits::HOLD_MAX).contains(assumed_ms);
                ensure(possible, "targets.assumed_ms", "from 1 ms to 366 days")?;
                blast_radius
                    .as_ref()
                    .map_or(Ok(()), |words| text(words, limits::CHARTER_TEXT_BYTES, "targets.blast_radius", TEXT_LONG))
            }
            Some(TargetMode::None { comment: Some(comment) }) => {
                text(comment, limits::CHARTER_TEXT_BYTES, "targets.comment", TEXT_LONG)
            }
            Some(
                TargetMode::None { comment: None } | TargetMode::Forced | TargetMode::Cooperative | TargetMode::Grantor,
            )
            | None => Ok(()),
        }
    }
}

impl CharterError {
    const fn in_entry(mut self, index: usize) -> Self {
        self.entry = Some(index + 1);
        self
    }
}

fn ensure(holds: bool, field: &'static str, reason: &'static str) -> Result<(), CharterError> {
    if holds { Ok(()) } else { Err(CharterError { field, entry: None, reason }) }
}

fn check_period(ms: u64, field: &'static str) -> Result<(), CharterError> {
    ensure((1..=limits::GRACE_MAX).contains(&ms), field, PERIOD_RANGE)
}

fn text(text: &str, limit: usize, field: &'static str, too_long: &'static str) -> Result<(), CharterError> {
    ensure(text.len() <= limit, field, too_long)?;
    ensure(has_words(text), field, "must contain words, not only spaces or punctuation")?;
    ensure(
        !text.chars().any(|c| is_misleading(c) && c != '\n'),
        field,
        "no control characters except line breaks, and no text-direction characters",
    )
}

/// Whether an address contains a password. Charters go into the journal and the audit log, which must hold no secrets.
fn contains_password(at: &str) -> bool {
    if at.to_ascii_lowercase().contains("password=") {
        return true;
    }
    let Some((_, rest)) = at.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{CharterEdit, complete, target};
    use super::super::{HandoffTerms, OnDeadlock};
    use super::*;
    use crate::limits::TTL_MAX_DEFAULT;

    #[track_caller]
    fn refused(change: CharterEdit) -> CharterError {
        let mut charter = complete();
        change(&mut charter);
        charter.validate(TTL_MAX_DEFAULT).expect_err("an impossible charter is refused")
    }

    #[test]
    fn the_default_and_a_complete_charter_are_possible() {
        assert_eq!(Charter::default().validate(TTL_MAX_DEFAULT), Ok(()));
        assert_eq!(Charter::default().validate(limits::TTL_MIN), Ok(()));
        assert_eq!(complete().validate(TTL_MAX_DEFAULT), Ok(()));
    }

    #[test]
    fn each_impossible_value_is_refused_by_its_field() {
        let table: &[(&str, CharterEdit)] = &[
            ("ttl_min_ms", |c| c.ttl_min_ms = Some(0)),
            ("ttl_min_ms", |c| c.ttl_min_ms = Some(99)),
            ("ttl_min_ms", |c| (c.ttl_min_ms, c.ttl_max_ms) = (Some(TTL_MAX_DEFAULT + 1), None)),
            ("ttl_min_ms", |c| (c.ttl_min_ms, c.ttl_max_ms) = (Some(2_001), Some(2_000))),
            ("ttl_max_ms", |c| c.ttl_max_ms = Some(0)),
            ("ttl_max_ms", |c| c.ttl_max_ms = Some(TTL_MAX_DEFAULT + 1)),
            ("ttl_max_ms", |c| c.ttl_max_ms = Some(u64::MAX)),
            ("max_hold_ms", |c| c.max_hold_ms = Some(0)),
            ("max_hold_ms", |c| (c.ttl_min_ms, c.max_hold_ms) = (Some(500), Some(499))),
            ("max_hold_ms", |c| c.max_hold_ms = Some(limits::HOLD_MAX + 1)),
            ("renewal.window_ms", |c| c.renewal = Some(RenewalProof::Progress { window_ms: 0 })),
            ("renewal.window_ms", |c| c.renewal = Some(RenewalProof::Progress { window_ms: u64::MAX })),
            ("handoff.drain_ms", |c| c.handoff = Some(HandoffTerms { mode: HandoffMode::Gap, drain_ms: 0 })),
            ("handoff.drain_ms", |c| {
                c.handoff = Some(HandoffTerms { mode: HandoffMode::Overlap, drain_ms: limits::GRACE_MAX + 1 });
            }),
            ("handoff", |c| {
                c.payload = Some(Payload::Exclusion);
                c.handoff = Some(HandoffTerms { mode: HandoffMode::Overlap, drain_ms: 1 });
            }),
            ("preemption.grace_ms", |c| c.preemption = Preemption::LowerPriority { grace_ms: 0 }),
            ("preemption.grace_ms", |c| c.preemption = Preemption::LowerPriority { grace_ms: limits::GRACE_MAX + 1 }),
            ("at_expiry.max_ms", |c| c.at_expiry = AtExpiry::Veto { max_ms: 0 }),
            ("at_expiry", |c| c.at_expiry = AtExpiry::Veto { max_ms: 1 }),
            ("capacity", |c| c.capacity = Some(0)),
            ("capacity", |c| c.capacity = Some(limits::CAPACITY + 1)),
            ("validity", |c| c.validity = Some(Validity::Issuer)),
            ("observer", |c| c.observer = Some(" ".into())),
            ("observer", |c| c.observer = Some("a".repeat(limits::CHARTER_TEXT_BYTES + 1))),
            ("price_of_failure", |c| c.price_of_failure = Some("?".into())),
            ("price_of_failure", |c| c.price_of_failure = Some("cheap\u{202e}raed".into())),
            ("price_of_failure", |c| c.price_of_failure = Some("one\0two".into())),
            ("authority", |c| c.authority = vec!["x".into(); limits::CHARTER_AUTHORITY + 1]),
            ("starts_from.key", |c| c.starts_from = Some(StartsFrom::Key(String::new()))),
            ("starts_from.key", |c| c.starts_from = Some(StartsFrom::Key("k".repeat(limits::STATE_KEY_BYTES + 1)))),
            ("targets", |c| c.targets = vec![target("t", None); limits::CHARTER_TARGETS + 1]),
            ("charter", |c| c.authority = vec!["x".repeat(1_000); 17]),
        ];
        for (row, (field, change)) in table.iter().enumerate() {
            let error = refused(*change);
            assert_eq!(error.field, *field, "row {row}: {error}");
            assert_eq!(error.entry, None, "row {row}");
        }
    }

    #[test]
    fn an_error_in_a_list_names_the_entry() {
        let table: &[(&str, usize, CharterEdit)] = &[
            ("authority", 2, |c| c.authority = vec!["the ledger".into(), String::new()]),
            ("targets.name", 1, |c| c.targets[0].name.clear()),
            ("targets.name", 2, |c| c.targets[1].name = c.targets[0].name.clone()),
            ("targets.name", 1, |c| c.targets[0].name = "n".repeat(limits::TARGET_NAME_BYTES + 1)),
            ("targets.at", 2, |c| c.targets[1].at = String::new()),
            ("targets.at", 2, |c| c.targets[1].at = "postgres://app:hunter2@db/ledger".into()),
            ("targets.assumed_ms", 1, |c| {
                c.targets[0].mode = Some(TargetMode::BoundedPause { assumed_ms: 0, blast_radius: None });
            }),
            ("targets.blast_radius", 1, |c| {
                c.targets[0].mode = Some(TargetMode::BoundedPause { assumed_ms: 1, blast_radius: Some("-".into()) });
            }),
            ("targets.comment", 1, |c| c.targets[0].mode = Some(TargetMode::None { comment: Some(String::new()) })),
        ];
        for (row, (field, entry, change)) in table.iter().enumerate() {
            let error = refused(*change);
            assert_eq!((error.field, error.entry), (*field, Some(*entry)), "row {row}: {error}");
        }
    }

    #[test]
    fn values_at_their_limits_are_valid() {
        let charter = Charter {
            payload: Some(Payload::Capacity),
            ttl_min_ms: Some(limits::TTL_MIN),
            ttl_max_ms: Some(TTL_MAX_DEFAULT),
            max_hold_ms: Some(limits::HOLD_MAX),
            renewal: Some(RenewalProof::Progress { window_ms: limits::HOLD_MAX }),
            handoff: Some(HandoffTerms { mode: HandoffMode::Overlap, drain_ms: limits::GRACE_MAX }),
            preemption: Preemption::LowerPriority { grace_ms: 1 },
            at_expiry: AtExpiry::Veto { max_ms: limits::GRACE_MAX },
            deadlock: OnDeadlock::Revoke,
            capacity: Some(limits::CAPACITY),
            observer: Some("two\nlines".into()),
            targets: vec![target("db", None)],
            ..Charter::default()
        };
        assert_eq!(charter.validate(TTL_MAX_DEFAULT), Ok(()));
    }

    #[test]
    fn an_address_may_name_a_user_but_no_password() {
        assert!(contains_password("postgres://app:pw@db:5432/x"));
        assert!(contains_password("redis://:pw@cache"));
        assert!(contains_password("host=db user=app Password=pw"));
        assert!(!contains_password("postgres://app@db:5432/x"));
        assert!(!contains_password("https://host:443/a:b@c"));
        assert!(!contains_password("the ledger: mail ops@example.org"));
    }

    #[test]
    fn an_error_text_names_the_field_the_entry_and_what_is_allowed() {
        assert_eq!(refused(|c| c.capacity = Some(0)).to_string(), "capacity: from 1 to 1048576 units");
        assert_eq!(
            refused(|c| c.targets[1].at = "-".into()).to_string(),
            "targets.at (entry 2): must contain words, not only spaces or punctuation"
        );
    }
}
