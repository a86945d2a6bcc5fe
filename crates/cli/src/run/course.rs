//! When a command is asked to end and when it is killed, decided from the boot clock and what the wrapper said.

use super::talk::Until;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Wait,
    /// Ask everything to end.
    Ask,
    /// Kill everything.
    Kill,
}

/// The time that a command has, in nanoseconds of the boot clock.
#[derive(Debug)]
pub struct Course {
    /// None where the command may outlive its lease.
    until: Option<Until>,
    /// Set with the first stop, and only ever earlier: once told to end, a command ends, renewed or not.
    kill_by: Option<u64>,
    asked: bool,
}

impl Course {
    pub const fn new(until: Option<Until>) -> Self {
        Self { until, kill_by: None, asked: false }
    }

    /// The lease was renewed.
    pub const fn renewed(&mut self, until: Until) {
        self.until = Some(until);
    }

    /// It is to end, in so many nanoseconds at the latest.
    pub fn stop(&mut self, now: u64, within: u64) {
        let by = now.saturating_add(within);
        self.kill_by = Some(self.kill_by.map_or(by, |before| before.min(by)));
    }

    /// Whether it was told to end, or should have been.
    pub const fn stopping(&self) -> bool {
        self.kill_by.is_some()
    }

    /// What to do now. Asking is said once, killing until nothing is left.
    pub fn act(&mut self, now: u64) -> Act {
        if let Some(Until { soft, hard }) = self.until
            && now >= soft.unwrap_or(hard)
        {
            self.stop(now, hard.saturating_sub(now));
        }
        match self.kill_by {
            Some(by) if now >= by => Act::Kill,
            Some(_) if !self.asked => {
                self.asked = true;
                Act::Ask
            }
            _ => Act::Wait,
        }
    }

    /// When to look again.
    pub fn next(&self) -> Option<u64> {
        match (self.kill_by, self.until) {
            (Some(by), until) => Some(until.map_or(by, |until| by.min(until.hard))),
            (None, until) => until.map(|until| until.soft.unwrap_or(until.hard)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Until = Until { soft: Some(50), hard: 90 };

    #[test]
    fn it_is_asked_at_the_soft_end_and_killed_at_the_hard_one() {
        let mut course = Course::new(Some(UNTIL));
        assert_eq!((course.act(49), course.next(), course.stopping()), (Act::Wait, Some(50), false));
        assert_eq!((course.act(50), course.next(), course.stopping()), (Act::Ask, Some(90), true));
        assert_eq!((course.act(89), course.act(90), course.act(91)), (Act::Wait, Act::Kill, Act::Kill));
    }

    #[test]
    fn a_renewal_moves_both_ends() {
        let mut course = Course::new(Some(UNTIL));
        course.renewed(Until { soft: Some(150), hard: 190 });
        assert_eq!((course.act(149), course.act(150), course.act(190)), (Act::Wait, Act::Ask, Act::Kill));
    }

    #[test]
    fn a_renewal_after_it_was_asked_takes_nothing_back() {
        let mut course = Course::new(Some(UNTIL));
        assert_eq!(course.act(60), Act::Ask);
        course.renewed(Until { soft: Some(150), hard: 190 });
        assert_eq!((course.act(89), course.act(90)), (Act::Wait, Act::Kill));
    }

    #[test]
    fn whoever_wakes_after_the_hard_end_kills_without_asking() {
        assert_eq!(Course::new(Some(UNTIL)).act(1_000), Act::Kill);
    }

    #[test]
    fn where_nobody_asks_it_is_killed_at_the_hard_end() {
        let mut course = Course::new(Some(Until { soft: None, hard: 90 }));
        assert_eq!((course.act(89), course.next(), course.act(90)), (Act::Wait, Some(90), Act::Kill));
    }

    #[test]
    fn told_to_stop_it_has_its_grace_and_never_more_than_the_lease() {
        let mut course = Course::new(None);
        assert_eq!((course.act(u64::MAX), course.next()), (Act::Wait, None));
        course.stop(10, 20);
        assert_eq!((course.act(10), course.act(11), course.act(30)), (Act::Ask, Act::Wait, Act::Kill));
        let mut course = Course::new(Some(UNTIL));
        course.stop(40, 1_000);
        assert_eq!((course.act(40), course.next(), course.act(90)), (Act::Ask, Some(90), Act::Kill));
        let mut course = Course::new(Some(UNTIL));
        course.stop(40, 0);
        assert_eq!(course.act(40), Act::Kill);
    }

    #[test]
    fn a_second_stop_can_only_come_sooner() {
        let mut course = Course::new(None);
        course.stop(0, 20);
        course.stop(5, 100);
        assert_eq!((course.act(5), course.act(20)), (Act::Ask, Act::Kill));
        course.stop(5, 0);
        assert_eq!(course.act(5), Act::Kill);
    }
}
