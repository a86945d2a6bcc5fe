//! Who takes what: decided by each worker for itself, from one look. Nothing here is about safety, which the leases keep;
//! it is about even shares that come to rest.

use std::collections::{BTreeMap, BTreeSet};

/// Whose a shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    /// The worker with this seat.
    Of(u64),
    /// It is on its way from one to another.
    Moving,
}

/// What one look showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The seats of those who work here.
    pub workers: BTreeSet<u64>,
    pub owners: Vec<Owner>,
}

/// What to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Free ones to take.
    pub take: Vec<u32>,
    /// Others' to ask for.
    pub steal: Vec<u32>,
}

impl Seen {
    /// What the worker `me` does, who is about to get `coming` more. `before` is what it saw last: shards are taken from others
    /// only while the workers stay the same, so that a fleet which starts or restarts does not shuffle them.
    pub(super) fn plan(&self, me: u64, coming: usize, before: Option<&Self>, most: usize) -> Plan {
        let (shards, workers) = (self.owners.len(), self.workers.len().max(1));
        let (least, share) = (shards / workers, shards.div_ceil(workers));
        let calm = before.is_some_and(|before| before.workers == self.workers);
        let mut mine = coming + self.owners.iter().filter(|owner| **owner == Owner::Of(me)).count();
        let mut plan = Plan::default();
        for index in self.of(Owner::Nobody, me) {
            // One that nobody took for a whole look is taken beyond the share: whoever it was meant for does not.
            let left = calm && before.is_some_and(|before| before.owners.get(index as usize) == Some(&Owner::Nobody));
            if mine < share || left {
                plan.take.push(index);
                mine += 1;
            }
        }
        if calm {
            self.steal(me, mine, (least, share), most, &mut plan);
        }
        plan
    }

    /// Asks those who have more than the least for as many as are missing here, the richest first. Every move makes the shares
    /// more even, so moving ends.
    fn steal(&self, me: u64, mut mine: usize, (least, share): (usize, usize), most: usize, plan: &mut Plan) {
        let mut loads: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (index, owner) in self.owners.iter().enumerate() {
            if let Owner::Of(seat) = owner
                && *seat != me
            {
                loads.entry(*seat).or_default().push(index as u32);
            }
        }
        while plan.steal.len() < most {
            let gone = loads.iter().find(|(seat, has)| !self.workers.contains(seat) && !has.is_empty());
            let richest = loads.iter().max_by_key(|(_, has)| has.len());
            let victim = match (gone, richest) {
                (Some((seat, _)), _) if mine < share => *seat,
                (_, Some((seat, has))) if mine < least && has.len() > least => *seat,
                // Where shares cannot be equal, one more than the least is right.
                (_, Some((seat, has))) if mine == least && share > least && has.len() > share => *seat,
                _ => return,
            };
            let has = loads.get_mut(&victim).expect("just found");
            let at = (0..has.len()).max_by_key(|at| preference(me, has[*at])).expect("it has some");
            plan.steal.push(has.swap_remove(at));
            mine += 1;
        }
    }

    /// Shards of one kind, those first that suit this worker best: workers who choose at the same time choose differently.
    fn of(&self, owner: Owner, me: u64) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.owners.len() as u32).filter(|at| self.owners[*at as usize] == owner).collect();
        all.sort_by_key(|index| std::cmp::Reverse(preference(me, *index)));
        all
    }
}

