//! Compares what a charter declares with what a probe established. Each difference is a hole with its own word and next step.

use leasehold::json::TargetCoverageBody;
use leasehold_core::coverage::Hole;

use super::probe::{ProbeOutcome, TargetProbe};
use crate::target::{ProbeResult, TokenProbe, WriteProbe, can_be_forced};

/// A hole as it is shown: the only statement about a target that decides the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownHole {
    /// The stable word.
    pub word: String,
    /// The target, what is wrong and how to close it.
    pub message: String,
}

impl ShownHole {
    /// A message on one line: a name in a charter may contain line breaks.
    fn new(word: &str, message: &str) -> Self {
        let message = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { word: word.to_owned(), message }
    }
}

/// A word of a command that can be pasted into a shell. Names and addresses may be those of a charter's author.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A hole that only a probe can find.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProbeHole {
    /// The fence admitted a stale token.
    Admitted,
    /// The target has no fence for the resource.
    Missing,
    /// The fence has not seen any token.
    Fresh,
    /// The mark belongs to another cluster.
    Foreign(Option<String>),
    /// Declared as forced, but writes without a token pass, for these reasons.
    Unprotected(Vec<String>),
    /// Declared as forced, but targets of this kind cannot refuse a writer that bypasses the fence.
    NotForced,
    /// Declared as the grantor's own, but its address is another target's.
    NotGrantor,
    /// The probe failed.
    Unreachable(String),
    /// Nothing was probed.
    NotProbed(String),
}

impl ProbeHole {
    const fn word(&self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Missing => "missing",
            Self::Fresh => "fresh",
            Self::Foreign(_) => "foreign",
            Self::Unprotected(_) => "unprotected",
            Self::NotForced => "not_forced",
            Self::NotGrantor => "not_grantor",
            Self::Unreachable(_) => "unreachable",
            Self::NotProbed(_) => "not_probed",
        }
    }

    /// What it means, and how to close it.
    fn message(&self, resource: &str, target: &str, address: &str) -> String {
        let (resource, address) = (shell_word(resource), shell_word(address));
        match self {
            Self::Admitted => format!(
                "admitted a stale token; reinstall its fence with leasehold fence arm {address} --resource {resource}, and \
                 check its recent writes"
            ),
            Self::Missing => {
                format!("has no fence for this resource; run leasehold fence arm {address} --resource {resource}")
            }
            Self::Fresh => "has not seen any token; claim it, then probe again".to_owned(),
            Self::Foreign(Some(cluster)) => format!(
                "its mark belongs to cluster {cluster}; give each cluster its own target, or another resource name"
            ),
            Self::Foreign(None) => {
                "its mark belongs to another cluster; give each cluster its own target, or another resource name"
                    .to_owned()
            }
            Self::Unprotected(paths) if address.starts_with("http") => format!(
                "declared as forced, but accepts requests without a token ({}); remove the exemption from its fence",
                paths.join(", ")
            ),
            Self::Unprotected(tables) if tables.is_empty() => format!(
                "declared as forced, but no table is protected; run leasehold fence protect {address} --resource {resource} \
                 --table TABLE"
            ),
            // Guards that no `protect` restores: each finding ends with its next step.
            Self::Unprotected(tables) if tables.iter().all(|at| at.contains("; ")) => {
                format!("declared as forced, but its guards are incomplete ({})", tables.join(", "))
            }
            Self::Unprotected(tables) => format!(
                "declared as forced, but accepts writes without a token ({}); run leasehold fence protect {address} \
                 --resource {resource} --table TABLE, and check its recent writes",
                tables.join(", ")
            ),
            Self::NotForced => {
                "declared as forced, but such a target cannot refuse a write that bypasses its fence; declare \
                                mode = \"cooperative\" with leasehold charter apply"
                    .to_owned()
            }
            Self::NotGrantor => {
                "declared as grantor, but its address is another target's; declare its fence with leasehold \
                                 charter apply"
                    .to_owned()
            }
            Self::Unreachable(error) => format!("probe failed: {error}"),
            Self::NotProbed(reason) => format!(
                "not probed, {reason}; run leasehold coverage {resource} --probe --target {}, or pass \
                 --charter-addresses if you trust the charter's author",
                shell_word(&format!("{target}=ADDRESS"))
            ),
        }
    }
}

