//! A14: a dangerous command is executed only after another identity approved exactly this one, for the same subject, once and in
//! time; or by an identity that may act alone, on record.

use std::collections::BTreeMap;

use leasehold_core::codec::Reader;
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::time::GrantorTime;

use super::{CheckFinding, broken};
use crate::clock::SimTime;
use crate::history::{Batch, History, HistoryEvent};
use crate::operators::{OperatorAct, OperatorActKind};

/// Checks what operators did, and the records of proposals and approvals.
pub fn check(history: &History) -> CheckFinding {
    let mut journal = RecordedProposals::default();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::OperatorActed(act) => {
                check_act(*at, act)?;
                if act.executed && matches!(act.kind, OperatorActKind::Direct { alone: true, .. }) {
                    journal.acted_alone = Some(act.generation);
                }
            }
            HistoryEvent::BatchDurable { generation, batch } => journal.read(*at, Some(*generation), batch)?,
            HistoryEvent::JournalReverted { batches, .. } => {
                journal = RecordedProposals::default();
                batches.iter().try_for_each(|batch| journal.read(*at, None, batch))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_act(at: SimTime, act: &OperatorAct) -> CheckFinding {
    let OperatorAct { by, executed: true, ref kind, .. } = *act else { return Ok(()) };
    let problem = match kind {
        OperatorActKind::Direct { alone: true, may_act_alone: true } => return Ok(()),
        OperatorActKind::Direct { .. } => format!("{by} executed a dangerous command without a second identity"),
        OperatorActKind::Approve { by_another: false, proposal, .. } => {
            format!("{by} approved its own proposal {proposal}")
        }
        OperatorActKind::Approve { exact: false, proposal, .. } => {
            format!("{by} approved another command than proposal {proposal}")
        }
        OperatorActKind::Approve { same_subject: false, proposal, .. } => {
            format!("proposal {proposal} was executed for other leases than it named")
        }
        OperatorActKind::Approve { expired: true, proposal, .. } => {
            format!("proposal {proposal} was approved after its time")
        }
        OperatorActKind::Approve { .. } => return Ok(()),
    };
    broken("A14", at, problem)
}

/// The proposals of a journal.
#[derive(Default)]
struct RecordedProposals {
    open: BTreeMap<u64, (String, GrantorTime)>,
    /// The generation whose next batch records that someone acted alone.
    acted_alone: Option<u64>,
}

impl RecordedProposals {
    fn read(&mut self, at: SimTime, generation: Option<u64>, batch: &Batch) -> CheckFinding {
        let mut from = Reader::new(batch);
        let Ok(BatchHeader { time, .. }) = BatchHeader::decode(&mut from) else { return Ok(()) };
        let mut has_act_alone = false;
        while !from.is_empty() {
            let Ok(record) = Record::decode(&mut from) else { break };
            match record {
                Record::Proposed { proposal, proposer, until, .. } => {
                    self.open.insert(proposal, (proposer.to_owned(), until));
                }
                Record::ProposalApproved { proposal, approver, .. } => match self.open.remove(&proposal) {
                    None => return broken("A14", at, format!("proposal {proposal} was executed again")),
                    Some((proposer, _)) if proposer == approver => {
                        return broken("A14", at, format!("{approver} approved its own proposal {proposal}"));
                    }
                    Some((_, until)) if until <= time => {
                        return broken("A14", at, format!("proposal {proposal} was approved after its time"));
                    }
                    Some(_) => {}
                },
                Record::ProposalCanceled { proposal, .. } => {
                    self.open.remove(&proposal);
                }
                Record::ActedAlone { .. } => has_act_alone = true,
                _ => {}
            }
        }
        if self.acted_alone.take().is_some_and(|acted| Some(acted) == generation) && !has_act_alone {
            return broken("A14", at, "an operator acted alone, and nothing records it");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_histories::*;
    use super::*;

    fn acted(kind: OperatorActKind, executed: bool) -> HistoryEvent {
        HistoryEvent::OperatorActed(Box::new(OperatorAct { by: "a", generation: 1, kind, executed }))
    }

    fn proposed(proposal: u64) -> Record<'static> {
        Record::Proposed { proposal, proposer: "a", credential: "", command: &[6], until: GrantorTime(900) }
    }

    fn approved(proposal: u64, approver: &str) -> Record<'_> {
        Record::ProposalApproved { proposal, approver, credential: "" }
    }

    fn alone() -> Record<'static> {
        Record::ActedAlone { action: "revoke", resource: "jobs/a", reason: "the site is down" }
    }

    #[test]
    fn a_dangerous_command_that_was_executed_without_a_right_approval_is_found() {
        let direct = |alone, may_act_alone| OperatorActKind::Direct { alone, may_act_alone };
        let approve = |by_another, exact, same_subject, expired| OperatorActKind::Approve {
            proposal: 1,
            by_another,
            exact,
            same_subject,
            expired,
        };
        let wrong = [
            direct(false, false),
            direct(true, false),
            direct(false, true),
            approve(false, true, true, false),
            approve(true, false, true, false),
            approve(true, true, false, false),
            approve(true, true, true, true),
        ];
        for kind in wrong {
            assert_eq!(check(&history([acted(kind.clone(), false)])), Ok(()), "refused: {kind:?}");
            assert_eq!(check(&history([acted(kind.clone(), true)])).unwrap_err().promise, "A14", "{kind:?}");
        }
        assert_eq!(check(&history([acted(approve(true, true, true, false), true)])), Ok(()));
    }

    #[test]
    fn a_proposal_is_executed_once_by_another_identity_and_in_time() {
        let run = |records: &[Record<'_>]| check(&history([batch(&[proposed(1)]), batch(records)]));
        assert_eq!(run(&[approved(1, "b")]), Ok(()));
        assert_eq!(run(&[approved(1, "b"), approved(1, "b")]).unwrap_err().promise, "A14");
        assert_eq!(run(&[approved(2, "b")]).unwrap_err().promise, "A14");
        assert_eq!(run(&[approved(1, "a")]).unwrap_err().promise, "A14");
        let late = [batch(&[proposed(1)]), batch_at(900, &[approved(1, "b")])];
        assert_eq!(check(&history(late)).unwrap_err().promise, "A14");
    }

    #[test]
    fn an_act_alone_is_on_record_in_the_same_batch() {
        let act = || acted(OperatorActKind::Direct { alone: true, may_act_alone: true }, true);
        assert_eq!(check(&history([act(), batch(&[alone()])])), Ok(()));
        assert_eq!(check(&history([act(), batch(&[Record::Idle]), batch(&[alone()])])).unwrap_err().promise, "A14");
        assert_eq!(check(&history([act()])), Ok(()), "the server may be killed before it records anything");
    }
}
