//! When a supervised command receives SIGTERM and when it is killed.
//!
//! Times are nanoseconds of the boot clock, so that suspend counts. Once SIGTERM is due, a later renewal does not revoke it: the
//! deadline only ever moves earlier.

use super::ipc::LeaseDeadlines;

/// Action that is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillAction {
    Wait,
    /// Send SIGTERM to all processes of the command.
    Terminate,
    /// Send SIGKILL to all processes of the command.
    Kill,
}

/// Deadlines of one command.
#[derive(Debug, Default)]
pub struct KillSchedule {
    /// Deadlines from the last renewal; `None` if the command may outlive its lease.
    lease: Option<LeaseDeadlines>,
    /// Kill at this time. Set when termination begins, and only ever moved earlier.
    kill_by: Option<u64>,
    terminate_sent: bool,
    lease_is_over: bool,
}

impl KillSchedule {
    pub const fn new(lease: Option<LeaseDeadlines>) -> Self {
        Self { lease, kill_by: None, terminate_sent: false, lease_is_over: false }
    }

    /// Replaces the deadlines after a renewal of the lease.
    pub const fn renew(&mut self, deadlines: LeaseDeadlines) {
        self.lease = Some(deadlines);
    }

    /// Begins termination: the command is killed in `within` nanoseconds at the latest.
    pub fn stop(&mut self, now: u64, within: u64) {
        let by = now.saturating_add(within);
        self.kill_by = Some(self.kill_by.map_or(by, |before| before.min(by)));
    }

    /// Whether termination has begun.
    pub const fn is_stopping(&self) -> bool {
        self.kill_by.is_some()
    }

    /// Whether a deadline of the lease began the termination.
    pub const fn lease_is_over(&self) -> bool {
        self.lease_is_over
    }

    /// Whether the time of the next action has come.
    pub fn is_due(&self, now: u64) -> bool {
        self.next_deadline().is_some_and(|at| now >= at)
    }

    /// Returns the due action: `Terminate` once, `Kill` on every call from the deadline on.
    pub fn poll(&mut self, now: u64) -> KillAction {
        if let Some(LeaseDeadlines { terminate_at, kill_at }) = self.lease
            && now >= terminate_at.unwrap_or(kill_at)
        {
            self.stop(now, kill_at.saturating_sub(now));
            self.lease_is_over = true;
        }
        match self.kill_by {
            Some(by) if now >= by => KillAction::Kill,
            Some(_) if !self.terminate_sent => {
                self.terminate_sent = true;
                KillAction::Terminate
            }
            _ => KillAction::Wait,
        }
    }

    /// The time at which `poll` can next return an action.
    pub fn next_deadline(&self) -> Option<u64> {
        match (self.kill_by, self.lease) {
            (Some(by), deadlines) => Some(deadlines.map_or(by, |deadlines| by.min(deadlines.kill_at))),
            (None, deadlines) => deadlines.map(|deadlines| deadlines.terminate_at.unwrap_or(deadlines.kill_at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINES: LeaseDeadlines = LeaseDeadlines { terminate_at: Some(50), kill_at: 90 };

    #[test]
    fn sigterm_is_due_at_terminate_at_and_sigkill_at_kill_at() {
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        assert_eq!(
            (schedule.poll(49), schedule.next_deadline(), schedule.is_stopping()),
            (KillAction::Wait, Some(50), false)
        );
        assert!(!schedule.is_due(49) && schedule.is_due(50) && !schedule.lease_is_over());
        assert_eq!(
            (schedule.poll(50), schedule.next_deadline(), schedule.is_stopping()),
            (KillAction::Terminate, Some(90), true)
        );
        assert_eq!(
            (schedule.poll(89), schedule.poll(90), schedule.poll(91)),
            (KillAction::Wait, KillAction::Kill, KillAction::Kill)
        );
    }

    #[test]
    fn a_renewal_moves_both_deadlines() {
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        schedule.renew(LeaseDeadlines { terminate_at: Some(150), kill_at: 190 });
        assert_eq!(
            (schedule.poll(149), schedule.poll(150), schedule.poll(190)),
            (KillAction::Wait, KillAction::Terminate, KillAction::Kill)
        );
    }

    #[test]
    fn a_renewal_after_sigterm_does_not_revoke_the_kill() {
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        assert_eq!(schedule.poll(60), KillAction::Terminate);
        schedule.renew(LeaseDeadlines { terminate_at: Some(150), kill_at: 190 });
        assert_eq!((schedule.poll(89), schedule.poll(90)), (KillAction::Wait, KillAction::Kill));
    }

    #[test]
    fn a_poll_after_kill_at_kills_without_sigterm() {
        assert_eq!(KillSchedule::new(Some(DEADLINES)).poll(1_000), KillAction::Kill);
    }

    #[test]
    fn without_terminate_at_the_command_is_killed_at_kill_at() {
        let mut schedule = KillSchedule::new(Some(LeaseDeadlines { terminate_at: None, kill_at: 90 }));
        assert_eq!(
            (schedule.poll(89), schedule.next_deadline(), schedule.poll(90)),
            (KillAction::Wait, Some(90), KillAction::Kill)
        );
    }

    #[test]
    fn a_stop_grants_its_grace_period_but_never_more_than_the_lease() {
        let mut schedule = KillSchedule::new(None);
        assert_eq!((schedule.poll(u64::MAX), schedule.next_deadline()), (KillAction::Wait, None));
        schedule.stop(10, 20);
        assert_eq!(
            (schedule.poll(10), schedule.poll(11), schedule.poll(30)),
            (KillAction::Terminate, KillAction::Wait, KillAction::Kill)
        );
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        schedule.stop(40, 1_000);
        assert_eq!(
            (schedule.poll(40), schedule.next_deadline(), schedule.poll(90)),
            (KillAction::Terminate, Some(90), KillAction::Kill)
        );
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        schedule.stop(40, 0);
        assert_eq!(schedule.poll(40), KillAction::Kill);
    }

    #[test]
    fn a_renewal_before_the_poll_revokes_a_deadline_that_has_passed_meanwhile() {
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        assert!(schedule.is_due(1_000), "it was paused");
        schedule.renew(LeaseDeadlines { terminate_at: Some(1_050), kill_at: 1_090 });
        assert_eq!((schedule.is_due(1_000), schedule.poll(1_000)), (false, KillAction::Wait));
    }

    #[test]
    fn a_stop_is_no_end_of_the_lease() {
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        schedule.stop(10, 20);
        assert_eq!((schedule.poll(10), schedule.lease_is_over()), (KillAction::Terminate, false));
        let mut schedule = KillSchedule::new(Some(DEADLINES));
        assert_eq!((schedule.poll(50), schedule.lease_is_over()), (KillAction::Terminate, true));
    }

    #[test]
    fn a_second_stop_only_moves_the_kill_earlier() {
        let mut schedule = KillSchedule::new(None);
        schedule.stop(0, 20);
        schedule.stop(5, 100);
        assert_eq!((schedule.poll(5), schedule.poll(20)), (KillAction::Terminate, KillAction::Kill));
        schedule.stop(5, 0);
        assert_eq!(schedule.poll(5), KillAction::Kill);
    }
}
