//! Assignment of shards to workers. Every worker decides for itself from a snapshot. The leases provide safety; the plan only
//! makes the shares even, and lets them come to rest.

use std::collections::{BTreeMap, BTreeSet};

/// Owner of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardOwner {
    Free,
    /// The worker with this number.
    Worker(u64),
    /// It moves from one worker to another.
    Moving,
}

/// Workers and owners at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardSnapshot {
    /// Numbers of the workers.
    pub workers: BTreeSet<u64>,
    pub owners: Vec<ShardOwner>,
}

/// What a worker does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AssignmentPlan {
    /// Free shards to acquire.
    pub acquire: Vec<u32>,
    /// Shards to request from other workers.
    pub request: Vec<u32>,
}

impl ShardSnapshot {
    /// Plan of the worker `me`, which waits for `coming` more shards. `before` is its previous snapshot: shards are requested from
    /// others only while the workers stay the same, so that a fleet that starts or restarts does not shuffle them.
    pub(super) fn plan(&self, me: u64, coming: usize, before: Option<&Self>, limit: usize) -> AssignmentPlan {
        let (shards, workers) = (self.owners.len(), self.workers.len().max(1));
        let (min_share, max_share) = (shards / workers, shards.div_ceil(workers));
        let stable = before.is_some_and(|before| before.workers == self.workers);
        let mut mine = coming + self.owners.iter().filter(|owner| **owner == ShardOwner::Worker(me)).count();
        let mut plan = AssignmentPlan::default();
        for index in self.by_preference(ShardOwner::Free, me) {
            // A shard that stayed free since the previous snapshot is acquired beyond the share: no other worker wants it.
            let left_over =
                stable && before.is_some_and(|before| before.owners.get(index as usize) == Some(&ShardOwner::Free));
            if mine < max_share || left_over {
                plan.acquire.push(index);
                mine += 1;
            }
        }
        if stable {
            self.request_from_others(me, mine, (min_share, max_share), limit, &mut plan);
        }
        plan
    }

    /// Requests the missing shards from workers with more than the minimum, the one with the most first. Every move makes the
    /// shares more even, so the moves end.
    fn request_from_others(
        &self,
        me: u64,
        mut mine: usize,
        (min_share, max_share): (usize, usize),
        limit: usize,
        plan: &mut AssignmentPlan,
    ) {
        let mut loads: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (index, owner) in self.owners.iter().enumerate() {
            if let ShardOwner::Worker(worker) = owner
                && *worker != me
            {
                loads.entry(*worker).or_default().push(index as u32);
            }
        }
        while plan.request.len() < limit {
            let gone = loads.iter().find(|(worker, has)| !self.workers.contains(worker) && !has.is_empty());
            let largest = loads.iter().max_by_key(|(_, has)| has.len());
            let from = match (gone, largest) {
                (Some((worker, _)), _) if mine < max_share => *worker,
                (_, Some((worker, has))) if mine < min_share && has.len() > min_share => *worker,
                // If the shares cannot be equal, one more than the minimum is even.
                (_, Some((worker, has))) if mine == min_share && max_share > min_share && has.len() > max_share => {
                    *worker
                }
                _ => return,
            };
            let has = loads.get_mut(&from).expect("the worker has shards");
            let at = (0..has.len()).max_by_key(|at| preference(me, has[*at])).expect("the worker has shards");
            plan.request.push(has.swap_remove(at));
            mine += 1;
        }
    }

    /// Shards with this owner, by this worker's preference: workers that choose at the same time choose differently.
    fn by_preference(&self, owner: ShardOwner, me: u64) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.owners.len() as u32).filter(|at| self.owners[*at as usize] == owner).collect();
        all.sort_by_key(|index| std::cmp::Reverse(preference(me, *index)));
        all
    }
}

