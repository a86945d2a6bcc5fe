//! An etcd that is restored from an earlier snapshot, under running servers or between their runs: servers that have seen more stop,
//! and so does one that has seen nothing and led since (V2).

use std::fs;
use std::io;
use std::path::Path;

use leasehold_sim::rng::SimRng;
use leasehold_testkit::etcd::{EtcdCluster, EtcdOptions};

use super::directory::expect;
use super::leasehold_binary::{LeaseholdBinary, Server};

/// Restores an etcd several times. Returns how many restores were detected; an undetected one is an error.
pub fn run(binary: &LeaseholdBinary, dir: &Path, count: u32, rng: &mut SimRng) -> io::Result<u32> {
    if count == 0 {
        return Ok(0);
    }
    let dir = dir.join("etcd");
    fs::create_dir(&dir)?;
    let mut etcd = EtcdCluster::start_in(&dir, EtcdOptions::default())?;
    for round in 0..count {
        restore(binary, &mut etcd, round, rng)
            .map_err(|error| io::Error::other(format!("restore {round} of etcd: {error}")))?;
    }
    Ok(count)
}

fn restore(binary: &LeaseholdBinary, etcd: &mut EtcdCluster, round: u32, rng: &mut SimRng) -> io::Result<()> {
    let journal = format!("etcd://{}/chaos", etcd.endpoints().join(","));
    let dir = etcd.dir().to_owned();
    let serve = |name: &str, more: &[&str]| {
        let fixed = ["--journal", &journal, "--etcd-lease", "2", "--snapshot-after-batches", "20"];
        binary.serve(&dir.join(name), &[&fixed[..], more].concat())
    };
    let started = |name: &str, more: &[&str]| serve(name, more).map_err(io::Error::other);
    let acquire = |server: &Server, name: &str, count: u64| -> io::Result<()> {
        (0..count).try_for_each(|at| binary.acquire(server, &format!("{round}/{name}/{at}")).map(drop))
    };
    let first = started("first", &[])?;
    acquire(&first, "kept", rng.between(1, 4))?;
    let snapshot = dir.join(format!("snapshot-{round}.db"));
    let snapshot = snapshot.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
    etcd.ctl_ok(&["snapshot", "save", snapshot]);
    acquire(&first, "lost", rng.between(1, 4))?;

    if rng.one_in(2) {
        // Under the leader: it says what happened, and leaves a marker.
        etcd.restore_snapshot(snapshot);
        let log = first.wait_for_end()?;
        expect(log.contains("ROLLED_BACK") && !log.contains("STORAGE_FAILED"), || format!("the leader said {log}"))?;
    } else {
        first.kill();
        etcd.restore_snapshot(snapshot);
    }
    let unaware = format!("unaware-{round}");
    match serve(&unaware, &[]) {
        // The marker of the leader stops a server that has seen nothing.
        Err(log) => expect(log.contains("ROLLED_BACK"), || format!("a new server said {log}"))?,
        Ok(unaware) => {
            // It leads, and appends more than was lost, unless the marker stops it now.
            let led = acquire(&unaware, "unaware", rng.between(5, 12));
            let refused =
                serve("first", &[]).and_then(|server| server.wait_for_end().map_err(|error| error.to_string()));
            let log = refused.unwrap_or_else(|log| log);
            expect(log.contains("ROLLED_BACK"), || format!("the server that has seen more said {log}"))?;
            let log = unaware.wait_for_end()?;
            expect(log.contains("ROLLED_BACK"), || format!("the unaware leader said {log}; it led: {led:?}"))?;
        }
    }
    let log = serve("first", &[]).and_then(|server| server.wait_for_end().map_err(|error| error.to_string()));
    let log = log.unwrap_or_else(|log| log);
    expect(log.contains("ROLLED_BACK"), || format!("what was found is forgotten: {log}"))?;

    let accepting = started("first", &["--accept-restored"])?;
    accepting.wait_until_ready()?;
    let refused = binary.call(&accepting, &["acquire", "free", "--holder", "other", "--ttl", "10m"])?;
    expect(refused.text.contains("QUARANTINED"), || format!("a new incarnation starts with {}", refused.text))?;
    let waived = binary.call(&accepting, &["quarantine", "waive", "--comment", "the next round"])?;
    expect(waived.ok, || waived.text)?;
    // A server that has seen the lost part needs no flag, because a new incarnation has begun.
    accepting.stop()?;
    let again = started("first", &[])?;
    acquire(&again, "after", 1)?;
    again.stop()
}
