//! A data directory that is put back to an earlier copy, in place: a lost token, shown in any way, must reveal it (T9).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use leasehold_sim::rng::SimRng;

use super::leasehold_binary::{GrantedToken, LeaseholdBinary, Server};

/// Rolls a directory back several times. Returns how many rollbacks were detected; an undetected one is an error.
pub fn run(binary: &LeaseholdBinary, dir: &Path, count: u32, rng: &mut SimRng) -> io::Result<u32> {
    let data = dir.join("directory");
    for round in 0..count {
        roll_back(binary, &data, round, rng)
            .map_err(|error| io::Error::other(format!("rollback {round} of the directory: {error}")))?;
    }
    Ok(count)
}

fn roll_back(binary: &LeaseholdBinary, data: &Path, round: u32, rng: &mut SimRng) -> io::Result<()> {
    let acquire = |server: &Server, name: &str, count: u64| -> io::Result<Vec<GrantedToken>> {
        (0..count).map(|at| binary.acquire(server, &format!("{round}/{name}/{at}"))).collect()
    };
    let mut server = start(binary, data)?;
    let kept = acquire(&server, "kept", rng.between(1, 4))?;
    let (after, copied);
    if rng.one_in(2) {
        copied = copy(data)?;
        after = server;
    } else {
        end(server, rng)?;
        copied = copy(data)?;
        after = start(binary, data)?;
    }
    server = after;
    let mut lost = acquire(&server, "lost", rng.between(1, 4))?;
    if rng.one_in(3) {
        end(server, rng)?;
        server = start(binary, data)?;
        lost.extend(acquire(&server, "lost-later", 1)?);
    }
    // Nothing is lost yet: no token raises an alarm.
    for lease in kept.iter().chain(&lost) {
        let renewed = binary.call(&server, &["renew", &lease.resource, "--token", &lease.token])?;
        expect(renewed.ok, || format!("{} is held: {}", lease.resource, renewed.text))?;
    }
    end(server, rng)?;
    put_back(data, &copied)?;

    server = start(binary, data)?;
    acquire(&server, "new", rng.below(4))?;
    if rng.one_in(3) {
        end(server, rng)?;
        server = start(binary, data)?;
        acquire(&server, "newer", rng.below(2))?;
    }
    for lease in &kept {
        let renewed = binary.call(&server, &["renew", &lease.resource, "--token", &lease.token])?;
        expect(renewed.ok, || format!("{} is held after the rollback: {}", lease.resource, renewed.text))?;
    }
    let free = binary.acquire(&server, &format!("{round}/free"))?;
    expect(!free.token.is_empty(), || "no token that was issued raises an alarm".to_owned())?;
    let shown = rng.pick(&lost).clone();
    let how = *rng.pick(&["renew", "check", "release"]);
    let answer = binary.call(&server, &[how, &shown.resource, "--token", &shown.token])?;
    expect(!answer.ok, || format!("{how} of a lost lease succeeded: {}", answer.text))?;
    let refused = binary.call(&server, &["acquire", &shown.resource, "--holder", "other", "--ttl", "10m"])?;
    expect(refused.text.contains("ROLLED_BACK"), || {
        format!("{} was shown by {how}, and then: {}", shown.token, refused.text)
    })?;
    let waived = binary.call(&server, &["quarantine", "waive", "--comment", "the next round"])?;
    expect(waived.ok, || waived.text)?;
    end(server, rng)
}

fn start(binary: &LeaseholdBinary, data: &Path) -> io::Result<Server> {
    binary.serve(data, &["--snapshot-after-batches", "20"]).map_err(io::Error::other)
}

/// Ends a server, cleanly or not.
fn end(server: Server, rng: &mut SimRng) -> io::Result<()> {
    if rng.one_in(2) {
        server.kill();
        return Ok(());
    }
    server.stop()
}

pub(super) fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(otherwise())) }
}

/// The contents of a directory. A file that disappears meanwhile, because the server trims its log, is not part of the copy.
fn copy(data: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        if let Ok(bytes) = fs::read(entry.path()) {
            files.insert(entry.file_name().to_string_lossy().into_owned(), bytes);
        }
    }
    Ok(files)
}

/// Puts the files back, in place. The keys are in a directory of their own, and are not part of the state.
fn put_back(data: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
        }
    }
    files.iter().try_for_each(|(name, bytes)| fs::write(data.join(name), bytes))
}
