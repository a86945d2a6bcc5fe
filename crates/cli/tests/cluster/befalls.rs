//! Whatever befalls a server or a member of etcd, and whichever it is: what clients were told stays true.
//!
//! After every fault everybody comes back and looks: no grant is lost or invented, no number given out twice or below an
//! earlier one, nothing over before its time, the queue in its order, nothing applied at a fenced target by a zombie.

use std::time::Duration;

use crate::chance::Chance;
use crate::etcd_support::Server as Etcd;
use crate::etcd_support::proxy::Way;
use crate::ordeal::Ordeal;
use crate::trio::Trio;

const SEED: u64 = 0x1ea5_e401_d000_0006;

/// How hard to try: one of two numbers, by `LEASEHOLD_DEPTH`.
pub fn depth(full: usize, deep: usize) -> usize {
    if std::env::var("LEASEHOLD_DEPTH").as_deref() == Ok("deep") { deep } else { full }
}

fn chance() -> Chance {
    let seed = std::env::var("LEASEHOLD_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}; LEASEHOLD_SEED sets another");
    Chance::new(seed)
}

/// Something that goes wrong, and is over when it returns.
type Fault = (&'static str, fn(&mut Trio, &mut Ordeal));

/// Each of them once, in any order; deep, again and again.
fn through(etcd: Etcd, faults: &[Fault]) {
    let mut chance = chance();
    let mut trio = Trio::over(etcd);
    let mut ordeal = Ordeal::begin(&trio, &mut chance);
    ordeal.work();
    let rounds = depth(1, 20);
    for round in 0..rounds {
        let mut order: Vec<_> = faults.iter().collect();
        chance.shuffle(&mut order);
        for (name, fault) in order {
            println!("round {round}: {name}");
            fault(&mut trio, &mut ordeal);
            ordeal.look();
        }
    }
    ordeal.end(rounds * faults.len());
}

#[test]
fn what_was_told_stays_true_whatever_befalls_a_server() {
    through(
        Etcd::single(),
        &[
            ("the leader is killed", |trio, ordeal| {
                let old = trio.leader();
                trio.kill(old);
                trio.another_than(old);
                ordeal.look();
                trio.begin(old);
            }),
            ("the leader stands still and wakes", |trio, ordeal| {
                let old = trio.leader();
                trio.server(old).signal("STOP");
                trio.another_than(old);
                ordeal.look();
                trio.server(old).signal("CONT");
                trio.until_it_stands_by(old);
            }),
            ("a standby is killed", |trio, ordeal| {
                let standby = trio.standby();
                trio.kill(standby);
                ordeal.look();
                trio.begin(standby);
            }),
            ("a standby stands still and wakes", |trio, ordeal| {
                let standby = trio.standby();
                trio.server(standby).signal("STOP");
                ordeal.look();
                trio.server(standby).signal("CONT");
                trio.until_it_stands_by(standby);
            }),
            ("the leader is asked to stop", |trio, _| {
                let old = trio.leader();
                let mut server = trio.take(old);
                server.signal("TERM");
                assert_eq!(server.wait(), Some(0), "{:?}", server.everything_said());
                trio.begin(old);
            }),
            ("the leader key is deleted while its lease lives", |trio, _| {
                trio.leader();
                trio.etcd.ctl_ok(&["del", "/trio/leader"]);
            }),
            ("clients hear nothing for a while", |_, ordeal| ordeal.deaf(Duration::from_secs(2))),
        ],
    );
}

#[test]
fn what_was_told_stays_true_whatever_lies_between_the_leader_and_etcd() {
    fn cut_off(trio: &mut Trio, ordeal: &mut Ordeal, way: Way) {
        let old = trio.leader();
        trio.reaches(old, way);
        trio.another_than(old);
        ordeal.look();
        trio.reaches(old, Way::Open);
        trio.until_it_stands_by(old);
    }
    through(
        Etcd::single(),
        &[
            ("a black hole", |trio, ordeal| cut_off(trio, ordeal, Way::Hole)),
            ("etcd hears the leader, and is not heard", |trio, ordeal| cut_off(trio, ordeal, Way::Mute)),
            ("everything is held up, and arrives later", |trio, ordeal| cut_off(trio, ordeal, Way::Held)),
        ],
    );
}

#[test]
fn what_was_told_stays_true_whatever_befalls_etcd() {
    /// Its leader, or the next one.
    fn dies(trio: &mut Trio, ordeal: &mut Ordeal, after_leader: usize) {
        let member = (trio.etcd.leader() + after_leader) % 3;
        trio.etcd.kill(member);
        ordeal.look();
        trio.etcd.begin(member);
        assert!(trio.etcd.is_up(member), "it comes back");
    }
    fn stands_still(trio: &Trio, ordeal: &mut Ordeal, after_leader: usize) {
        let member = (trio.etcd.leader() + after_leader) % 3;
        trio.etcd.signal(member, "STOP");
        ordeal.look();
        trio.etcd.signal(member, "CONT");
    }
    through(
        Etcd::three(),
        &[
            ("a member is killed", |trio, ordeal| dies(trio, ordeal, 1)),
            ("its leader is killed", |trio, ordeal| dies(trio, ordeal, 0)),
            ("a member stands still", |trio, ordeal| stands_still(trio, ordeal, 1)),
            ("its leader stands still", |trio, ordeal| stands_still(trio, ordeal, 0)),
            ("two members are gone for a while", |trio, _| {
                let gone = [0, 1];
                gone.iter().for_each(|member| trio.etcd.kill(*member));
                std::thread::sleep(Duration::from_secs(depth(6, 30) as u64));
                gone.iter().for_each(|member| trio.etcd.begin(*member));
                assert!(gone.iter().all(|member| trio.etcd.is_up(*member)), "they come back");
            }),
        ],
    );
}
