//! Which actor asks: every guard is one of its own, so that tasks of one process wait for each other as strangers do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use leasehold_core::limits::ACTORS_PER_SESSION;

/// Own actors of one session; guards beyond them share. The rest is left to actors that programs name.
const OWN: u32 = ACTORS_PER_SESSION - 256;

#[derive(Debug, Default)]
pub(super) struct Actors {
    uses: Vec<u32>,
    free: BinaryHeap<Reverse<u32>>,
    round: u32,
}

impl Actors {
    pub(super) fn take(&mut self) -> u32 {
        let actor = match self.free.pop() {
            Some(Reverse(free)) => free,
            None if (self.uses.len() as u32) < OWN => {
                self.uses.push(0);
                self.uses.len() as u32 - 1
            }
            None => {
                self.round = (self.round + 1) % OWN;
                self.round
            }
        };
        self.uses[actor as usize] += 1;
        actor
    }

    /// One more lease of the same actor.
    pub(super) fn share(&mut self, actor: u32) {
        self.uses[actor as usize] += 1;
    }

    pub(super) fn give_back(&mut self, actor: u32) {
        let uses = &mut self.uses[actor as usize];
        *uses -= 1;
        if *uses == 0 {
            self.free.push(Reverse(actor));
        }
    }

    /// The actor's name; the first one has the session's own.
    pub(super) fn name(actor: u32, holder: &str) -> String {
        if actor == 0 { String::new() } else { format!("{holder}#{actor}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_used_again_and_shared_only_when_there_are_no_more() {
        let mut actors = Actors::default();
        assert_eq!((actors.take(), actors.take(), actors.take()), (0, 1, 2));
        actors.give_back(1);
        assert_eq!((actors.take(), actors.take()), (1, 3));
        let many: Vec<u32> = (4..2 * OWN).map(|_| actors.take()).collect();
        assert!(many.iter().all(|actor| *actor < OWN));
        assert_eq!((Actors::name(0, "w"), Actors::name(7, "w")), (String::new(), "w#7".to_owned()));
    }
}
