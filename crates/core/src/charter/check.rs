//! Puts all sixteen questions to a charter and says which it leaves open, and which answers are weak.

use super::concerns::concerns;
use super::{Charter, Mode, Payload, Question, Renewal, StartsFrom, Style, Target, Uncommitted, says_something};
use crate::lease::Rung;

/// What came of one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The question.
    pub question: Question,
    /// Its answer, or what to do for one.
    pub answer: Answer,
    /// What is weak about an answer that was given, each with what to do.
    pub concerns: Vec<String>,
}

/// An answer, or the lack of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was given.
    Answered {
        /// By whom.
        by: By,
        /// In words.
        answer: String,
    },
    /// It was not.
    Unanswered {
        /// What to write where.
        next_step: String,
    },
}

/// Who answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// This field of the charter.
    Field(&'static str),
    /// Leasehold, for every charter, by these promises.
    Promise(&'static str),
}

impl Finding {
    /// Whether an answer was given.
    pub const fn is_answered(&self) -> bool {
        matches!(self.answer, Answer::Answered { .. })
    }

    /// Whether an answer was given that should be better.
    pub const fn is_weak(&self) -> bool {
        self.is_answered() && !self.concerns.is_empty()
    }
}

/// Asks every question once, in the order of [`Question::ALL`].
pub fn check(charter: &Charter) -> Vec<Finding> {
    Question::ALL
        .into_iter()
        .map(|question| {
            let answer = match ask(charter, question) {
                Ok(answer) => Answer::Answered { by: answered_by(question), answer },
                Err(next_step) => Answer::Unanswered { next_step },
            };
            let concerns = match answer {
                Answer::Answered { .. } => concerns(charter, question),
                Answer::Unanswered { .. } => Vec::new(),
            };
            Finding { question, answer, concerns }
        })
        .collect()
}

/// Whether no question was left open. Concerns do not count.
pub fn is_complete(findings: &[Finding]) -> bool {
    findings.iter().all(Finding::is_answered)
}

fn answered_by(question: Question) -> By {
    match (question.field(), question) {
        (Some(field), _) => By::Field(field),
        (None, Question::Remains) => By::Promise("H1"),
        (None, Question::Counter) => By::Promise("T1, T4, T5, T9"),
        (None, Question::Stale) => By::Promise("F1, F3, F6"),
        (None, _) => By::Promise("T1, T5, T6"),
    }
}

/// The answer in words, or the next step towards one.
fn ask(charter: &Charter, question: Question) -> Result<String, String> {
    match question {
        Question::Rung => match charter.rung {
            Some(Rung::Session) => Ok("session: one grantor hears the holder; its machine must fail".into()),
            Some(Rung::Quorum) => Ok("quorum: an entry of a replicated log; a majority must fail".into()),
            Some(Rung::Issuer) => Ok("issuer: a signature; its key must leak, or its clock be wrong".into()),
            None => Err("set `rung` to session, quorum or issuer".into()),
        },
        Question::Observer => {
            words(charter.observer.as_deref(), "say in `observer` who watches the rung and when a holder may differ")
        }
        Question::Price => words(
            charter.price_of_failure.as_deref(),
            "say in `price_of_failure` what two holders at once would cost, and whether the rung is worth it",
        ),
        Question::Authority => {
            let items: Vec<_> =
                charter.authority.iter().map(String::as_str).filter(|item| says_something(item)).collect();
            if items.is_empty() {
                return Err("list in `authority` each thing that the holder may touch".into());
            }
            Ok(items.join("; "))
        }
        Question::Payload => match charter.payload {
            Some(payload) => Ok(payload.word().into()),
            None => Err(format!("set `payload` to one of {}", choices(Payload::ALL.iter().map(|p| p.word())))),
        },
        Question::Remains => Ok("checkpoints and small state stay, each with the token it was written under; \
            a lower token replaces neither"
            .into()),
        Question::Targets => {
            any_target(charter)?;
            Ok(quoted(charter.targets.iter()))
        }
        Question::Checks => checks(charter),
        Question::Holes => holes(charter),
        Question::Counter => Ok("in the grantor's journal, one counter for the cluster, never deleted; lifted by the \
            clock in every granting turn, by tokens shown, and after a restore above every earlier token"
            .into()),
        Question::Stale => Ok("turned away: a fence refuses a lower token and a missing one in the same step as the \
            write, and reports it; where there is no fence, see the holes"
            .into()),
        Question::Order => Ok("no: one counter orders all grants of a cluster; a restore goes on above it as a new \
            incarnation; a token of another cluster is refused, never compared"
            .into()),
        Question::Renewal => match charter.renewal {
            Some(Renewal::Pulse) => Ok("a pulse: the holder is there".into()),
            Some(Renewal::Progress { window_ms }) => {
                Ok(format!("progress: without any for {window_ms} ms the lease ends as stalled"))
            }
            None => Err("set `renewal` to pulse, or to progress with a window".into()),
        },
        Question::Handoff => match charter.handoff {
            Some(handoff) => Ok(match handoff.style {
                Style::Gap => {
                    format!(
                        "gap: granted after the predecessor's end, never before; at most {} ms of drain",
                        handoff.drain_ms
                    )
                }
                Style::Overlap => {
                    format!("overlap: granted at once, claims after at most {} ms of drain", handoff.drain_ms)
                }
            }),
            None => Err("set `handoff` to gap or overlap, with `drain_ms`".into()),
        },
        Question::Uncommitted => match charter.uncommitted {
            Some(fate) => Ok(fate.word().into()),
            None => {
                Err(format!("set `uncommitted` to one of {}", choices(Uncommitted::ALL.iter().map(|fate| fate.word()))))
            }
        },
        Question::StartsFrom => match &charter.starts_from {
            Some(StartsFrom::Newest) => Ok("the newest checkpoint, under the token of the holder that wrote it".into()),
            Some(StartsFrom::Nothing) => Ok("nothing: the successor begins anew".into()),
            Some(StartsFrom::Key(key)) => Ok(format!("the state `{key}`, under the token of the holder that wrote it")),
            None => Err("set `starts_from` to newest, none, or a key".into()),
        },
    }
}

fn checks(charter: &Charter) -> Result<String, String> {
    any_target(charter)?;
    all_modes(charter)?;
    let told = charter.targets.iter().map(|t| format!("`{}` {}", t.name, t.mode.as_ref().map_or("", Mode::word)));
    Ok(told.collect::<Vec<_>>().join(", "))
}

fn holes(charter: &Charter) -> Result<String, String> {
    any_target(charter)?;
    all_modes(charter)?;
    let mut told = Vec::new();
    for target in &charter.targets {
        let (worth, next_step) = match &target.mode {
            Some(Mode::BoundedPause { blast_radius, .. }) => {
                (blast_radius, "say in `blast_radius` what is damaged when a pause is longer than assumed")
            }
            Some(Mode::None { why }) => (why, "say in `why` what makes it acceptable that nothing checks"),
            Some(Mode::Forced | Mode::Cooperative | Mode::Grantor) | None => continue,
        };
        match worth.as_deref().filter(|worth| says_something(worth)) {
            Some(worth) => told.push(format!("`{}`: {worth}", target.name)),
            None => return Err(format!("target `{}`: {next_step}", target.name)),
        }
    }
    Ok(if told.is_empty() { "none: every target refuses a lower token".into() } else { told.join("; ") })
}

fn any_target(charter: &Charter) -> Result<(), String> {
    if charter.targets.is_empty() {
        return Err("list in `targets` every place that the holder writes to; what the grantor keeps counts too".into());
    }
    Ok(())
}

fn all_modes(charter: &Charter) -> Result<(), String> {
    let silent: Vec<_> = charter.targets.iter().filter(|target| target.mode.is_none()).collect();
    if silent.is_empty() {
        return Ok(());
    }
    Err(format!("set `mode` of {} to forced, cooperative, grantor, bounded_pause or none", quoted(silent.into_iter())))
}

fn words(text: Option<&str>, next_step: &str) -> Result<String, String> {
    text.filter(|text| says_something(text)).map(str::to_owned).ok_or_else(|| next_step.to_owned())
}

pub(super) fn quoted<'a>(targets: impl Iterator<Item = &'a Target>) -> String {
    targets.map(|target| format!("`{}`", target.name)).collect::<Vec<_>>().join(", ")
}

