//! Answers that were given and still deserve a second thought: holes, long waits, pulses that prove too little.

use super::check::quoted;
use super::{Charter, Mode, Payload, Question, Renewal, StartsFrom, Style, Target, TokenOnRenewal};

/// A ttl above this is told to be long: a vanished holder blocks its successor for as much.
const LONG_TTL: u64 = 60_000;

/// What is weak about the answer to one question, each with what to do.
pub(super) fn concerns(charter: &Charter, question: Question) -> Vec<String> {
    let targets = charter.targets.iter();
    match question {
        Question::Payload if charter.payload == Some(Payload::Capacity) && charter.capacity.is_none() => {
            vec!["no `capacity`: each resource has one unit until it is sized".into()]
        }
        Question::Checks => targets.filter_map(weak_check).collect(),
        Question::Holes => targets.filter_map(hole).collect(),
        Question::Stale if charter.token_on_renewal == TokenOnRenewal::Rotate => {
            vec!["a rotated token makes the holder's own writes in flight stale; keep one token for one hold".into()]
        }
        Question::Renewal => renewal_concerns(charter),
        Question::Handoff if charter.handoff.is_some_and(|h| h.style == Style::Overlap) => {
            let open: Vec<_> = targets.filter(|t| !t.mode.as_ref().is_some_and(Mode::refuses)).collect();
            if charter.targets.is_empty() {
                vec!["overlap leans on fences and no target is named; choose gap or name them".into()]
            } else if open.is_empty() {
                Vec::new()
            } else {
                vec![format!("overlap leans on fences that {} lacks; choose gap or fence it", quoted(open.into_iter()))]
            }
        }
        Question::StartsFrom
            if charter.payload == Some(Payload::Shard) && charter.starts_from == Some(StartsFrom::Nothing) =>
        {
            vec!["a shard's checkpoints are written and never read; start from newest".into()]
        }
        _ => Vec::new(),
    }
}

fn weak_check(target: &Target) -> Option<String> {
    match target.mode {
        Some(Mode::Cooperative) => Some(format!(
            "`{}` is cooperative: a writer that shows no token walks past; force it if you can",
            target.name
        )),
        Some(Mode::Grantor) if target.at.contains("://") => {
            Some(format!("`{}` is not kept by the grantor, which protects only its own state; fence it", target.name))
        }
        _ => None,
    }
}

fn hole(target: &Target) -> Option<String> {
    match &target.mode {
        Some(Mode::BoundedPause { assumed_ms, .. }) => Some(format!(
            "`{}` is safe only while no holder pauses for {assumed_ms} ms; fence it if you can",
            target.name
        )),
        Some(Mode::None { .. }) => Some(format!("`{}` is a hole: nothing there stops a zombie; fence it", target.name)),
        Some(Mode::Forced | Mode::Cooperative | Mode::Grantor) | None => None,
    }
}

fn renewal_concerns(charter: &Charter) -> Vec<String> {
    let mut told = Vec::new();
    // A session's whole point is the pulse.
    let pulse_is_enough = charter.payload == Some(Payload::Liveness);
    if charter.renewal == Some(Renewal::Pulse) && charter.max_hold_ms.is_none() && !pulse_is_enough {
        told.push("a stuck holder that pulses is never ended; ask for progress or set `max_hold_ms`".into());
    }
    match charter.ttl_max_ms {
        None => told.push("no `ttl_max_ms`: a vanished holder may block for the cluster's longest ttl".into()),
        Some(max) if max > LONG_TTL => {
            told.push(format!("a vanished holder blocks its successor for up to {max} ms; shorten `ttl_max_ms`"));
        }
        Some(_) => {}
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::sample::{complete, target};
    use super::super::{Handoff, check};
    use super::*;

    fn weak(charter: &Charter) -> Vec<(&'static str, String)> {
        let told = |f: super::super::Finding| f.concerns.into_iter().map(move |concern| (f.question.id(), concern));
        check(charter).into_iter().flat_map(told).collect()
    }

    #[test]
    fn each_weak_answer_is_told_under_its_question() {
        type Change = fn(&mut Charter);
        let table: &[(&str, &str, Change)] = &[
            ("checks", "walks past", |c| c.targets[0].mode = Some(Mode::Cooperative)),
            ("checks", "only its own state", |c| c.targets[1].at = "https://elsewhere".into()),
            ("holes", "`ledger` is a hole", |c| c.targets[0].mode = Some(Mode::None { why: Some("old".into()) })),
            ("holes", "pauses for 900 ms", |c| {
                c.targets[0].mode = Some(Mode::BoundedPause { assumed_ms: 900, blast_radius: Some("a row".into()) });
            }),
            ("payload", "one unit", |c| c.payload = Some(Payload::Capacity)),
            ("stale", "in flight", |c| c.token_on_renewal = TokenOnRenewal::Rotate),
            ("renewal", "never ended", |c| (c.renewal, c.max_hold_ms) = (Some(Renewal::Pulse), None)),
            ("renewal", "the cluster's longest ttl", |c| c.ttl_max_ms = None),
            ("renewal", "up to 60001 ms", |c| c.ttl_max_ms = Some(60_001)),
            ("starts_from", "never read", |c| c.starts_from = Some(StartsFrom::Nothing)),
        ];
        for (row, (question, part, change)) in table.iter().enumerate() {
            let mut charter = complete();
            change(&mut charter);
            let told = weak(&charter);
            assert_eq!(told.len(), 1, "row {row}: {told:?}");
            assert_eq!(told[0].0, *question, "row {row}");
            assert!(told[0].1.contains(part), "row {row}: {}", told[0].1);
        }
    }

    #[test]
    fn overlap_is_weak_where_a_target_has_no_fence() {
        let overlap = Some(Handoff { style: Style::Overlap, drain_ms: 1_000 });
        let mut charter = Charter { handoff: overlap, ..complete() };
        assert!(weak(&charter).is_empty());
        charter.targets.push(target("mail", Some(Mode::None { why: Some("harmless".into()) })));
        assert!(weak(&charter).iter().any(|(question, told)| *question == "handoff" && told.contains("`mail`")));
        charter.targets.clear();
        assert!(weak(&charter).iter().any(|(question, told)| *question == "handoff" && told.contains("no target")));
    }

    #[test]
    fn a_pulse_is_enough_where_a_maximum_hold_or_a_session_bounds_it() {
        let pulse = Charter { renewal: Some(Renewal::Pulse), ..complete() };
        assert!(weak(&pulse).is_empty());
        let session = Charter { payload: Some(Payload::Liveness), max_hold_ms: None, ..pulse };
        assert!(weak(&session).is_empty());
    }
}
