//! Disks that fail, fill up or are slow: a reply is durable, or it is not sent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use leasehold_testkit::depth::depth;
use leasehold_testkit::rng::SplitMix64;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;

use crate::clients::Clients;
use crate::crash::CrashPoint;
use crate::server::{Server, Start, TEST_TIMEOUT, exclusive_run};
use crate::transport::{LONG, Reply, Transport, held};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A failed sync or write stops the process before any reply; acknowledged state is intact afterwards (V3).
#[test]
fn a_failing_disk_stops_the_server_before_it_replies() {
    let _exclusive = exclusive_run();
    const FAULTS: [(&str, &str); 4] = [
        (
            "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:error=EIO:when=40",
            "Input/output error",
        ),
        (
            "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:error=ENOSPC:when=70",
            "No space left on device",
        ),
        (
            "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:error=EIO:when=60",
            "Input/output error",
        ),
        (
            "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:error=EIO:when=150",
            "Input/output error",
        ),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut clients = Clients::new(&mut SplitMix64::new(11), true);
    let rounds = depth(1, 2, 30);
    runtime().block_on(async {
        clients.run_server(&data, &Start::default(), Some(CrashPoint::Working(100))).await;
        for _ in 0..rounds {
            for (under, message) in FAULTS {
                clients
                    .run_server(&data, &Start { under, ..Start::default() }, Some(CrashPoint::OwnFailure(message)))
                    .await;
            }
        }
        clients.run_server(&data, &Start::default(), Some(CrashPoint::Working(250))).await;
        clients.run_server(&data, &Start::default(), None).await;
    });
    clients.assert_progress(rounds * FAULTS.len());
}

/// A write without disk space is retried until there is some; no decision is lost meanwhile.
#[test]
fn a_write_without_disk_space_is_retried() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let under =
        "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:error=ENOSPC:when=40..45";
    let mut clients = Clients::new(&mut SplitMix64::new(12), true);
    runtime().block_on(async {
        clients.run_server(&data, &Start::default(), Some(CrashPoint::Working(100))).await;
        for _ in 0..depth(1, 2, 20) {
            clients.run_server(&data, &Start { under, ..Start::default() }, Some(CrashPoint::Working(1_200))).await;
        }
        clients.run_server(&data, &Start::default(), None).await;
    });
    clients.assert_progress(1);
}

/// A system call interrupted by a signal is retried without an effect on clients.
#[test]
fn an_interrupted_write_is_retried() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let under = "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:error=EINTR:when=5+3";
    let mut clients = Clients::new(&mut SplitMix64::new(13), true);
    runtime().block_on(async {
        for _ in 0..depth(1, 2, 20) {
            clients.run_server(&data, &Start { under, ..Start::default() }, Some(CrashPoint::Working(400))).await;
        }
        clients.run_server(&data, &Start::default(), None).await;
    });
    clients.assert_progress(1);
}

/// A data directory that is deleted, emptied, moved away or damaged while it is served: nothing is acknowledged that would be lost.
#[test]
fn a_data_directory_that_disappears_stops_the_server_before_it_replies() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    for (name, remove) in [
        ("deleted", (|data| fs::remove_dir_all(data)) as fn(&Path) -> std::io::Result<()>),
        ("emptied", |data| {
            fs::read_dir(data)?.try_for_each(|entry| {
                let path = entry?.path();
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
            })
        }),
        ("moved", |data| fs::rename(data, data.with_extension("moved"))),
        ("replaced", |data| fs::rename(data, data.with_extension("moved")).and_then(|()| fs::create_dir(data))),
        ("truncated", |data| {
            fs::File::options().write(true).open(data.join("segment-00000000000000000001"))?.set_len(100)
        }),
        ("unidentified", |data| fs::remove_file(data.join("journal"))),
    ] {
        let data = dir.path().join(name);
        let mut server = Server::start(&data);
        runtime().block_on(async {
            let mut holder = Holder::new(&server.address).await;
            holder.acquire_many("kept", 3).await;
            remove(&data).expect("the directory is removed");
            let operation = vec![(holder.sequence + 1, acquire("late", 0))];
            let mut replies = Vec::new();
            let sent = holder.transport.call(holder.sequence + 1, operation, |_, reply| replies.push(reply)).await;
            let granted = replies.iter().any(|reply| matches!(reply, Reply::Granted(_)));
            assert!(!granted, "{name}: acknowledged a grant that is lost: {sent:?}");
        });
        let status = server.wait();
        assert_eq!(status.code(), Some(5), "{name}: {status}");
        let log = server.log_text();
        assert!(log.contains("STORAGE_FAILED") && log.contains("while it was in use"), "{name}: {log}");
    }
}