fn choices(words: impl Iterator<Item = &'static str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::sample::{any_charter, complete, target};
    use super::super::{Handoff, Style};
    use super::*;
    use proptest::prelude::*;

    fn open_questions(charter: &Charter) -> Vec<&'static str> {
        check(charter).iter().filter(|finding| !finding.is_answered()).map(|finding| finding.question.id()).collect()
    }

    #[track_caller]
    fn next_step(charter: &Charter, question: Question) -> String {
        let finding = check(charter).into_iter().find(|f| f.question == question).expect("every question is asked");
        match finding.answer {
            Answer::Unanswered { next_step } => next_step,
            Answer::Answered { answer, .. } => panic!("answered: {answer}"),
        }
    }

    #[test]
    fn a_complete_charter_answers_all_sixteen_without_a_concern() {
        let findings = check(&complete());
        assert_eq!(findings.len(), 16);
        assert!(is_complete(&findings));
        let weak: Vec<_> = findings.iter().filter(|f| f.is_weak()).collect();
        assert!(weak.is_empty(), "{weak:?}");
    }

    #[test]
    fn a_resource_without_a_charter_has_only_what_leasehold_answers_itself() {
        let findings = check(&Charter::default());
        assert!(!is_complete(&findings));
        for finding in &findings {
            assert_eq!(finding.is_answered(), finding.question.field().is_none(), "{finding:?}");
            assert!(!finding.is_weak());
        }
        assert_eq!(open_questions(&Charter::default()).len(), 12);
    }

    #[test]
    fn taking_one_answer_away_opens_exactly_its_question() {
        type Change = fn(&mut Charter);
        let table: &[(&[&str], Change)] = &[
            (&["rung"], |c| c.rung = None),
            (&["observer"], |c| c.observer = None),
            (&["observer"], |c| c.observer = Some(" - ".into())),
            (&["price"], |c| c.price_of_failure = None),
            (&["authority"], |c| c.authority.clear()),
            (&["authority"], |c| c.authority = vec!["?".into()]),
            (&["payload"], |c| c.payload = None),
            (&["targets", "checks", "holes"], |c| c.targets.clear()),
            (&["checks", "holes"], |c| c.targets[1].mode = None),
            (&["holes"], |c| c.targets[0].mode = Some(Mode::None { why: None })),
            (&["holes"], |c| {
                c.targets[0].mode = Some(Mode::BoundedPause { assumed_ms: 5, blast_radius: None });
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
    fn an_open_question_names_the_field_or_the_target_to_fill_in() {
        for finding in check(&Charter::default()) {
            if let (Some(field), Answer::Unanswered { next_step }) = (finding.question.field(), &finding.answer) {
                let field = field.split('.').next().expect("a first part");
                assert!(next_step.contains(&format!("`{field}`")), "{next_step}");
            }
        }
        let mut charter = complete();
        charter.targets.push(target("mail", None));
        assert!(next_step(&charter, Question::Checks).contains("`mode` of `mail`"));
        charter.targets[2].mode = Some(Mode::BoundedPause { assumed_ms: 5, blast_radius: None });
        assert!(next_step(&charter, Question::Holes).starts_with("target `mail`: say in `blast_radius`"));
    }

    #[test]
    fn a_priced_hole_is_an_answer() {
        let mut charter = complete();
        charter.targets.push(target("mail", Some(Mode::None { why: Some("a second mail harms nobody".into()) })));
        let findings = check(&charter);
        assert!(is_complete(&findings));
        let holes = findings.iter().find(|f| f.question == Question::Holes).expect("every question is asked");
        let answer = "`mail`: a second mail harms nobody".to_owned();
        assert_eq!(holes.answer, Answer::Answered { by: By::Field("targets.mode"), answer });
        assert!(holes.is_weak());
    }

    #[test]
    fn an_answer_tells_what_the_charter_says() {
        let mut charter = complete();
        charter.handoff = Some(Handoff { style: Style::Overlap, drain_ms: 7 });
        let told = |question| match ask(&charter, question) {
            Ok(answer) => answer,
            Err(next_step) => panic!("unanswered: {next_step}"),
        };
        assert_eq!(told(Question::Checks), "`ledger` forced, `checkpoint` grantor");
        assert_eq!(told(Question::Holes), "none: every target refuses a lower token");
        assert_eq!(told(Question::Handoff), "overlap: granted at once, claims after at most 7 ms of drain");
        assert_eq!(told(Question::Authority), "rows of the ledger for this shard; the shard's checkpoint");
    }

    proptest! {
        #[test]
        fn every_charter_is_asked_every_question_once(charter in any_charter()) {
            let findings = check(&charter);
            prop_assert_eq!(findings.iter().map(|f| f.question).collect::<Vec<_>>(), Question::ALL.to_vec());
            for finding in findings {
                let said = match &finding.answer {
                    Answer::Answered { answer, .. } => answer,
                    Answer::Unanswered { next_step } => next_step,
                };
                prop_assert!(!said.is_empty());
                prop_assert!(finding.is_answered() || finding.concerns.is_empty());
            }
        }
    }
}
