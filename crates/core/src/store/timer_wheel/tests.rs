//! Tests of the timer wheel against a sorted map of all deadlines.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn advance(wheel: &mut TimerWheel, now: u64, deadlines: &BTreeMap<u32, u64>) -> Vec<u32> {
    let (mut budget, mut due) = (1_000, Vec::new());
    wheel.advance(GrantorTime(now), &mut budget, |id| GrantorTime(deadlines[&id]), &mut due);
    due
}

fn armed(now: u64, deadlines: &BTreeMap<u32, u64>) -> TimerWheel {
    let mut wheel = TimerWheel::new(GrantorTime(now));
    deadlines.iter().for_each(|(&id, &at)| wheel.arm(id, GrantorTime(at)));
    wheel
}

#[test]
fn an_id_is_due_at_its_deadline_and_not_before() {
    let deadlines = BTreeMap::from([(0, 1_000), (1, 70_000), (2, 1_000), (3, 5)]);
    let mut wheel = armed(0, &deadlines);
    assert_eq!(wheel.armed, 4);
    assert_eq!(advance(&mut wheel, 4, &deadlines), Vec::<u32>::new());
    assert_eq!(wheel.next(), Some(GrantorTime(5)));
    assert_eq!(advance(&mut wheel, 5, &deadlines), [3]);
    assert_eq!(advance(&mut wheel, 999, &deadlines), Vec::<u32>::new());
    assert_eq!(wheel.next(), Some(GrantorTime(1_000)));
    assert_eq!(advance(&mut wheel, 1_000, &deadlines), [0, 2]);
    assert!(!wheel.is_armed(0) && wheel.is_armed(1));
    assert_eq!(advance(&mut wheel, u64::MAX, &deadlines), [1]);
    assert_eq!((wheel.armed, wheel.next()), (0, None));
}

#[test]
fn a_deadline_that_moved_later_without_arming_is_due_in_order() {
    let mut deadlines = BTreeMap::from([(0, 10), (1, 600), (2, 800)]);
    let mut wheel = armed(0, &deadlines);
    deadlines.insert(0, 700);
    assert_eq!(advance(&mut wheel, 1_000, &deadlines), [1, 0, 2]);
}

#[test]
fn a_passed_deadline_is_due_at_the_next_advance_in_order() {
    let mut deadlines = BTreeMap::from([(0, 90), (1, 40), (2, 60), (3, 101)]);
    let mut wheel = armed(100, &deadlines);
    assert_eq!(wheel.next(), Some(GrantorTime(40)));
    wheel.disarm(2);
    wheel.arm(1, GrantorTime(500));
    deadlines.insert(1, 500);
    assert_eq!(advance(&mut wheel, 101, &deadlines), [0, 3]);
    assert_eq!(wheel.armed, 1);
    wheel.arm(2, GrantorTime(101));
    deadlines.insert(2, 101);
    assert_eq!(advance(&mut wheel, 101, &deadlines), [2]);
    assert_eq!(advance(&mut wheel, 500, &deadlines), [1]);
}

#[test]
fn the_largest_time_is_reached() {
    let deadlines = BTreeMap::from([(0, u64::MAX), (1, u64::MAX - 1), (2, 1 << 63), (3, 1 << 32)]);
    let mut wheel = armed(0, &deadlines);
    assert_eq!(advance(&mut wheel, u64::MAX - 1, &deadlines), [3, 2, 1]);
    assert_eq!(advance(&mut wheel, u64::MAX, &deadlines), [0]);
    wheel.arm(0, GrantorTime(u64::MAX));
    assert_eq!(advance(&mut wheel, u64::MAX, &deadlines), [0]);
}

#[test]
fn a_new_timer_does_not_overtake_a_slot_that_is_not_distributed_yet() {
    let mut deadlines = BTreeMap::from([(0, 65_537), (1, 65_600)]);
    let mut wheel = armed(0, &deadlines);
    assert_eq!(advance(&mut wheel, 65_535, &deadlines), Vec::<u32>::new());
    deadlines.insert(2, 65_538);
    wheel.arm(2, GrantorTime(65_538));
    assert_eq!(advance(&mut wheel, 70_000, &deadlines), [0, 2, 1]);
}

#[test]
fn an_advance_without_due_timers_costs_only_the_timers_it_visits() {
    let deadlines: BTreeMap<u32, u64> = (0..64).map(|bit| (bit, 1 << bit)).collect();
    let mut wheel = armed(0, &deadlines);
    let (mut budget, mut due) = (1_000, Vec::new());
    wheel.advance(GrantorTime(u64::MAX), &mut budget, |id| GrantorTime(deadlines[&id]), &mut due);
    assert_eq!(due, (0..64).collect::<Vec<_>>());
    assert_eq!(budget, 1_000 - 8 - 2 * 56);
}

#[test]
fn a_deadline_that_moved_earlier_without_arming_is_due_at_its_old_slot() {
    let mut deadlines = BTreeMap::from([(0, 600), (1, 512), (2, 7)]);
    let mut wheel = armed(0, &deadlines);
    deadlines.insert(0, 3);
    assert_eq!(advance(&mut wheel, 511, &deadlines), [2]);
    assert_eq!(advance(&mut wheel, 512, &deadlines), [0, 1]);
}