/// After a clean stop every batch is complete: a log whose end was erased is damaged, not torn (V2).
#[test]
fn a_log_whose_end_was_erased_after_a_clean_stop_is_refused() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let server = Server::start(&data);
    runtime().block_on(async {
        Holder::new(&server.address).await.acquire_many("kept", 100).await;
    });
    server.stop();
    let segment = data.join("segment-00000000000000000001");
    let mut bytes = fs::read(&segment).expect("a segment");
    let written = bytes.iter().rposition(|byte| *byte != 0).expect("batches") + 1;
    bytes[written - 9_000..].fill(0);
    fs::write(&segment, &bytes).expect("the segment is writable");
    let refused = Start::default().at(&data).map(drop).expect_err("the log is shorter than at the stop");
    assert!(refused.contains("exit status: 65") && refused.contains("clean stop"), "{refused}");
    assert!(refused.contains("segment-00000000000000000001"), "{refused}");
}

/// A directory that another process uses can be usable a moment later.
#[test]
fn a_directory_in_use_is_refused_with_the_exit_code_that_the_page_names() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let refused = Start::default().at(&data).map(drop).expect_err("another process uses it");
    assert!(refused.contains("exit status: 78") && refused.contains("in use by process"), "{refused}");
    server.stop();
}

/// Set for the child process that runs in its own mount namespace.
const SMALL_DISK: &str = "LEASEHOLD_SMALL_DISK";

/// Runs itself again in its own mount namespace (V4).
#[test]
fn a_full_disk_rejects_new_grants_and_recovers_without_a_restart() {
    if let Some(path) = std::env::var_os(SMALL_DISK) {
        return runtime().block_on(fill_a_small_disk(Path::new(&path)));
    }
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    let name = "disk::a_full_disk_rejects_new_grants_and_recovers_without_a_restart";
    let mut child = Command::new("unshare");
    if fs::metadata(dir.path()).map(|made| std::os::unix::fs::MetadataExt::uid(&made)).ok() != Some(0) {
        child.arg("--map-root-user");
    }
    child.arg("--mount").arg(std::env::current_exe().expect("the test binary")).args(["--exact", name, "--nocapture"]);
    let output = child.env(SMALL_DISK, dir.path()).output().expect("unshare runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("the small disk was full"), "{text}");
}

async fn fill_a_small_disk(dir: &Path) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=180m", "tmpfs"]).arg(dir).status();
    assert!(mounted.expect("mount runs").success());
    let (data, ballast) = (dir.join("data"), dir.join("ballast"));
    let server = Server::start(&data);
    let mut holder = Holder::new(&server.address).await;
    holder.acquire_many("kept", 50).await;
    while !data.join("spare").exists() {
        std::thread::yield_now();
    }

    fill(&ballast);
    holder.until_full().await;
    holder.assert_still_held().await;
    assert_eq!(holder.acquire("new", 0).await, Reply::refused("STORAGE_FULL", ""));
    holder.release_one().await;
    assert_eq!(holder.acquire("new", 0).await, Reply::refused("STORAGE_FULL", ""), "a release frees no disk space");
    fs::remove_file(&ballast).expect("the file exists");
    holder.until_granted().await;
    holder.assert_still_held().await;

    assert!(server.metrics().contains("\nleasehold_journal_full_appends_total 0\n"), "{}", server.metrics());
    fill(&ballast);
    holder.until_full().await;
    drop(server);
    let server = Server::start(&data);
    holder.reconnect(&server.address).await;
    holder.assert_still_held().await;
    assert_eq!(holder.acquire("new", 0).await, Reply::refused("STORAGE_FULL", ""));
    fs::remove_file(&ballast).expect("the file exists");
    holder.until_granted().await;
    holder.assert_still_held().await;
    // A turn without disk space would have delayed all clients, also those that renew.
    assert!(server.metrics().contains("\nleasehold_journal_full_appends_total 0\n"), "{}", server.metrics());
    server.stop();
    println!("the small disk was full");
}

