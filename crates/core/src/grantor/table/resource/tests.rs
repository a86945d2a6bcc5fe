//! Names are added, become vacant and are used again; none is lost or found after removal, and memory stays bounded.

use std::collections::BTreeMap;

use super::*;

fn resources() -> Resources {
    Resources::new(NameHash::new(11))
}

fn name(n: u32) -> String {
    format!("orders/eu-west/customer-{n:04}")
}

#[test]
fn a_name_is_found_exactly_while_it_is_in_use() {
    let mut resources = resources();
    let mut model: BTreeMap<u32, u32> = BTreeMap::new();
    let mut random = 88_172_645_463_325_252_u64;
    let mut swept = false;
    for round in 0..200_000_u32 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Waves of many new and many vacant names, so that sweeps run while names are used again.
        let coming = (round / 20_000) % 2 == 0;
        let n = (random % 20_000) as u32;
        match model.get(&n).copied() {
            Some(slot) if !coming => {
                resources.set_sole(slot, NONE);
                resources.vacate_if_empty(slot);
                model.remove(&n);
            }
            None if coming => {
                let slot = resources.enter(&name(n));
                assert!(model.values().all(|other| *other != slot) || model.len() > 2_000);
                resources.set_sole(slot, n);
                model.insert(n, slot);
            }
            known => {
                assert_eq!(resources.find(&name(n)), known);
                assert_eq!(known.map(|slot| resources.name(slot).to_owned()), known.map(|_| name(n)));
            }
        }
        swept |= resources.vacant_names.is_sweeping();
        assert_eq!(resources.len(), model.len());
    }
    assert!(swept, "a sweep was under way");
    for n in 0..20_000 {
        assert_eq!(resources.find(&name(n)), model.get(&n).copied());
        assert!(model.get(&n).is_none_or(|slot| resources.sole(*slot) == n));
    }
    assert!(resources.slot_count() < 2 * 20_000, "{} places", resources.slot_count());
}

#[test]
fn a_name_that_is_used_again_finds_its_slot() {
    let mut resources = resources();
    let slot = resources.enter("jobs/settle");
    resources.set_sole(slot, 1);
    resources.set_sole(slot, NONE);
    resources.vacate_if_empty(slot);
    assert_eq!((resources.find("jobs/settle"), resources.len()), (None, 0));
    assert_eq!(resources.enter("jobs/settle"), slot);
    assert_eq!((resources.find("jobs/settle"), resources.len()), (Some(slot), 1));
}
