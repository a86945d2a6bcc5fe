//! Dangerous commands, and their binary codec: they are proposed and executed later. The format must never change: proposals are journaled.

use super::{Command, LeaseSelector, Revoke};
use crate::access::DangerousAction;
use crate::codec::{DecodeError, Reader, Write};
use crate::ids::LeaseId;
use crate::lease::EndReason;

impl Command<'_> {
    /// The dangerous action that this is, if it is one.
    pub(crate) const fn dangerous_action(&self) -> Option<DangerousAction> {
        match self {
            Self::Free { .. } => Some(DangerousAction::Free),
            Self::Revoke(_) => Some(DangerousAction::Revoke),
            Self::WaiveQuarantine { .. } => Some(DangerousAction::WaiveQuarantine),
            Self::RemoveCharter { .. } => Some(DangerousAction::RemoveCharter),
            Self::SetMaxTtl { .. } => Some(DangerousAction::SetMaxTtl),
            Self::StepDown => Some(DangerousAction::StepDown),
            _ => None,
        }
    }

    /// The bytes of a dangerous command, which are its exact text for a digest; `None` for all other commands.
    pub(crate) fn encode_proposed(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::Free { resource, comment } => {
                out.u8(1);
                out.text(resource);
                out.text(comment);
            }
            Self::Revoke(Revoke { selector, reason, comment, grace_ms }) => {
                out.u8(2);
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
            _ => return None,
        }
        Some(out)
    }

    /// The command of these bytes.
    pub(crate) fn decode_proposed(bytes: &[u8]) -> Result<Command<'_>, DecodeError> {
        let mut from = Reader::new(bytes);
        let command = match from.u8()? {
            1 => Command::Free { resource: from.text()?, comment: from.text()? },
            2 => {
                let selector = match from.u8()? {
                    0 => LeaseSelector::Id(LeaseId { slot: from.num32()?, reuse: from.num32()? }),
                    1 => LeaseSelector::Resource(from.text()?),
                    _ => return Err(from.wrong("no such selector")),
                };
                let reason = EndReason::from_code(from.u8()?).ok_or_else(|| from.wrong("no such reason"))?;
                Command::Revoke(Revoke { selector, reason, comment: from.text()?, grace_ms: from.num()? })
            }
            3 => Command::WaiveQuarantine { comment: from.text()? },
            4 => Command::RemoveCharter { prefix: from.text()?, comment: from.text()? },
            5 => Command::SetMaxTtl { max_ttl_ms: from.num()?, comment: from.text()? },
            6 => Command::StepDown,
            _ => return Err(from.wrong("not a command that is proposed")),
        };
        from.finish()?;
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposed_command_decodes_as_written_and_damage_is_refused() {
        let revoke = |selector| Revoke { selector, reason: EndReason::Operator, comment: "why", grace_ms: 7 };
        let commands = [
            Command::Free { resource: "jobs/a", comment: "checked" },
            Command::Revoke(revoke(LeaseSelector::Id(LeaseId { slot: 3, reuse: 9 }))),
            Command::Revoke(revoke(LeaseSelector::Resource("jobs/a"))),
            Command::WaiveQuarantine { comment: "all are off" },
            Command::RemoveCharter { prefix: "", comment: "" },
            Command::SetMaxTtl { max_ttl_ms: 60_000, comment: "shorter" },
            Command::StepDown,
        ];
        for command in &commands {
            let bytes = command.encode_proposed().expect("a dangerous command");
            let decoded = Command::decode_proposed(&bytes).expect("it decodes as written");
            assert_eq!(format!("{decoded:?}"), format!("{command:?}"));
            for cut in 0..bytes.len() {
                assert!(Command::decode_proposed(&bytes[..cut]).is_err(), "{command:?} cut at {cut}");
            }
            let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
            assert!(Command::decode_proposed(&longer).is_err(), "{command:?}");
        }
        assert_eq!(Command::ObserveToken.encode_proposed(), None);
    }
}