/// The hole of a target, from its declaration, its reports and its probe. A probe finds more than reports, and goes first.
pub fn hole(resource: &str, target: &TargetCoverageBody, probe: Option<&TargetProbe>) -> Option<ShownHole> {
    let name = if target.name.is_empty() { "no target" } else { &target.name };
    if let Some(found) = probe.and_then(|probe| probe_hole(target, probe)).or_else(|| false_grantor(target)) {
        let address = probe.and_then(|probe| probe.address.as_deref()).unwrap_or("ADDRESS");
        return Some(ShownHole::new(found.word(), &format!("{name}: {}", found.message(resource, name, address))));
    }
    let word = target.hole.as_deref()?;
    let reported = Hole::from_word(word);
    // The probe established what no report has: a fence that refuses, and that a holder has claimed.
    if reported == Some(Hole::NeverReported) && probe.is_some() {
        return None;
    }
    // A newer server may know other holes.
    let advice =
        reported.map_or_else(|| format!("{word}; update this command to learn more"), |hole| hole.advice().into());
    Some(ShownHole::new(word, &format!("{name}: {advice}")))
}

fn probe_hole(target: &TargetCoverageBody, probe: &TargetProbe) -> Option<ProbeHole> {
    let mode = target.mode.as_deref();
    match &probe.outcome {
        // A target that is declared without a fence agrees with every reply.
        ProbeOutcome::Report(_) if matches!(mode, Some("none" | "bounded_pause")) => None,
        ProbeOutcome::Report(_) if mode == Some("grantor") => Some(ProbeHole::NotGrantor),
        ProbeOutcome::Report(report) => report_hole(report, mode == Some("forced")),
        ProbeOutcome::Failed(error) => Some(ProbeHole::Unreachable(error.clone())),
        // No address can make such a target forced.
        ProbeOutcome::Skipped(_) if mode == Some("forced") && can_be_forced(&target.at) == Some(false) => {
            Some(ProbeHole::NotForced)
        }
        ProbeOutcome::Skipped(reason) => Some(ProbeHole::NotProbed(reason.clone())),
    }
}

fn report_hole(report: &ProbeResult, forced: bool) -> Option<ProbeHole> {
    match report.token {
        TokenProbe::Admitted => return Some(ProbeHole::Admitted),
        TokenProbe::Missing => return Some(ProbeHole::Missing),
        TokenProbe::Fresh => return Some(ProbeHole::Fresh),
        TokenProbe::Foreign(cluster) => return Some(ProbeHole::Foreign(cluster.map(|cluster| cluster.to_string()))),
        TokenProbe::Refused { .. } | TokenProbe::Sealed | TokenProbe::Lost => {}
    }
    match &report.write {
        write if !forced || write.is_refused() => None,
        WriteProbe::Attempted { findings, .. } => {
            Some(ProbeHole::Unprotected(findings.iter().map(|at| format!("{}: {}", at.table, at.finding)).collect()))
        }
        WriteProbe::NeverRefused | WriteProbe::NotAttempted => Some(ProbeHole::NotForced),
    }
}