/// Preference of a worker for a shard: a hash, so that every worker has its own order.
fn preference(worker: u64, index: u32) -> u64 {
    let mut mixed = worker.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(index).wrapping_mul(0xD1B5_4A32_D192_ED03);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(workers: &[u64], owners: &[ShardOwner]) -> ShardSnapshot {
        ShardSnapshot { workers: workers.iter().copied().collect(), owners: owners.to_vec() }
    }

    fn loads(snapshot: &ShardSnapshot) -> Vec<usize> {
        let load = |worker: &u64| snapshot.owners.iter().filter(|owner| **owner == ShardOwner::Worker(*worker)).count();
        snapshot.workers.iter().map(load).collect()
    }

    /// Lets every worker plan and move in turn until nothing moves. Returns the number of moves.
    fn settle(state: &mut ShardSnapshot) -> usize {
        let mut moves = 0;
        let mut last = ShardSnapshot { owners: vec![ShardOwner::Moving; state.owners.len()], ..state.clone() };
        for _ in 0..1_000 {
            let (before, now) = (moves, state.clone());
            for me in state.workers.clone() {
                let plan = state.plan(me, 0, Some(&last), 4);
                for index in plan.acquire.iter().chain(&plan.request) {
                    state.owners[*index as usize] = ShardOwner::Worker(me);
                    moves += 1;
                }
            }
            if moves == before {
                return moves;
            }
            last = now;
        }
        panic!("the shares never came to rest: {state:?}");
    }

    #[test]
    fn shares_become_even_and_then_nothing_moves() {
        for (shards, workers) in [(1, 1), (1, 3), (7, 2), (10, 3), (11, 3), (12, 4), (64, 5), (100, 7), (3, 9)] {
            let mut all = snapshot(&(1..=workers).collect::<Vec<u64>>(), &vec![ShardOwner::Worker(1); shards]);
            settle(&mut all);
            let loads = loads(&all);
            let (min, max) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(max - min <= 1, "{shards} over {workers}: {loads:?}");
            assert_eq!(settle(&mut all), 0, "{shards} over {workers}: nothing moves again");
        }
    }

    #[test]
    fn a_new_worker_causes_no_more_moves_than_its_share() {
        let mut all = snapshot(&[1, 2, 3], &[ShardOwner::Free; 12]);
        settle(&mut all);
        all.workers.insert(4);
        assert_eq!(settle(&mut all), 3);
        assert_eq!(loads(&all), [3, 3, 3, 3]);
    }

    #[test]
    fn only_the_shards_of_a_worker_that_left_move() {
        let mut all = snapshot(&[1, 2, 3], &[ShardOwner::Free; 12]);
        settle(&mut all);
        all.workers.remove(&3);
        all.owners
            .iter_mut()
            .filter(|owner| **owner == ShardOwner::Worker(3))
            .for_each(|owner| *owner = ShardOwner::Free);
        assert_eq!(settle(&mut all), 4);
        assert_eq!(loads(&all), [6, 6]);
    }

    #[test]
    fn no_shard_is_requested_while_the_set_of_workers_changes() {
        let before = snapshot(&[1], &[ShardOwner::Worker(1); 4]);
        let now = snapshot(&[1, 2], &[ShardOwner::Worker(1); 4]);
        assert_eq!(now.plan(2, 0, Some(&before), 4), AssignmentPlan::default());
        assert_eq!(now.plan(2, 0, None, 4), AssignmentPlan::default());
        assert_eq!(now.plan(2, 0, Some(&now), 4).request.len(), 2);
    }

    #[test]
    fn a_moving_shard_is_left_alone_and_counts_for_its_new_owner() {
        let now = snapshot(
            &[1, 2],
            &[ShardOwner::Worker(1), ShardOwner::Worker(1), ShardOwner::Worker(1), ShardOwner::Moving],
        );
        assert_eq!(now.plan(2, 1, Some(&now), 4).request.len(), 1);
        assert_eq!(now.plan(2, 2, Some(&now), 4), AssignmentPlan::default());
    }

    #[test]
    fn a_shard_that_stays_free_is_acquired_beyond_the_share() {
        let now = snapshot(&[1, 2], &[ShardOwner::Worker(1), ShardOwner::Free]);
        assert_eq!(now.plan(1, 0, None, 4), AssignmentPlan::default(), "it is within the share of the other worker");
        assert_eq!(now.plan(1, 0, Some(&now), 4).acquire, [1], "the other worker does not acquire it");
    }

    #[test]
    fn shards_of_an_unregistered_worker_are_requested_first() {
        let now = snapshot(
            &[1, 2],
            &[ShardOwner::Worker(9), ShardOwner::Worker(1), ShardOwner::Worker(2), ShardOwner::Worker(2)],
        );
        assert_eq!(now.plan(1, 0, Some(&now), 4).request, [0]);
    }
}
