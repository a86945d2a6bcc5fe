//! How many requests a second one connection may bring, where somebody bounds it. What keeps or ends a hold is not counted:
//! nobody loses a lease because it asked for too much else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use leasehold_wire::{Code, v1};

/// The name of this bound, where refusals and figures name it.
pub const LIMIT: &str = "request_rate";

/// The bound of every connection: a bound that can be moved while they are open.
#[derive(Debug)]
pub struct Pace {
    /// Requests a second; nothing is unbounded.
    most: AtomicU32,
    began: Instant,
}

/// How fast one connection goes. It may save up one second's worth.
#[derive(Debug)]
pub struct Walk {
    pace: Arc<Pace>,
    /// When all that was taken would be over at an even pace, in nanoseconds since the pace began.
    even: AtomicU64,
}

const SECOND: u64 = 1_000_000_000;

impl Pace {
    /// So many requests a second, or as many as come.
    pub fn new(most: Option<u32>) -> Arc<Self> {
        Arc::new(Self { most: AtomicU32::new(most.unwrap_or(0)), began: Instant::now() })
    }

    /// Moves the bound, also for connections that are open.
    pub fn set(&self, most: Option<u32>) {
        self.most.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    /// A connection begins.
    pub fn walk(self: &Arc<Self>) -> Arc<Walk> {
        Arc::new(Walk { pace: self.clone(), even: AtomicU64::new(0) })
    }
}

impl Walk {
    /// One more request, unless there were too many.
    pub fn step(&self) -> Result<(), Box<v1::Problem>> {
        let most = self.pace.most.load(Ordering::Relaxed);
        if most == 0 {
            return Ok(());
        }
        self.step_at(u64::try_from(self.pace.began.elapsed().as_nanos()).unwrap_or(u64::MAX), most)
    }

    fn step_at(&self, now: u64, most: u32) -> Result<(), Box<v1::Problem>> {
        let each = SECOND.div_ceil(most.into());
        let taken = self.even.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |even| {
            let even = even.max(now) + each;
            (even - now <= SECOND.max(each)).then_some(even)
        });
        taken.map(drop).map_err(|even| Box::new(too_fast(most, (even + each - now).saturating_sub(SECOND))))
    }
}

fn too_fast(most: u32, wait: u64) -> v1::Problem {
    let told = format!("at most {most} requests a second on one connection; renewals and releases are not counted");
    v1::Problem {
        next_step: "Ask less often, or from fewer places at once.".into(),
        limit: LIMIT.into(),
        max: Some(most.into()),
        got: Some(u64::from(most) + 1),
        retry_after_ms: Some(wait.div_ceil(1_000_000).max(1)),
        ..v1::Problem::of(Code::ResourceExhausted, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_saved_up_and_then_it_is_one_by_one() {
        let walk = Pace::new(Some(4)).walk();
        let at = |ms: u64| walk.step_at(ms * 1_000_000, 4);
        for _ in 0..4 {
            assert_eq!(at(5_000), Ok(()));
        }
        let refused = at(5_000).expect_err("the fifth of a second");
        assert_eq!((refused.limit.as_str(), refused.max, refused.got), (LIMIT, Some(4), Some(5)));
        assert_eq!(refused.retry_after_ms, Some(250));
        assert_eq!(at(5_249).map_err(|refused| refused.retry_after_ms), Err(Some(1)), "refusals cost nothing");
        assert_eq!(at(5_250), Ok(()));
        assert!(at(5_250).is_err());
        for _ in 0..4 {
            assert_eq!(at(60_000), Ok(()), "no more than a second is saved up");
        }
        assert!(at(60_000).is_err());
    }

    #[test]
    fn each_connection_has_its_own_and_without_a_bound_nobody_is_refused() {
        let pace = Pace::new(Some(1));
        let (one, other) = (pace.walk(), pace.walk());
        assert_eq!(one.step(), Ok(()));
        assert_eq!(other.step(), Ok(()));
        pace.set(None);
        for _ in 0..100 {
            assert_eq!(one.step(), Ok(()));
        }
    }
}