/// A target that is declared as part of the grantor, although its address is that of a database or service.
fn false_grantor(target: &TargetCoverageBody) -> Option<ProbeHole> {
    // The server itself has an HTTP address.
    let elsewhere = can_be_forced(&target.at).is_some() && !target.at.starts_with("http");
    (target.mode.as_deref() == Some("grantor") && elsewhere).then_some(ProbeHole::NotGrantor)
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::{Cluster, Number};

    use super::*;
    use crate::target::TableFinding;

    fn target(mode: Option<&str>, at: &str, hole: Option<Hole>) -> TargetCoverageBody {
        TargetCoverageBody {
            name: "ledger".into(),
            at: at.into(),
            declared: true,
            mode: mode.map(str::to_owned),
            slots: Vec::new(),
            hole: hole.map(|hole| hole.word().to_owned()),
        }
    }

    fn word(target: &TargetCoverageBody, outcome: ProbeOutcome) -> Option<String> {
        let probe = TargetProbe { target: "ledger".into(), address: Some("sqlite:/x".into()), outcome, limit: None };
        let hole = hole("jobs/settle", target, Some(&probe));
        if let Some(hole) = &hole {
            assert!(
                hole.message.starts_with("ledger: ") && hole.message.contains(';'),
                "no next step: {}",
                hole.message
            );
        }
        hole.map(|hole| hole.word)
    }

    fn report(token: TokenProbe, write: WriteProbe) -> ProbeOutcome {
        ProbeOutcome::Report(ProbeResult { token, write })
    }

    const REFUSED: TokenProbe = TokenProbe::Refused { presented: Number::FIRST, mark: Number::FIRST };

    #[test]
    fn a_guard_that_protect_cannot_restore_is_shown_with_its_own_next_step() {
        let missing = "leasehold_check_ddl: event trigger: missing; install as a superuser".to_owned();
        let open = "paid: a write without a token was accepted".to_owned();
        let shown = |found: &[&String]| {
            ProbeHole::Unprotected(found.iter().map(|at| (*at).clone()).collect()).message(
                "jobs",
                "ledger",
                "postgres://db",
            )
        };
        assert!(!shown(&[&missing]).contains("fence protect"), "{}", shown(&[&missing]));
        assert!(shown(&[&missing]).contains("install as a superuser"));
        assert!(shown(&[&open, &missing]).contains("fence protect"));
    }

    #[test]
    fn each_declared_mode_agrees_only_with_what_the_probe_must_establish() {
        let finding = TableFinding { table: "paid".into(), finding: "no guard".into() };
        let open = || WriteProbe::Attempted { refused: vec!["sold".into()], findings: vec![finding.clone()] };
        let nothing = || WriteProbe::Attempted { refused: Vec::new(), findings: Vec::new() };
        let all = || WriteProbe::Attempted { refused: vec!["paid".into()], findings: Vec::new() };
        let none = || WriteProbe::NotAttempted;
        let other = TokenProbe::Foreign(Some(Cluster(*b"elsewher")));
        let cases = [
            ("forced", REFUSED, all(), None),
            ("forced", TokenProbe::Lost, all(), None),
            ("forced", REFUSED, open(), Some("unprotected")),
            ("forced", REFUSED, nothing(), Some("unprotected")),
            ("forced", REFUSED, WriteProbe::NeverRefused, Some("not_forced")),
            ("forced", TokenProbe::Admitted, all(), Some("admitted")),
            ("forced", TokenProbe::Missing, none(), Some("missing")),
            ("forced", TokenProbe::Fresh, none(), Some("fresh")),
            ("forced", other, none(), Some("foreign")),
            ("cooperative", REFUSED, none(), None),
            ("cooperative", TokenProbe::Lost, none(), None),
            ("cooperative", TokenProbe::Admitted, none(), Some("admitted")),
            ("cooperative", TokenProbe::Missing, none(), Some("missing")),
            ("cooperative", TokenProbe::Fresh, none(), Some("fresh")),
            ("cooperative", other, none(), Some("foreign")),
            ("grantor", REFUSED, none(), Some("not_grantor")),
            ("bounded_pause", TokenProbe::Missing, none(), None),
            ("bounded_pause", REFUSED, none(), None),
        ];
        for (mode, token, write, expected) in cases {
            let never = matches!(mode, "forced" | "cooperative").then_some(Hole::NeverReported);
            let case = format!("{mode} {token:?} {write:?}");
            assert_eq!(
                word(&target(Some(mode), "sqlite:/x", never), report(token, write)).as_deref(),
                expected,
                "{case}"
            );
        }
        let unfenced = target(Some("none"), "a printer", Some(Hole::Unfenced));
        assert_eq!(word(&unfenced, report(REFUSED, none())).as_deref(), Some("unfenced"));
        let no_mode = target(None, "sqlite:/x", Some(Hole::NoMode));
        assert_eq!(word(&no_mode, report(REFUSED, none())).as_deref(), Some("no_mode"));
        let weaker = target(Some("forced"), "sqlite:/x", Some(Hole::Weaker));
        assert_eq!(word(&weaker, report(REFUSED, all())).as_deref(), Some("weaker"));
        let newer =
            TargetCoverageBody { hole: Some("of_the_future".into()), ..target(Some("forced"), "sqlite:/x", None) };
        assert_eq!(word(&newer, report(REFUSED, all())).as_deref(), Some("of_the_future"));
    }

    #[test]
    fn a_target_that_was_not_probed_is_never_green() {
        let skipped = || ProbeOutcome::Skipped("its address is not given".into());
        for mode in ["forced", "cooperative"] {
            for reported in [None, Some(Hole::NeverReported)] {
                assert_eq!(
                    word(&target(Some(mode), "postgres://db/x", reported), skipped()).as_deref(),
                    Some("not_probed")
                );
                let failed = ProbeOutcome::Failed("UNAVAILABLE: no reply; retry".into());
                assert_eq!(
                    word(&target(Some(mode), "postgres://db/x", reported), failed).as_deref(),
                    Some("unreachable")
                );
            }
        }
        for at in ["redis://cache", "etcd://a:2379", "nats://log/S", "file:/x", "s3://bucket/x", "dynamodb://table"] {
            assert_eq!(word(&target(Some("forced"), at, None), skipped()).as_deref(), Some("not_forced"), "{at}");
            assert_eq!(word(&target(Some("cooperative"), at, None), skipped()).as_deref(), Some("not_probed"), "{at}");
        }
    }

    #[test]
    fn a_hostile_name_or_address_cannot_add_a_line_or_a_command() {
        let name = "a\nleasehold: 0 holes; $(id)".to_owned();
        let target = TargetCoverageBody { name: name.clone(), ..target(Some("forced"), "x", None) };
        let message = |outcome: ProbeOutcome| {
            let probe =
                TargetProbe { target: name.clone(), address: Some("sqlite:/x';id;'".into()), outcome, limit: None };
            hole("jobs/settle", &target, Some(&probe)).expect("a hole").message
        };
        let missing = message(report(TokenProbe::Missing, WriteProbe::NotAttempted));
        assert!(missing.contains(r"fence arm 'sqlite:/x'\'';id;'\''' --resource"), "{missing}");
        let skipped = message(ProbeOutcome::Skipped("its address is not given".into()));
        assert!(skipped.contains("--target 'a leasehold: 0 holes; $(id)=ADDRESS'"), "{skipped}");
        assert!(!missing.contains('\n') && !skipped.contains('\n'), "{missing} {skipped}");
        assert_eq!(shell_word("sqlite:/var/lib/app/ledger.db"), "sqlite:/var/lib/app/ledger.db");
        assert_eq!(shell_word("http://gate?a&b"), "'http://gate?a&b'");
    }

    #[test]
    fn an_external_address_is_not_the_grantor() {
        let shown = |at: &str| hole("a", &target(Some("grantor"), at, None), None).map(|hole| hole.word);
        assert_eq!(shown("the grantor"), None);
        assert_eq!(shown("http://leasehold.example:7421"), None);
        assert_eq!(shown("postgres://db/shop").as_deref(), Some("not_grantor"));
    }
}
