//! The leases under renewal, each at its place, with when it is looked at next.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::command::{Answer as Told, Current, Known};
use leasehold_core::holder::{Action, Answer, Attempt, Granted, Renewal, Renewed, Timing};
use leasehold_core::ids::LeaseId;
use leasehold_core::time::Instant;

use super::cell::Cell;
use super::chance::Chance;
use super::group::Group;
use super::requests::Renewing;
use super::timers::Timers;
use crate::{Code, Error};

/// One lease.
pub(super) struct Kept {
    pub cell: Arc<Cell>,
    pub renewal: Renewal,
    pub timing: Timing,
    pub drain_ms: u64,
    pub life: u32,
    /// Which timer counts.
    pub stamp: u32,
    pub actor: Option<u32>,
    /// Its session is over; only the reason is not known yet.
    pub foreign: bool,
    /// Renewals raise its token.
    pub rotates: bool,
    /// A request that may have raised its token is without an answer: until then nobody knows which token to show.
    pub raising: bool,
    /// From when the successor in an overlap claims, heard or not (H3).
    pub claim_from: Option<Instant>,
    /// Granted, and not yet handed out: after a long wait the first renewal tells whether it may act. As which of a group.
    pub making: Option<(Arc<Group>, usize)>,
}

/// What became of a lease when it was looked at.
pub(super) enum Turned {
    /// Work must stop.
    Suspended,
    /// Work may go on.
    Resumed,
    /// Over; the lease was taken out.
    Lost(Box<Kept>, leasehold_core::holder::Loss),
}

#[derive(Default)]
pub(super) struct Leases {
    places: Vec<Option<Kept>>,
    free: Vec<u32>,
    /// Where the leases of the session are; what happened to them is told by id.
    by_lease: HashMap<LeaseId, u32>,
    lives: u32,
    stamps: u32,
    pub timers: Timers,
    /// Renewals to be sent.
    pub out: Vec<Renewing>,
    pub count: usize,
    in_making: Vec<u32>,
}

impl Leases {
    /// The place of the next lease, and which life there.
    pub(super) fn next_place(&mut self) -> (u32, u32) {
        self.lives = self.lives.wrapping_add(1);
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        (place, self.lives)
    }

    pub(super) fn keep(&mut self, place: u32, kept: Kept) {
        self.by_lease.insert(kept.cell.lease, place);
        self.places[place as usize] = Some(kept);
        self.count += 1;
    }

    pub(super) fn new_kept(cell: Arc<Cell>, renewal: Renewal, timing: Timing, drain_ms: u64, life: u32) -> Kept {
        let (stamp, actor, foreign, raising, claim_from, making) = (0, None, false, false, None, None);
        let rotates = false;
        Kept { cell, renewal, timing, drain_ms, life, stamp, actor, foreign, rotates, raising, claim_from, making }
    }