#[test]
fn a_time_that_goes_back_makes_nothing_due() {
    let mut deadlines = BTreeMap::from([(0, 69_900), (1, 70_050)]);
    let mut wheel = armed(70_000, &deadlines);
    assert_eq!(advance(&mut wheel, 69_899, &deadlines), Vec::<u32>::new());
    assert_eq!(advance(&mut wheel, 69_900, &deadlines), [0]);
    assert_eq!(advance(&mut wheel, 70_040, &deadlines), Vec::<u32>::new());
    assert_eq!(advance(&mut wheel, 3, &deadlines), Vec::<u32>::new());
    assert_eq!(wheel.next(), Some(GrantorTime(70_050)));
    wheel.arm(2, GrantorTime(70_030));
    deadlines.insert(2, 70_030);
    assert_eq!(advance(&mut wheel, 70_029, &deadlines), Vec::<u32>::new());
    assert_eq!(advance(&mut wheel, 70_030, &deadlines), [2]);
    assert_eq!(advance(&mut wheel, 70_050, &deadlines), [1]);
}

#[test]
fn a_near_deadline_after_a_long_pause_is_visited_once() {
    let mut wheel = TimerWheel::new(GrantorTime(0));
    advance(&mut wheel, 1_000_000_000, &BTreeMap::new());
    wheel.arm(0, GrantorTime(1_000_000_010));
    let (mut budget, mut due) = (10, Vec::new());
    wheel.advance(GrantorTime(1_000_000_010), &mut budget, |_| GrantorTime(1_000_000_010), &mut due);
    assert_eq!((due, budget), (vec![0], 9));
}

/// An operation on the wheel; times are relative to the present.
#[derive(Clone, Debug)]
enum WheelStep {
    Arm(u32, i64),
    Disarm(u32),
    /// The deadline moves later without arming.
    Renew(u32, u64),
    Advance(u64, usize),
}

fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4_u64,
        0..300_u64,
        0..100_000_u64,
        0..1_u64 << 34,
        any::<u64>(),
        (0..63_u32).prop_map(|bit| 1 << bit)
    ]
}

fn steps() -> impl Strategy<Value = Vec<WheelStep>> {
    let id = 0..24_u32;
    let step = prop_oneof![
        4 => (id.clone(), spans()).prop_map(|(id, span)| WheelStep::Arm(id, (span >> 1) as i64)),
        1 => (id.clone(), 0..400_i64).prop_map(|(id, span)| WheelStep::Arm(id, -span)),
        1 => id.clone().prop_map(WheelStep::Disarm),
        3 => (id, spans()).prop_map(|(id, span)| WheelStep::Renew(id, span)),
        4 => (spans(), prop_oneof![0..4_usize, 0..40_usize]).prop_map(|(span, budget)| WheelStep::Advance(span, budget)),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn the_wheel_agrees_with_a_sorted_map(start in spans(), steps in steps()) {
        let mut wheel = TimerWheel::new(GrantorTime(start));
        let mut now = start;
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        // What a backlog may return next, as long as nothing is armed behind it.
        let mut due_up_to = 0;
        for step in steps {
            match step {
                WheelStep::Arm(id, span) => {
                    let at = now.saturating_add_signed(span);
                    wheel.arm(id, GrantorTime(at));
                    model.insert(id, at);
                    due_up_to = due_up_to.min(at);
                }
                WheelStep::Disarm(id) => {
                    wheel.disarm(id);
                    model.remove(&id);
                }
                WheelStep::Renew(id, span) => {
                    if let Some(at) = model.get_mut(&id) {
                        *at = at.saturating_add(span);
                    }
                }
                WheelStep::Advance(span, allowed) => {
                    now = now.saturating_add(span);
                    let (mut budget, mut due, mut looks) = (allowed, Vec::new(), 0);
                    let next = wheel.next();
                    wheel.advance(GrantorTime(now), &mut budget, |id| { looks += 1; GrantorTime(model[&id]) }, &mut due);
                    prop_assert!(looks <= allowed - budget);
                    prop_assert!(due.is_empty() || next.is_some_and(|next| next <= GrantorTime(now)));
                    for id in due {
                        let at = model.remove(&id).expect("only what is armed is due");
                        prop_assert!(at <= now && at >= due_up_to, "{at} is due at {now} after {due_up_to}");
                        due_up_to = at;
                    }
                    if budget > 0 {
                        prop_assert!(model.values().all(|at| *at > now), "a due timer was missed");
                        prop_assert!(now == u64::MAX || wheel.next().is_none_or(|next| next > GrantorTime(now)));
                    }
                }
            }
            prop_assert_eq!(wheel.armed, model.len());
            prop_assert!((0..30).all(|id| wheel.is_armed(id) == model.contains_key(&id)));
            prop_assert!(wheel.next().is_none() == model.is_empty());
            let earliest = model.values().min();
            prop_assert!(wheel.next().is_none_or(|next| earliest.is_some_and(|at| next <= GrantorTime(*at).max(GrantorTime(now)))));
        }
        let last = now.saturating_add(1 << 40);
        let mut due = Vec::new();
        let mut turns = 0;
        while model.values().any(|at| *at <= last) {
            let mut budget = 3;
            wheel.advance(GrantorTime(last), &mut budget, |id| GrantorTime(model[&id]), &mut due);
            for id in due.drain(..) {
                let at = model.remove(&id).expect("only what is armed is due");
                prop_assert!(at <= last && at >= due_up_to);
                due_up_to = at;
            }
            turns += 1;
            prop_assert!(turns < 10_000, "no progress");
        }
    }
}
