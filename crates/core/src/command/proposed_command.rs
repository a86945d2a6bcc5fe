//! Proposed commands, and their binary codec: they are executed later, on the subject that they had when they were proposed. The
//! format must never change: proposals are journaled.

use super::{Command, Handoff, LeaseSelector, Revoke};
use crate::charter::{Charter, HandoffMode};
use crate::codec::{DecodeError, Reader, Write};
use crate::ids::LeaseId;
use crate::lease::EndReason;
use crate::token::Number;

/// What a command would change when it was proposed. An approval executes it only on the same subject (A14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProposedSubject {
    /// The number of leases that would end, or the value that would change.
    pub value: u64,
    /// The digest of the exact subject.
    pub digest: [u8; 32],
}

/// A command that waits for an approval.
#[derive(Clone, Debug)]
pub(crate) struct ProposedCommand<'a> {
    pub command: Command<'a>,
    /// `None` if it was proposed by a version that did not record it.
    pub subject: Option<ProposedSubject>,
}

/// The code in front of a subject; the command follows it.
const WITH_SUBJECT: u8 = 9;

impl<'a> ProposedCommand<'a> {
    /// The bytes of a command with its subject, which are its exact text for a digest; `None` for a command that is never proposed.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if let Some(subject) = &self.subject {
            out.u8(WITH_SUBJECT);
            out.num(subject.value);
            out.raw(&subject.digest);
        }
        self.command.encode_proposed(&mut out).then_some(out)
    }

    /// The command of these bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let mut code = from.u8()?;
        let mut subject = None;
        if code == WITH_SUBJECT {
            subject = Some(ProposedSubject { value: from.num()?, digest: from.array()? });
            code = from.u8()?;
        }
        let command = Command::decode_proposed(code, &mut from)?;
        from.finish()?;
        Ok(Self { command, subject })
    }
}

impl<'a> Command<'a> {
    /// Appends the bytes of a command that can be proposed. Returns false for all others.
    fn encode_proposed(&self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Free { resource, comment } => {
                out.u8(1);
                out.text(resource);
                out.text(comment);
            }
            Self::Revoke(Revoke { selector, reason, comment, grace_ms }) => {
                out.u8(2);
                encode_selector(out, selector);
                out.u8(reason.code());
                out.text(comment);
                out.num(*grace_ms);
            }
            Self::WaiveQuarantine { comment } => {
                out.u8(3);
                out.text(comment);
            }
            Self::RemoveCharter { prefix, comment } => {
                out.u8(4);
                out.text(prefix);
                out.text(comment);
            }
            Self::SetMaxTtl { max_ttl_ms, comment } => {
                out.u8(5);
                out.num(*max_ttl_ms);
                out.text(comment);
            }
            Self::StepDown => out.u8(6),
            Self::SetCharter { prefix, charter, comment } => {
                out.u8(7);
                out.text(prefix);
                out.text(comment);
                out.bytes(&charter.encode());
            }
            Self::Handoff(Handoff { selector, number, to, mode, drain_ms }) => {
                out.u8(8);
                encode_selector(out, selector);
                out.maybe(number.map(Number::get));
                out.flag(to.is_some());
                to.iter().for_each(|to| out.text(to));
                out.u8(mode.map_or(0, |mode| mode.code() + 1));
                out.maybe(*drain_ms);
            }
            _ => return false,
        }
        true
    }

    fn decode_proposed(code: u8, from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            1 => Self::Free { resource: from.text()?, comment: from.text()? },
            2 => {
                let selector = decode_selector(from)?;
                let reason = EndReason::from_code(from.u8()?).ok_or_else(|| from.wrong("no such reason"))?;
                Self::Revoke(Revoke { selector, reason, comment: from.text()?, grace_ms: from.num()? })
            }
            3 => Self::WaiveQuarantine { comment: from.text()? },
            4 => Self::RemoveCharter { prefix: from.text()?, comment: from.text()? },
            5 => Self::SetMaxTtl { max_ttl_ms: from.num()?, comment: from.text()? },
            6 => Self::StepDown,
            7 => {
                let (prefix, comment) = (from.text()?, from.text()?);
                Self::SetCharter { prefix, charter: Box::new(Charter::decode(from.bytes()?)?), comment }
            }
            8 => {
                let selector = decode_selector(from)?;
                let number = from.maybe()?.map(|raw| Number::new(raw).ok_or_else(|| from.wrong("not a token number")));
                let number = number.transpose()?;
                let to = if from.flag()? { Some(from.text()?) } else { None };
                let mode = match from.u8()? {
                    0 => None,
                    code => {
                        let mode = HandoffMode::ALL.get(usize::from(code) - 1).copied();
                        Some(mode.ok_or_else(|| from.wrong("no such handoff"))?)
                    }
                };
                Self::Handoff(Handoff { selector, number, to, mode, drain_ms: from.maybe()? })
            }
            _ => return Err(from.wrong("not a command that is proposed")),
        })
    }
}

