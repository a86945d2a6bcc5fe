//! Names come, go and come back; none is lost, none is found after it went, and room is bounded by what was there at once.

use std::collections::BTreeMap;

use super::*;

fn resources() -> Resources {
    Resources::new(NameHash::new(11))
}

fn name(n: u32) -> String {
    format!("orders/eu-west/customer-{n:04}")
}

#[test]
fn names_that_come_and_go_are_found_while_something_stands_behind_them() {
    let mut resources = resources();
    let mut model: BTreeMap<u32, u32> = BTreeMap::new();
    let mut random = 88_172_645_463_325_252_u64;
    let mut swept = false;
    for round in 0..200_000_u32 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Waves: many come, many go, so that husks pile up and are swept while names come back.
        let coming = (round / 20_000) % 2 == 0;
        let n = (random % 20_000) as u32;
        match model.get(&n).copied() {
            Some(place) if !coming => {
                resources.set_sole(place, NONE);
                resources.leave_if_empty(place);
                model.remove(&n);
            }
            None if coming => {
                let place = resources.enter(&name(n));
                assert!(model.values().all(|other| *other != place) || model.len() > 2_000);
                resources.set_sole(place, n);
                model.insert(n, place);
            }
            known => {
                assert_eq!(resources.find(&name(n)), known);
                assert_eq!(known.map(|place| resources.name(place).to_owned()), known.map(|_| name(n)));
            }
        }
        swept |= resources.husks.is_sweeping();
        assert_eq!(resources.len(), model.len());
    }
    assert!(swept, "a sweep was under way");
    for n in 0..20_000 {
        assert_eq!(resources.find(&name(n)), model.get(&n).copied());
        assert!(model.get(&n).is_none_or(|place| resources.sole(*place) == n));
    }
    assert!(resources.places() < 2 * 20_000, "{} places", resources.places());
}

#[test]
fn a_name_that_comes_back_finds_its_place() {
    let mut resources = resources();
    let place = resources.enter("jobs/settle");
    resources.set_sole(place, 1);
    resources.set_sole(place, NONE);
    resources.leave_if_empty(place);
    assert_eq!((resources.find("jobs/settle"), resources.len()), (None, 0));
    assert_eq!(resources.enter("jobs/settle"), place);
    assert_eq!((resources.find("jobs/settle"), resources.len()), (Some(place), 1));
}
