//! What a holder does beyond one lease for itself: reading together, pins, cached copies, progress, coming back.

use leasehold_core::lease::Access;
use leasehold_core::payload::cache;

use super::{Hold, Holder};
use crate::ask::{Ask, READ, WORK};
use crate::chance::Chance;
use crate::fault::Fault;
use crate::stage::Stage;

impl Hold {
    /// How far its work is, where that must be shown. One whose work has stopped goes on to renew.
    pub(super) fn show_work(&mut self, chance: &mut Chance) -> Option<u64> {
        if self.resource != WORK {
            return None;
        }
        self.stuck |= chance.one_in(6);
        self.work += u64::from(!self.stuck);
        Some(self.work)
    }
}

impl Holder {
    /// What its sessions are opened with; nobody else knows it.
    pub(super) const fn secret(&self) -> u8 {
        self.index as u8 + 1
    }

    /// A reader pins what it reads; a collector asks how far it may delete.
    pub(super) fn read_together(&mut self, stage: &mut Stage) {
        let shared = |hold: &&Hold| hold.resource == READ && hold.access == Access::Shared;
        let at = stage.chance.below(40);
        match self.holds.iter().find(shared).map(|hold| hold.known) {
            Some(held) if !stage.chance.one_in(3) => self.ask(stage, Ask::Pin { held, at }),
            _ => self.ask(stage, Ask::Collect { below: at }),
        }
    }

    /// Reads through a copy, or writes what others may have copies of.
    pub(super) fn cache(&mut self, stage: &mut Stage) {
        let (session, ttl) = (self.session, stage.chance.between(300, 2_000));
        match (self.intent, stage.chance.below(8)) {
            (Some(intent), 0) => self.ask(stage, Ask::Abort { intent }),
            (Some(intent), _) => self.ask(stage, Ask::Commit { intent }),
            (None, 0..=1) => self.ask(stage, Ask::Intend { session, ttl }),
            (None, 2) if !self.copies.is_empty() => {
                let lease = self.copies.remove(0);
                self.ask(stage, Ask::Dropped { lease });
            }
            _ => self.ask(stage, Ask::Read { session, ttl }),
        }
    }

    /// What was told about the cached key.
    pub(super) fn cached(&mut self, told: &cache::Answer) {
        match told {
            cache::Answer::Reading { lease, .. } => {
                self.copies.push(*lease);
                let over = self.copies.len().saturating_sub(4);
                self.copies.drain(..over);
            }
            cache::Answer::Intended { intent, .. } => self.intent = Some(*intent),
            cache::Answer::Committed { .. } | cache::Answer::Aborted => self.intent = None,
            _ => {}
        }
    }

    /// Comes back to its session as after a broken connection; or tries another's with its own secret.
    pub(super) fn come_back(&mut self, stage: &mut Stage) {
        let Some(mut session) = self.session else { return };
        if stage.strikes(Fault::Misuse, 2) {
            session = stage.another_session(session);
            stage.struck(Fault::Misuse, format!("holder {} guesses the secret of {session}", self.index));
        }
        self.ask(stage, Ask::Resume { session, secret: self.secret() });
    }
}
