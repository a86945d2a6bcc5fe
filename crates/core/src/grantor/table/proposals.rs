//! Proposals: dangerous commands that wait for the approval of a second identity (A14).

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::GrantorTable;
use crate::codec::{DecodeError, Reader, Write};
use crate::command::{Command, Handoff, LeaseSelector, ProposedCommand, Revoke};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::time::GrantorTime;

/// A command that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub proposer: Box<str>,
    /// What identifies the credential of the proposer; empty if it had none.
    pub credential: Box<str>,
    /// The command and its subject, as they are encoded.
    pub command: Box<[u8]>,
    pub until: GrantorTime,
}

impl Proposal {
    /// The digest of the exact command and its subject.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.command).into()
    }

    pub fn proposed(&self) -> ProposedCommand<'_> {
        ProposedCommand::decode(&self.command).expect("checked when it was applied")
    }
}

/// All proposals. Those that expired are removed when the next one is made.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    /// The number of the last proposal. Numbers are not reused.
    pub last: u64,
    open: BTreeMap<u64, Proposal>,
}

impl Proposals {
    pub fn add(&mut self, id: u64, proposal: Proposal, now: GrantorTime) -> Result<(), &'static str> {
        if id != self.last + 1 {
            return Err("a proposal with another number than the next");
        }
        if ProposedCommand::decode(&proposal.command).is_err() {
            return Err("a proposal whose command cannot be decoded");
        }
        self.open.retain(|_, known| known.until > now);
        if self.open.len() >= limits::PROPOSALS {
            return Err("too many proposals");
        }
        self.last = id;
        self.open.insert(id, proposal);
        Ok(())
    }

    pub fn remove(&mut self, id: u64) -> Result<(), &'static str> {
        if mutants::on(Mutant::ApprovedAgain) {
            return Ok(());
        }
        self.open.remove(&id).map(drop).ok_or("no such proposal")
    }

    /// A proposal that has not expired.
    pub fn get(&self, id: u64, now: GrantorTime) -> Option<&Proposal> {
        self.open.get(&id).filter(|proposal| proposal.until > now || mutants::on(Mutant::ProposalNeverExpires))
    }

    /// All proposals that have not expired, by number.
    pub fn iter(&self, now: GrantorTime) -> impl Iterator<Item = (u64, &Proposal)> {
        self.open.iter().map(|(id, proposal)| (*id, proposal)).filter(move |(_, proposal)| proposal.until > now)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.last);
        out.num(self.open.len() as u64);
        for (id, Proposal { proposer, credential, command, until }) in &self.open {
            out.num(*id);
            out.text(proposer);
            out.text(credential);
            out.bytes(command);
            out.num(until.0);
        }
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let last = from.num()?;
        let mut open = BTreeMap::new();
        let mut before = 0;
        for _ in 0..from.num()? {
            let id = from.num()?;
            if id <= before || id > last || open.len() >= limits::PROPOSALS {
                return Err(from.wrong("proposals out of order"));
            }
            before = id;
            let (proposer, credential) = (from.text()?.into(), from.text()?.into());
            let proposal =
                Proposal { proposer, credential, command: from.bytes()?.into(), until: GrantorTime(from.num()?) };
            if ProposedCommand::decode(&proposal.command).is_err() {
                return Err(from.wrong("a proposal whose command cannot be decoded"));
            }
            open.insert(id, proposal);
        }
        Ok(Self { last, open })
    }
}

impl GrantorTable {
    /// The name that a proposed command concerns; none if it concerns the whole cluster, or a lease that has ended.
    pub fn proposed_name<'a>(&'a self, command: &Command<'a>) -> Option<&'a str> {
        match command {
            Command::Free { resource, .. } => Some(resource),
            Command::RemoveCharter { prefix, .. } | Command::SetCharter { prefix, .. } => Some(prefix),
            Command::Revoke(Revoke { selector: LeaseSelector::Resource(name), .. })
            | Command::Handoff(Handoff { selector: LeaseSelector::Resource(name), .. }) => Some(name),
            Command::Revoke(Revoke { selector: LeaseSelector::Id(id), .. })
            | Command::Handoff(Handoff { selector: LeaseSelector::Id(id), .. }) => {
                self.live(*id).map(|lease| self.resources.name(lease.resource))
            }
            _ => None,
        }
    }
}