    pub(super) fn at(&mut self, place: u32) -> Option<&mut Kept> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// The lease that a guard means; none if it was taken out.
    pub(super) fn of(&mut self, cell: &Arc<Cell>) -> Option<&mut Kept> {
        self.at(cell.place).filter(|kept| Arc::ptr_eq(&kept.cell, cell))
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<Kept> {
        let kept = self.places.get_mut(place as usize)?.take()?;
        if !kept.foreign {
            self.by_lease.remove(&kept.cell.lease);
        }
        self.free.push(place);
        self.count -= 1;
        Some(kept)
    }

    pub(super) fn places(&self) -> Vec<u32> {
        let live = self.places.iter().enumerate().filter(|(_, kept)| kept.is_some());
        live.map(|(place, _)| place as u32).collect()
    }

    /// Remembers a lease that could not be handed out at once.
    pub(super) fn later(&mut self, place: u32) {
        if self.at(place).is_some_and(|kept| kept.making.is_some()) {
            self.in_making.push(place);
        }
    }

    /// Takes out of the making what nobody is patient for any more.
    pub(super) fn in_making_for_too_long(&mut self, now: Instant) -> Vec<(Arc<Cell>, Arc<Group>)> {
        let (places, mut late) = (&mut self.places, Vec::new());
        self.in_making.retain(|place| {
            let Some(kept) = &mut places[*place as usize] else {
                return false;
            };
            if let Some((group, _)) = kept.making.take_if(|(group, _)| now >= group.patience) {
                late.push((kept.cell.clone(), group));
            }
            kept.making.is_some()
        });
        late
    }

    fn own(&self) -> impl Iterator<Item = &Kept> {
        self.places.iter().flatten().filter(|kept| !kept.foreign)
    }

    /// What the client knows, in two numbers.
    pub(super) fn known(&self) -> Known {
        let start = Known { count: 0, digest: 0 };
        self.own().fold(start, |known, kept| Known {
            count: known.count + 1,
            digest: known.digest ^ kept.renewal.token().get(),
        })
    }

    /// What the client knows, one by one, in rising order.
    pub(super) fn list(&self) -> Vec<LeaseId> {
        let mut list: Vec<LeaseId> = self.own().map(|kept| kept.cell.lease).collect();
        list.sort_unstable();
        list
    }

    pub(super) fn place_of(&self, lease: LeaseId) -> Option<u32> {
        self.by_lease.get(&lease).copied()
    }

    /// The session is over, and with it everything that it carried; why, each is told when it can be asked.
    pub(super) fn session_over(&mut self) {
        self.by_lease.clear();
        self.out.clear();
        for kept in self.places.iter_mut().flatten() {
            (kept.foreign, kept.raising) = (true, false);
        }
    }

    /// Does whatever a lease wants now, and tells the guard how it stands.
    pub(super) fn attend(
        &mut self,
        place: u32,
        now: Instant,
        chance: &Chance,
        connected: bool,
        mut turned: impl FnMut(&mut Self, Turned),
    ) {
        loop {
            let Some(kept) = self.places.get_mut(place as usize).and_then(Option::as_mut) else {
                return;
            };
            if kept.claim_from.is_some_and(|from| now >= from) {
                kept.alone();
            }
            match kept.renewal.poll(now, chance.at(place)) {
                Action::Suspend => {
                    kept.cell.update(|view| {
                        view.working = false;
                        view.suspensions = view.suspensions.wrapping_add(1);
                    });
                    turned(self, Turned::Suspended);
                }
                Action::Resume(_) => {
                    kept.show();
                    turned(self, Turned::Resumed);
                }
                Action::Rotated(_) => kept.show(),
                Action::Drain { until } => kept.cell.update(|view| view.draining = Some(until)),
                Action::Send(attempt) => {
                    if connected {
                        let (life, raises) = (kept.life, kept.rotates);
                        self.out.push(Renewing { place, life, attempt, raises });
                    }
                }
                Action::Wait(at) => {
                    self.stamps = self.stamps.wrapping_add(1);
                    kept.stamp = self.stamps;
                    let latest = kept.renewal.deadline().earliest;
                    // Past its deadline it waits only for its next attempt.
                    let latest = if latest > now { latest } else { Instant(u64::MAX) };
                    let at = kept.claim_from.map_or(at, |from| from.min(at));
                    self.timers.set(now, at, latest, (place, self.stamps));
                    return;
                }
                Action::Lost(loss) => {
                    kept.cell.update(|view| {
                        view.working = false;
                        view.loss = Some(loss);
                    });
                    let kept = self.remove(place).expect("just found");
                    turned(self, Turned::Lost(Box::new(kept), loss));
                    return;
                }
            }
        }
    }

    /// Whether this timer is the lease's newest.
    pub(super) fn counts(&self, (place, stamp): (u32, u32)) -> bool {
        self.places.get(place as usize).and_then(Option::as_ref).is_some_and(|kept| kept.stamp == stamp)
    }
}

impl Kept {
    /// Tells the guard how its lease stands after a renewal.
    pub(super) fn show(&self) {
        let (number, deadline) = (self.renewal.token(), self.renewal.deadline());
        self.cell.update(|view| {
            view.token.number = number;
            view.deadline = deadline;
            view.working = true;
        });
    }

    /// Takes in the answer to a renewal.
    pub(super) fn answered(&mut self, attempt: Attempt, now: Instant, told: &Result<Told, Error>) {
        let answer = match told {
            Ok(Told::Current(current)) => {
                if !self.rotates && current.number > self.renewal.token() {
                    // A charter that raises tokens now, and did not at the grant, is known by the first that it raised.
                    self.rotates = true;
                    self.raised(attempt.sent(), now, current);
                }
                if current.overlaps_ms.is_none() {
                    self.alone();
                }
                Answer::Renewed(Renewed {
                    token: current.number,
                    remaining_ms: current.remaining_ms,
                    draining_ms: current.drain_ms,
                })
            }
            Ok(_) => Answer::Unavailable,
            Err(error) => match (error.lost(), error.code()) {
                (Some(reason), _) => Answer::Ended(reason),
                (None, Some(Code::NotCurrent)) => Answer::NotCurrent,
                _ => Answer::Unavailable,
            },
        };
        self.renewal.answered(attempt, now, answer);
        if matches!(answer, Answer::Renewed(_)) && self.renewal.may_act(now) {
            self.show();
        }
    }

    /// The predecessor of an overlap is gone.
    pub(super) fn alone(&mut self) {
        if self.claim_from.take().is_some() {
            self.cell.update(|view| view.overlap = None);
        }
    }

    /// Takes a token that was raised. The lease goes on as granted anew under it: counted from the request that raised it,
    /// and no further, nor further than it drains.
    pub(super) fn raised(&mut self, sent: Instant, now: Instant, current: &Current) {
        if current.number <= self.renewal.token() {
            return;
        }
        let stopped = self.cell.view().working && !self.renewal.may_act(now);
        let granted = Granted {
            token: current.number,
            sent,
            received: now,
            ttl_ms: current.drain_ms.map_or(current.remaining_ms, |drain| drain.min(current.remaining_ms)),
            drain_ms: Some(self.drain_ms),
            rotates: self.rotates,
        };
        // The drain period was in range at the grant, and that is all that is checked.
        if let Ok(renewal) = Renewal::new(self.timing, granted) {
            self.renewal = renewal;
            self.cell.update(|view| {
                view.token.number = current.number;
                view.suspensions = view.suspensions.wrapping_add(u32::from(stopped));
            });
        }
    }
}
