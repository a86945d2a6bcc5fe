//! Actor names for guards. Every guard is its own actor, so that tasks of one process exclude each other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use leasehold_core::limits::ACTORS_PER_SESSION;

/// Unnamed actors of one session; further guards share them. The rest is reserved for actors that programs name.
const UNNAMED_ACTORS: u32 = ACTORS_PER_SESSION - 256;

/// Numbers of the unnamed actors in use.
#[derive(Debug, Default)]
pub(super) struct ActorPool {
    uses: Vec<u32>,
    free: BinaryHeap<Reverse<u32>>,
    next_shared: u32,
}

impl ActorPool {
    pub(super) fn acquire(&mut self) -> u32 {
        let actor = match self.free.pop() {
            Some(Reverse(free)) => free,
            None if (self.uses.len() as u32) < UNNAMED_ACTORS => {
                self.uses.push(0);
                self.uses.len() as u32 - 1
            }
            None => {
                self.next_shared = (self.next_shared + 1) % UNNAMED_ACTORS;
                self.next_shared
            }
        };
        self.uses[actor as usize] += 1;
        actor
    }

    /// Counts one more lease of the same actor.
    pub(super) fn share(&mut self, actor: u32) {
        self.uses[actor as usize] += 1;
    }

    pub(super) fn release(&mut self, actor: u32) {
        let uses = &mut self.uses[actor as usize];
        *uses -= 1;
        if *uses == 0 {
            self.free.push(Reverse(actor));
        }
    }

    /// Name of an actor; the first one has the session's own.
    pub(super) fn name(actor: u32, holder: &str) -> String {
        if actor == 0 { String::new() } else { format!("{holder}#{actor}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_reused_and_shared_only_when_all_are_in_use() {
        let mut actors = ActorPool::default();
        assert_eq!((actors.acquire(), actors.acquire(), actors.acquire()), (0, 1, 2));
        actors.release(1);
        assert_eq!((actors.acquire(), actors.acquire()), (1, 3));
        let many: Vec<u32> = (4..2 * UNNAMED_ACTORS).map(|_| actors.acquire()).collect();
        assert!(many.iter().all(|actor| *actor < UNNAMED_ACTORS));
        assert_eq!((ActorPool::name(0, "w"), ActorPool::name(7, "w")), (String::new(), "w#7".to_owned()));
    }
}