fn fill(ballast: &Path) {
    // Writes until the disk is full; the error is expected.
    fs::write(ballast, vec![1; 180 << 20]).expect_err("the disk is full");
}

/// A client on a session stream that holds leases and acquires more.
struct Holder {
    own: Option<crate::transport::OwnSession>,
    transport: Transport,
    sequence: u64,
    held: Vec<v1::Grant>,
}

impl Holder {
    async fn new(address: &str) -> Self {
        let mut own = None;
        let transport = Transport::stream(address, "holder", &mut own).await.expect("the server responds");
        Self { own, transport, sequence: 0, held: Vec::new() }
    }

    async fn reconnect(&mut self, address: &str) {
        self.transport = Transport::stream(address, "holder", &mut self.own).await.expect("the server responds");
    }

    async fn call(&mut self, operations: Vec<Operation>) -> Vec<Reply> {
        let first = self.sequence + 1;
        self.sequence += operations.len() as u64;
        let mut replies = vec![Reply::Waiting; operations.len()];
        let operations =
            operations.into_iter().zip(first..).map(|(operation, sequence)| (sequence, operation)).collect();
        let on_reply = |sequence, reply| replies[(sequence - first) as usize] = reply;
        self.transport.call(first, operations, on_reply).await.expect("the server responds");
        replies
    }

    async fn acquire_many(&mut self, prefix: &str, names: usize) {
        for name in 0..names {
            let resource = format!("{prefix}/{name}");
            let Reply::Granted(grant) = self.acquire(&resource, 0).await else { panic!("{resource} is free") };
            self.held.push(v1::Grant { resource, ..*grant });
        }
    }

    async fn acquire(&mut self, resource: &str, bytes: usize) -> Reply {
        self.call(vec![acquire(resource, bytes)]).await.remove(0)
    }

    /// Acquires and releases with large metadata until the disk is full.
    async fn until_full(&mut self) {
        let names: Vec<String> = (0..30).map(|name| format!("fill/{name}")).collect();
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "the disk did not fill up");
            let replies = self.call(names.iter().map(|name| acquire(name, 4_096)).collect()).await;
            let releases = names.iter().zip(&replies).filter_map(|(name, reply)| match reply {
                Reply::Granted(grant) => Some(Operation::Release(held(name, &grant.token))),
                reply => {
                    assert_eq!(reply, &Reply::refused("STORAGE_FULL", ""));
                    None
                }
            });
            let releases: Vec<_> = releases.collect();
            let full = releases.len() < names.len();
            assert!(self.call(releases).await.iter().all(|reply| *reply == Reply::Done), "releases succeed");
            if full {
                return;
            }
        }
    }

    async fn until_granted(&mut self) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            match self.acquire("new", 0).await {
                Reply::Granted(grant) => {
                    assert_eq!(self.call(vec![Operation::Release(held("new", &grant.token))]).await, [Reply::Done]);
                    return;
                }
                reply => assert_eq!(reply, Reply::refused("STORAGE_FULL", "")),
            }
            assert!(Instant::now() < deadline, "free space is not noticed");
        }
    }

    async fn assert_still_held(&mut self) {
        let renew =
            |grant: &v1::Grant| v1::Renew { lease: Some(held(&grant.resource, &grant.token)), ..Default::default() };
        let operations = self.held.iter().map(|grant| Operation::Renew(renew(grant))).collect();
        let expected: Vec<_> = self.held.iter().map(|grant| Reply::Current(grant.token_number)).collect();
        assert_eq!(self.call(operations).await, expected);
    }

    async fn release_one(&mut self) {
        let grant = self.held.pop().expect("a lease is held");
        assert_eq!(self.call(vec![Operation::Release(held(&grant.resource, &grant.token))]).await, [Reply::Done]);
        let confirm = Operation::Check(held(&grant.resource, &grant.token));
        assert_eq!(self.call(vec![confirm]).await, [Reply::refused("LEASE_LOST", "released")]);
    }
}

fn acquire(resource: &str, bytes: usize) -> Operation {
    let options = Some(v1::AcquireOptions { metadata: vec![7; bytes], ..Default::default() });
    Operation::Acquire(v1::Acquire { resource: resource.into(), ttl_ms: Some(LONG), options, ..Default::default() })
}
