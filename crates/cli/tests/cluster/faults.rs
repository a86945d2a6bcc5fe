//! Faults of servers, of etcd members and of the links between them, under load.
//!
//! After every fault all clients reconnect and check: no grant is lost or invented, no token number is issued twice or below
//! an earlier one, no lease ends early, the queue keeps its order, and no zombie writes to a fenced target.

use std::time::Duration;

use leasehold_testkit::etcd::EtcdCluster;
use leasehold_testkit::rng::SplitMix64;
use leasehold_testkit::tcp_proxy::Flow;

use crate::harness::ThreeServers;
use crate::workload::Workload;

const SEED: u64 = 0x1ea5_e401_d000_0006;

/// Selects one of two numbers by `LEASEHOLD_DEPTH`.
pub fn depth(full: usize, deep: usize) -> usize {
    leasehold_testkit::depth::depth(full, full, deep)
}

fn rng() -> SplitMix64 {
    let seed = std::env::var("LEASEHOLD_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}; LEASEHOLD_SEED sets another");
    SplitMix64::new(seed)
}

/// A named fault; the function injects it and repairs it.
type Fault = (&'static str, fn(&mut ThreeServers, &mut Workload));

/// Injects each fault once, in random order; in deep runs repeatedly.
fn run_faults(etcd: EtcdCluster, faults: &[Fault]) {
    let mut rng = rng();
    let mut cluster = ThreeServers::on(etcd);
    let mut workload = Workload::start(&cluster, &mut rng);
    workload.work();
    let rounds = depth(1, 20);
    for round in 0..rounds {
        let mut order: Vec<_> = faults.iter().collect();
        rng.shuffle(&mut order);
        for (name, fault) in order {
            println!("round {round}: {name}");
            fault(&mut cluster, &mut workload);
            workload.check();
        }
    }
    workload.finish(rounds * faults.len());
}

#[test]
fn promises_hold_under_server_faults() {
    run_faults(
        EtcdCluster::single(),
        &[
            ("the leader is killed", |cluster, workload| {
                let old = cluster.leader();
                cluster.kill(old);
                cluster.wait_for_other_leader(old);
                workload.check();
                cluster.start(old);
            }),
            ("the leader is stopped and continues", |cluster, workload| {
                let old = cluster.leader();
                cluster.server(old).signal("STOP");
                cluster.wait_for_other_leader(old);
                workload.check();
                cluster.server(old).signal("CONT");
                cluster.wait_for_standby(old);
            }),
            ("a standby is killed", |cluster, workload| {
                let standby = cluster.standby();
                cluster.kill(standby);
                workload.check();
                cluster.start(standby);
            }),
            ("a standby is stopped and continues", |cluster, workload| {
                let standby = cluster.standby();
                cluster.server(standby).signal("STOP");
                workload.check();
                cluster.server(standby).signal("CONT");
                cluster.wait_for_standby(standby);
            }),
            ("the leader gets SIGTERM", |cluster, _| {
                let old = cluster.leader();
                let mut server = cluster.take(old);
                server.signal("TERM");
                assert_eq!(server.wait(), Some(0), "{:?}", server.all_log_lines());
                cluster.start(old);
            }),
            ("the leader key is deleted while its lease lives", |cluster, _| {
                cluster.leader();
                cluster.etcd.ctl_ok(&["del", "/cluster/leader"]);
            }),
            ("clients receive nothing for a while", |_, workload| workload.drop_replies_for(Duration::from_secs(2))),
        ],
    );
}

#[test]
fn promises_hold_under_faults_between_the_leader_and_etcd() {
    fn isolate_leader(cluster: &mut ThreeServers, workload: &mut Workload, requests: Flow, replies: Flow) {
        let old = cluster.leader();
        cluster.set_etcd_links(old, requests, replies);
        cluster.wait_for_other_leader(old);
        workload.check();
        cluster.set_etcd_links(old, Flow::Pass, Flow::Pass);
        cluster.wait_for_standby(old);
    }
    run_faults(
        EtcdCluster::single(),
        &[
            ("a black hole", |cluster, workload| isolate_leader(cluster, workload, Flow::Drop, Flow::Drop)),
            ("etcd receives, but its replies are lost", |cluster, workload| {
                isolate_leader(cluster, workload, Flow::Pass, Flow::Drop)
            }),
            ("all messages are delayed", |cluster, workload| isolate_leader(cluster, workload, Flow::Hold, Flow::Hold)),
        ],
    );
}

#[test]
fn promises_hold_under_etcd_faults() {
    /// Kills the leader of etcd, or the member `after_leader` positions later.
    fn kill_member(cluster: &mut ThreeServers, workload: &mut Workload, after_leader: usize) {
        let member = (cluster.etcd.leader() + after_leader) % 3;
        cluster.etcd.kill(member);
        workload.check();
        cluster.etcd.restart_member(member);
    }
    fn stop_member(cluster: &ThreeServers, workload: &mut Workload, after_leader: usize) {
        let member = (cluster.etcd.leader() + after_leader) % 3;
        cluster.etcd.process(member).stop();
        workload.check();
        cluster.etcd.process(member).resume();
    }
    run_faults(
        EtcdCluster::three(),
        &[
            ("a member is killed", |cluster, workload| kill_member(cluster, workload, 1)),
            ("its leader is killed", |cluster, workload| kill_member(cluster, workload, 0)),
            ("a member is stopped", |cluster, workload| stop_member(cluster, workload, 1)),
            ("its leader is stopped", |cluster, workload| stop_member(cluster, workload, 0)),
            ("two members are down for a while", |cluster, _| {
                let gone = [0, 1];
                gone.iter().for_each(|member| cluster.etcd.kill(*member));
                std::thread::sleep(Duration::from_secs(depth(6, 30) as u64));
                gone.iter().for_each(|member| cluster.etcd.restart_member(*member));
            }),
        ],
    );
}