/// How well a shard suits a worker: by a hash, so that each worker has an order of its own.
fn preference(seat: u64, index: u32) -> u64 {
    let mut mixed = seat.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(index).wrapping_mul(0xD1B5_4A32_D192_ED03);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(workers: &[u64], owners: &[Owner]) -> Seen {
        Seen { workers: workers.iter().copied().collect(), owners: owners.to_vec() }
    }

    fn loads(seen: &Seen) -> Vec<usize> {
        let of = |seat: &u64| seen.owners.iter().filter(|owner| **owner == Owner::Of(*seat)).count();
        seen.workers.iter().map(of).collect()
    }

    /// Everybody looks, plans and moves, one after the other, until nothing moves; returns how many moves there were.
    fn settle(seen: &mut Seen) -> usize {
        let mut moves = 0;
        let mut last = Seen { owners: vec![Owner::Moving; seen.owners.len()], ..seen.clone() };
        for _ in 0..1_000 {
            let (before, now) = (moves, seen.clone());
            for me in seen.workers.clone() {
                let plan = seen.plan(me, 0, Some(&last), 4);
                for index in plan.take.iter().chain(&plan.steal) {
                    seen.owners[*index as usize] = Owner::Of(me);
                    moves += 1;
                }
            }
            if moves == before {
                return moves;
            }
            last = now;
        }
        panic!("it never came to rest: {seen:?}");
    }

    #[test]
    fn shares_become_even_and_then_nothing_moves() {
        for (shards, workers) in [(1, 1), (1, 3), (7, 2), (10, 3), (11, 3), (12, 4), (64, 5), (100, 7), (3, 9)] {
            let mut all = seen(&(1..=workers).collect::<Vec<u64>>(), &vec![Owner::Of(1); shards]);
            settle(&mut all);
            let loads = loads(&all);
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(most - least <= 1, "{shards} over {workers}: {loads:?}");
            assert_eq!(settle(&mut all), 0, "{shards} over {workers}: it stays");
        }
    }

    #[test]
    fn a_worker_that_comes_costs_no_more_moves_than_its_share() {
        let mut all = seen(&[1, 2, 3], &[Owner::Nobody; 12]);
        settle(&mut all);
        all.workers.insert(4);
        assert_eq!(settle(&mut all), 3);
        assert_eq!(loads(&all), [3, 3, 3, 3]);
    }

    #[test]
    fn what_a_worker_leaves_behind_is_all_that_moves() {
        let mut all = seen(&[1, 2, 3], &[Owner::Nobody; 12]);
        settle(&mut all);
        all.workers.remove(&3);
        all.owners.iter_mut().filter(|owner| **owner == Owner::Of(3)).for_each(|owner| *owner = Owner::Nobody);
        assert_eq!(settle(&mut all), 4);
        assert_eq!(loads(&all), [6, 6]);
    }

    #[test]
    fn nothing_is_taken_from_others_while_workers_come_and_go() {
        let before = seen(&[1], &[Owner::Of(1); 4]);
        let now = seen(&[1, 2], &[Owner::Of(1); 4]);
        assert_eq!(now.plan(2, 0, Some(&before), 4), Plan::default());
        assert_eq!(now.plan(2, 0, None, 4), Plan::default());
        assert_eq!(now.plan(2, 0, Some(&now), 4).steal.len(), 2);
    }

    #[test]
    fn what_is_on_its_way_is_left_alone_and_counts_for_whom_it_comes_to() {
        let now = seen(&[1, 2], &[Owner::Of(1), Owner::Of(1), Owner::Of(1), Owner::Moving]);
        assert_eq!(now.plan(2, 1, Some(&now), 4).steal.len(), 1);
        assert_eq!(now.plan(2, 2, Some(&now), 4), Plan::default());
    }

    #[test]
    fn a_free_shard_that_nobody_takes_is_taken_beyond_the_share() {
        let now = seen(&[1, 2], &[Owner::Of(1), Owner::Nobody]);
        assert_eq!(now.plan(1, 0, None, 4), Plan::default(), "it is meant for the other");
        assert_eq!(now.plan(1, 0, Some(&now), 4).take, [1], "who does not come for it");
    }

    #[test]
    fn shards_of_a_worker_that_left_its_seat_are_asked_for_first() {
        let now = seen(&[1, 2], &[Owner::Of(9), Owner::Of(1), Owner::Of(2), Owner::Of(2)]);
        assert_eq!(now.plan(1, 0, Some(&now), 4).steal, [0]);
    }
}
