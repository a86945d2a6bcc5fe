//! Warnings about weak answers in a charter: holes, long ttls, renewals that prove too little.

use super::{
    Charter, HandoffMode, Payload, Question, RenewalProof, StartsFrom, Target, TargetMode, TokenOnRenewal, quoted_names,
};

use crate::time::DurationText;

/// A longer ttl causes a warning, because a vanished holder blocks its successor that long.
const LONG_TTL: u64 = 60_000;

/// Warnings about the answer to one question, each with a next step.
pub(super) fn warnings(charter: &Charter, question: Question) -> Vec<String> {
    let targets = charter.targets.iter();
    match question {
        Question::Payload if charter.payload == Some(Payload::Capacity) && charter.capacity.is_none() => {
            vec!["no `capacity`: each resource has one unit until its capacity is set; set `capacity`".into()]
        }
        Question::Checks => targets.filter_map(weak_check).collect(),
        Question::Holes => targets.filter_map(hole).collect(),
        Question::Stale if charter.token_on_renewal == TokenOnRenewal::Rotate => {
            vec!["rotation makes the holder's own in-flight writes stale; set `token_on_renewal` to keep".into()]
        }
        Question::Renewal => renewal_warnings(charter),
        Question::Handoff if charter.handoff.is_some_and(|h| h.mode == HandoffMode::Overlap) => {
            let open: Vec<_> = targets.filter(|t| !t.mode.as_ref().is_some_and(TargetMode::refuses)).collect();
            if charter.targets.is_empty() {
                vec!["overlap depends on fences, but no target is listed; choose gap or list the targets".into()]
            } else if open.is_empty() {
                Vec::new()
            } else {
                vec![format!(
                    "overlap depends on fences, but {} does not check tokens; choose gap or fence it",
                    quoted_names(open.into_iter())
                )]
            }
        }
        Question::StartsFrom
            if charter.payload == Some(Payload::Shard) && charter.starts_from == Some(StartsFrom::Nothing) =>
        {
            vec!["checkpoints of the shard are written but never read; set `starts_from` to newest".into()]
        }
        _ => Vec::new(),
    }
}

fn weak_check(target: &Target) -> Option<String> {
    match target.mode {
        Some(TargetMode::Cooperative) => Some(format!(
            "`{}` is cooperative: a writer without a token bypasses the check; use forced mode if possible",
            target.name
        )),
        Some(TargetMode::Grantor) if target.at.contains("://") => {
            Some(format!("`{}` is not stored in the grantor, which protects only its own state; fence it", target.name))
        }
        _ => None,
    }
}

fn hole(target: &Target) -> Option<String> {
    match &target.mode {
        Some(TargetMode::BoundedPause { assumed_ms, .. }) => Some(format!(
            "`{}` is safe only while no holder pauses for {}; fence it if possible",
            target.name,
            DurationText(*assumed_ms)
        )),
        Some(TargetMode::None { .. }) => {
            Some(format!("`{}` is a hole: nothing there stops a zombie; fence it", target.name))
        }
        Some(TargetMode::Forced | TargetMode::Cooperative | TargetMode::Grantor) | None => None,
    }
}

fn renewal_warnings(charter: &Charter) -> Vec<String> {
    let mut warnings = Vec::new();
    // The purpose of a session is the pulse.
    let pulse_is_enough = charter.payload == Some(Payload::Liveness);
    if charter.renewal == Some(RenewalProof::Pulse) && charter.max_hold_ms.is_none() && !pulse_is_enough {
        warnings.push("a stuck holder that still renews keeps the lease; require progress or set `max_hold_ms`".into());
    }
    match charter.ttl_max_ms {
        None => warnings.push(
            "no `ttl_max_ms`: a vanished holder can block for the cluster's longest ttl; set `ttl_max_ms`".into(),
        ),
        Some(max) if max > LONG_TTL => {
            let max = DurationText(max);
            warnings.push(format!("a vanished holder blocks its successor for up to {max}; shorten `ttl_max_ms`"));
        }
        Some(_) => {}
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{CharterEdit, complete, target};
    use super::super::{HandoffTerms, check};
    use super::*;

    fn warnings_of(charter: &Charter) -> Vec<(&'static str, String)> {
        let of = |f: super::super::CharterFinding| f.warnings.into_iter().map(move |text| (f.question.id(), text));
        check(charter).into_iter().flat_map(of).collect()
    }

    #[test]
    fn each_weak_answer_gets_one_warning_under_its_question() {
        let table: &[(&str, &str, CharterEdit)] = &[
            ("checks", "bypasses", |c| c.targets[0].mode = Some(TargetMode::Cooperative)),
            ("checks", "only its own state", |c| c.targets[1].at = "https://elsewhere".into()),
            ("holes", "`ledger` is a hole", |c| {
                c.targets[0].mode = Some(TargetMode::None { comment: Some("old".into()) })
            }),
            ("holes", "pauses for 900ms", |c| {
                c.targets[0].mode =
                    Some(TargetMode::BoundedPause { assumed_ms: 900, blast_radius: Some("a row".into()) });
            }),
            ("payload", "one unit", |c| c.payload = Some(Payload::Capacity)),
            ("stale", "in-flight", |c| c.token_on_renewal = TokenOnRenewal::Rotate),
            ("renewal", "keeps the lease", |c| (c.renewal, c.max_hold_ms) = (Some(RenewalProof::Pulse), None)),
            ("renewal", "the cluster's longest ttl", |c| c.ttl_max_ms = None),
            ("renewal", "up to 1m01s", |c| c.ttl_max_ms = Some(61_000)),
            ("starts_from", "never read", |c| c.starts_from = Some(StartsFrom::Nothing)),
        ];
        for (row, (question, part, change)) in table.iter().enumerate() {
            let mut charter = complete();
            change(&mut charter);
            let warnings = warnings_of(&charter);
            assert_eq!(warnings.len(), 1, "row {row}: {warnings:?}");
            assert_eq!(warnings[0].0, *question, "row {row}");
            assert!(warnings[0].1.contains(part), "row {row}: {}", warnings[0].1);
        }
    }

    #[test]
    fn overlap_gets_a_warning_where_a_target_has_no_fence() {
        let overlap = Some(HandoffTerms { mode: HandoffMode::Overlap, drain_ms: 1_000 });
        let mut charter = Charter { handoff: overlap, ..complete() };
        assert!(warnings_of(&charter).is_empty());
        charter.targets.push(target("mail", Some(TargetMode::None { comment: Some("harmless".into()) })));
        assert!(warnings_of(&charter).iter().any(|(question, text)| *question == "handoff" && text.contains("`mail`")));
        charter.targets.clear();
        assert!(
            warnings_of(&charter).iter().any(|(question, text)| *question == "handoff" && text.contains("no target"))
        );
    }

    #[test]
    fn a_pulse_is_enough_where_a_maximum_hold_or_a_session_bounds_it() {
        let pulse = Charter { renewal: Some(RenewalProof::Pulse), ..complete() };
        assert!(warnings_of(&pulse).is_empty());
        let session = Charter { payload: Some(Payload::Liveness), max_hold_ms: None, ..pulse };
        assert!(warnings_of(&session).is_empty());
    }
}