fn encode_selector(out: &mut Vec<u8>, selector: &LeaseSelector<'_>) {
    match selector {
        LeaseSelector::Id(id) => {
            out.u8(0);
            out.num(u64::from(id.slot));
            out.num(u64::from(id.reuse));
        }
        LeaseSelector::Resource(name) => {
            out.u8(1);
            out.text(name);
        }
    }
}

fn decode_selector<'a>(from: &mut Reader<'a>) -> Result<LeaseSelector<'a>, DecodeError> {
    Ok(match from.u8()? {
        0 => LeaseSelector::Id(LeaseId { slot: from.num32()?, reuse: from.num32()? }),
        1 => LeaseSelector::Resource(from.text()?),
        _ => return Err(from.wrong("no such selector")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposed_command_decodes_as_written_and_damage_is_refused() {
        let revoke = |selector| Revoke { selector, reason: EndReason::Operator, comment: "why", grace_ms: 7 };
        let handoff = |selector, to, mode| Handoff { selector, number: Number::new(12), to, mode, drain_ms: Some(500) };
        let id = LeaseSelector::Id(LeaseId { slot: 3, reuse: 9 });
        let name = LeaseSelector::Resource("jobs/a");
        let commands = [
            Command::Free { resource: "jobs/a", comment: "checked" },
            Command::Revoke(revoke(id)),
            Command::Revoke(revoke(name)),
            Command::WaiveQuarantine { comment: "all are off" },
            Command::RemoveCharter { prefix: "", comment: "" },
            Command::SetMaxTtl { max_ttl_ms: 60_000, comment: "shorter" },
            Command::StepDown,
            Command::SetCharter { prefix: "jobs", charter: Box::default(), comment: "none" },
            Command::Handoff(handoff(name, None, None)),
            Command::Handoff(handoff(id, Some("worker-2"), Some(HandoffMode::Overlap))),
        ];
        let subject = ProposedSubject { value: 300, digest: [7; 32] };
        for (command, subject) in commands.iter().flat_map(|command| [(command, None), (command, Some(subject))]) {
            let bytes = ProposedCommand { command: command.clone(), subject }.encode().expect("it can be proposed");
            let decoded = ProposedCommand::decode(&bytes).expect("it decodes as written");
            assert_eq!(format!("{:?}", decoded.command), format!("{command:?}"));
            assert_eq!(decoded.subject, subject);
            for cut in 0..bytes.len() {
                assert!(ProposedCommand::decode(&bytes[..cut]).is_err(), "{command:?} cut at {cut}");
            }
            let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
            assert!(ProposedCommand::decode(&longer).is_err(), "{command:?}");
        }
        assert_eq!(ProposedCommand { command: Command::ObserveToken, subject: None }.encode(), None);
        let twice = [&[9, 1][..], &[7; 32], &[9, 1], &[7; 32], &[6]].concat();
        assert!(ProposedCommand::decode(&twice).is_err(), "a subject of a subject");
    }

    #[test]
    fn the_bytes_of_proposals_do_not_change() {
        let written = |command, subject| ProposedCommand { command, subject }.encode().expect("it can be proposed");
        assert_eq!(written(Command::StepDown, None), [6]);
        let free = Command::Free { resource: "a", comment: "b" };
        let mut expected = vec![9, 2];
        expected.extend([1; 32]);
        expected.extend([1, 1, b'a', 1, b'b']);
        assert_eq!(written(free, Some(ProposedSubject { value: 2, digest: [1; 32] })), expected);
        let handoff = Handoff {
            selector: LeaseSelector::Resource("a"),
            number: None,
            to: Some("b"),
            mode: Some(HandoffMode::Gap),
            drain_ms: None,
        };
        assert_eq!(written(Command::Handoff(handoff), None), [8, 1, 1, b'a', 0, 1, 1, b'b', 1, 0]);
    }
}
