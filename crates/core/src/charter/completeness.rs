//! Completeness of a charter: the answer to each of the sixteen questions, or the next step towards one.

use super::warnings::warnings;
use super::{
    Charter, HandoffMode, Payload, Question, RenewalProof, StartsFrom, TargetMode, Uncommitted, has_words, quoted_names,
};
use crate::lease::Validity;
use crate::time::DurationText;

/// The result for one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharterFinding {
    /// The question.
    pub question: Question,
    /// The answer, or the next step towards one.
    pub answer: CheckAnswer,
    /// Weaknesses of the answer, each with a next step.
    pub warnings: Vec<String>,
}

/// The answer to a question, if the charter gives one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckAnswer {
    /// The question is answered.
    Answered {
        /// Where the answer comes from.
        by: AnswerSource,
        /// The answer in words.
        answer: String,
    },
    /// The question is open.
    Unanswered {
        /// What to write in which field.
        next_step: String,
    },
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerSource {
    /// A field of the charter.
    Field(&'static str),
    /// Promises that Leasehold keeps for every charter.
    Promise(&'static str),
}

impl CharterFinding {
    /// Whether the question is answered.
    pub const fn is_answered(&self) -> bool {
        matches!(self.answer, CheckAnswer::Answered { .. })
    }

    /// Whether the answer has warnings.
    pub const fn is_weak(&self) -> bool {
        self.is_answered() && !self.warnings.is_empty()
    }
}

/// Checks every question once, in the order of [`Question::ALL`].
pub fn check(charter: &Charter) -> Vec<CharterFinding> {
    Question::ALL
        .into_iter()
        .map(|question| {
            let answer = match answer(charter, question) {
                Ok(answer) => CheckAnswer::Answered { by: answered_by(question), answer },
                Err(next_step) => CheckAnswer::Unanswered { next_step },
            };
            let warnings = match answer {
                CheckAnswer::Answered { .. } => warnings(charter, question),
                CheckAnswer::Unanswered { .. } => Vec::new(),
            };
            CharterFinding { question, answer, warnings }
        })
        .collect()
}

/// Whether every question is answered. Warnings do not count.
pub fn is_complete(findings: &[CharterFinding]) -> bool {
    findings.iter().all(CharterFinding::is_answered)
}

fn answered_by(question: Question) -> AnswerSource {
    match (question.field(), question) {
        (Some(field), _) => AnswerSource::Field(field),
        (None, Question::Remains) => AnswerSource::Promise("H1"),
        (None, Question::Counter) => AnswerSource::Promise("T1, T4, T5, T9"),
        (None, Question::Stale) => AnswerSource::Promise("F1, F3, F6"),
        (None, _) => AnswerSource::Promise("T1, T5, T6"),
    }
}

/// The answer in words, or the next step towards one.
fn answer(charter: &Charter, question: Question) -> Result<String, String> {
    match question {
        Question::Validity => match charter.validity {
            Some(Validity::Session) => Ok("session: a session with one grantor; its machine must fail".into()),
            Some(Validity::Quorum) => Ok("quorum: an entry of a replicated log; a majority must fail".into()),
            Some(Validity::Issuer) => Ok("issuer: a signature; its key must leak, or its clock must be wrong".into()),
            None => Err("set `validity` to \"session\", \"quorum\" or \"issuer\"".into()),
        },
        Question::Observer => words(
            charter.observer.as_deref(),
            "describe in `observer` who observes the validity and when a holder's view can differ",
        ),
        Question::Price => words(
            charter.price_of_failure.as_deref(),
            "describe in `price_of_failure` what two simultaneous holders would cost, and whether the validity is worth it",
        ),
        Question::Authority => {
            let items: Vec<_> = charter.authority.iter().map(String::as_str).filter(|item| has_words(item)).collect();
            if items.is_empty() {
                return Err("list in `authority` everything that the holder may change".into());
            }
            Ok(items.join("; "))
        }
        Question::Payload => match charter.payload {
            Some(payload) => Ok(payload.word().into()),
            None => Err(format!("set `payload` to one of {}", choices(Payload::ALL.iter().map(|p| p.word())))),
        },
        Question::Remains => Ok("checkpoints and stored state, each with the token it was written under; \
            a lower token cannot overwrite them"
            .into()),
        Question::Targets => {
            any_target(charter)?;
            Ok(quoted_names(charter.targets.iter()))
        }
        Question::Checks => checks(charter),
        Question::Holes => holes(charter),
        Question::Counter => Ok("one counter per cluster in the grantor's journal, never deleted; raised to the wall \
            clock at every grant, by tokens that clients present, and after a restore above every earlier token"
            .into()),
        Question::Stale => Ok("rejected: a fence refuses a lower or missing token atomically with the write, and \
            reports it; for targets without a fence, see the holes"
            .into()),
        Question::Order => Ok("no: one counter orders all grants of a cluster; a restore continues above it as a new \
            incarnation; a token of another cluster is refused, never compared"
            .into()),
        Question::Renewal => match charter.renewal {
            Some(RenewalProof::Pulse) => Ok("pulse: the holder is alive".into()),
            Some(RenewalProof::Progress { window_ms }) => {
                let window = DurationText(window_ms);
                Ok(format!("progress: the lease ends as stalled after {window} without progress"))
            }
            None => {
                Err("set `renewal` = { proves = \"pulse\" }, or { proves = \"progress\", window_ms = 30000 }".into())
            }
        },
        Question::Handoff => match charter.handoff {
            Some(handoff) => Ok(match handoff.mode {
                HandoffMode::Gap => {
                    format!(
                        "gap: the successor is granted only after the predecessor's lease ends; at most {} of drain",
                        DurationText(handoff.drain_ms)
                    )
                }
                HandoffMode::Overlap => {
                    format!(
                        "overlap: the successor is granted immediately and claims after at most {} of drain",
                        DurationText(handoff.drain_ms)
                    )
                }
            }),
            None => Err("set `handoff` = { mode = \"gap\", drain_ms = 30000 }, or mode = \"overlap\"".into()),
        },
        Question::Uncommitted => match charter.uncommitted {
            Some(fate) => Ok(fate.word().into()),
            None => {
                Err(format!("set `uncommitted` to one of {}", choices(Uncommitted::ALL.iter().map(|fate| fate.word()))))
            }
        },
        Question::StartsFrom => match &charter.starts_from {
            Some(StartsFrom::Newest) => Ok("the newest checkpoint, with the token of the holder that wrote it".into()),
            Some(StartsFrom::Nothing) => Ok("nothing: the successor starts over".into()),
            Some(StartsFrom::Key(key)) => Ok(format!("the state `{key}`, with the token of the holder that wrote it")),
            None => {
                Err("set `starts_from` = { at = \"newest\" }, { at = \"none\" } or { at = \"key\", key = \"NAME\" }"
                    .into())
            }
        },
    }
}

fn checks(charter: &Charter) -> Result<String, String> {
    any_target(charter)?;
    all_modes(charter)?;
    let modes =
        charter.targets.iter().map(|t| format!("`{}` {}", t.name, t.mode.as_ref().map_or("", TargetMode::word)));
    Ok(modes.collect::<Vec<_>>().join(", "))
}

fn holes(charter: &Charter) -> Result<String, String> {
    any_target(charter)?;
    all_modes(charter)?;
    let mut holes = Vec::new();
    for target in &charter.targets {
        let (cost, next_step) = match &target.mode {
            Some(TargetMode::BoundedPause { blast_radius, .. }) => {
                (blast_radius, "describe in `blast_radius` what is damaged when a pause is longer than assumed")
            }
            Some(TargetMode::None { comment }) => {
                (comment, "explain in `comment` why it is acceptable that nothing checks the token")
            }
            Some(TargetMode::Forced | TargetMode::Cooperative | TargetMode::Grantor) | None => continue,
        };
        match cost.as_deref().filter(|cost| has_words(cost)) {
            Some(cost) => holes.push(format!("`{}`: {cost}", target.name)),
            None => return Err(format!("target `{}`: {next_step}", target.name)),
        }
    }
    Ok(if holes.is_empty() { "none: every target refuses a lower token".into() } else { holes.join("; ") })
}

fn any_target(charter: &Charter) -> Result<(), String> {
    if charter.targets.is_empty() {
        return Err("list in `targets` every system that the holder writes to, including state in the grantor".into());
    }
    Ok(())
}

fn all_modes(charter: &Charter) -> Result<(), String> {
    let undeclared: Vec<_> = charter.targets.iter().filter(|target| target.mode.is_none()).collect();
    if undeclared.is_empty() {
        return Ok(());
    }
    Err(format!(
        "set `mode` of {} to \"forced\", \"cooperative\", \"grantor\", \"bounded_pause\" or \"none\"",
        quoted_names(undeclared.into_iter())
    ))
}

fn words(text: Option<&str>, next_step: &str) -> Result<String, String> {
    text.filter(|text| has_words(text)).map(str::to_owned).ok_or_else(|| next_step.to_owned())
}

fn choices(words: impl Iterator<Item = &'static str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{CharterEdit, any_charter, complete, target};
    use super::super::{HandoffMode, HandoffTerms};
    use super::*;
    use proptest::prelude::*;

    fn open_questions(charter: &Charter) -> Vec<&'static str> {
        check(charter).iter().filter(|finding| !finding.is_answered()).map(|finding| finding.question.id()).collect()
    }

    #[track_caller]
    fn next_step(charter: &Charter, question: Question) -> String {
        let finding =
            check(charter).into_iter().find(|f| f.question == question).expect("every question has a finding");
        match finding.answer {
            CheckAnswer::Unanswered { next_step } => next_step,
            CheckAnswer::Answered { answer, .. } => panic!("answered: {answer}"),
        }
    }

    #[test]
    fn a_complete_charter_answers_all_sixteen_questions_without_a_warning() {
        let findings = check(&complete());
        assert_eq!(findings.len(), 16);
        assert!(is_complete(&findings));
        let weak: Vec<_> = findings.iter().filter(|f| f.is_weak()).collect();
        assert!(weak.is_empty(), "{weak:?}");
    }

    #[test]
    fn without_a_charter_only_leasehold_s_own_answers_are_given() {
        let findings = check(&Charter::default());
        assert!(!is_complete(&findings));
        for finding in &findings {
            assert_eq!(finding.is_answered(), finding.question.field().is_none(), "{finding:?}");
            assert!(!finding.is_weak());
        }
        assert_eq!(open_questions(&Charter::default()).len(), 12);
    }

    #[test]
    fn removing_an_answer_opens_exactly_its_question() {
        let table: &[(&[&str], CharterEdit)] = &[
            (&["validity"], |c| c.validity = None),
            (&["observer"], |c| c.observer = None),
            (&["observer"], |c| c.observer = Some(" - ".into())),
            (&["price"], |c| c.price_of_failure = None),
            (&["authority"], |c| c.authority.clear()),
            (&["authority"], |c| c.authority = vec!["?".into()]),
            (&["payload"], |c| c.payload = None),
            (&["targets", "checks", "holes"], |c| c.targets.clear()),
            (&["checks", "holes"], |c| c.targets[1].mode = None),
            (&["holes"], |c| c.targets[0].mode = Some(TargetMode::None { comment: None })),
            (&["holes"], |c| {
                c.targets[0].mode = Some(TargetMode::BoundedPause { assumed_ms: 5, blast_radius: None });
            }),
            (&["renewal"], |c| c.renewal = None),
            (&["handoff"], |c| c.handoff = None),
            (&["uncommitted"], |c| c.uncommitted = None),
            (&["starts_from"], |c| c.starts_from = None),
        ];
        for (row, (open, change)) in table.iter().enumerate() {
            let mut charter = complete();
            change(&mut charter);
            assert_eq!(open_questions(&charter), *open, "row {row}");
            assert!(!is_complete(&check(&charter)));
        }
    }

    #[test]
    fn the_next_step_of_an_open_question_names_the_field_or_the_target() {
        for finding in check(&Charter::default()) {
            if let (Some(field), CheckAnswer::Unanswered { next_step }) = (finding.question.field(), &finding.answer) {
                let field = field.split('.').next().expect("a first part");
                assert!(next_step.contains(&format!("`{field}`")), "{next_step}");
            }
        }
        let mut charter = complete();
        charter.targets.push(target("mail", None));
        assert!(next_step(&charter, Question::Checks).contains("`mode` of `mail`"));
        charter.targets[2].mode = Some(TargetMode::BoundedPause { assumed_ms: 5, blast_radius: None });
        assert!(next_step(&charter, Question::Holes).starts_with("target `mail`: describe in `blast_radius`"));
    }

    #[test]
    fn a_hole_with_a_comment_is_an_answer() {
        let mut charter = complete();
        charter
            .targets
            .push(target("mail", Some(TargetMode::None { comment: Some("a second mail is harmless".into()) })));
        let findings = check(&charter);
        assert!(is_complete(&findings));
        let holes = findings.iter().find(|f| f.question == Question::Holes).expect("every question has a finding");
        let answer = "`mail`: a second mail is harmless".to_owned();
        assert_eq!(holes.answer, CheckAnswer::Answered { by: AnswerSource::Field("targets.mode"), answer });
        assert!(holes.is_weak());
    }

    #[test]
    fn an_answer_reports_the_content_of_the_charter() {
        let mut charter = complete();
        charter.handoff = Some(HandoffTerms { mode: HandoffMode::Overlap, drain_ms: 7 });
        let text = |question| match answer(&charter, question) {
            Ok(answer) => answer,
            Err(next_step) => panic!("unanswered: {next_step}"),
        };
        assert_eq!(text(Question::Checks), "`ledger` forced, `checkpoint` grantor");
        assert_eq!(text(Question::Holes), "none: every target refuses a lower token");
        assert_eq!(
            text(Question::Handoff),
            "overlap: the successor is granted immediately and claims after at most 7ms of drain"
        );
        assert_eq!(text(Question::Authority), "rows of the ledger for this shard; the shard's checkpoint");
    }

    proptest! {
        #[test]
        fn every_charter_is_checked_against_every_question_once(charter in any_charter()) {
            let findings = check(&charter);
            prop_assert_eq!(findings.iter().map(|f| f.question).collect::<Vec<_>>(), Question::ALL.to_vec());
            for finding in findings {
                let text = match &finding.answer {
                    CheckAnswer::Answered { answer, .. } => answer,
                    CheckAnswer::Unanswered { next_step } => next_step,
                };
                prop_assert!(!text.is_empty());
                prop_assert!(finding.is_answered() || finding.warnings.is_empty());
            }
        }
    }
}
