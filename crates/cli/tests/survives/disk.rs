//! Disks that fail, fill up or answer late: told is durable, or nothing is told.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use leasehold_wire::v1;
use leasehold_wire::v1::request::Ask;

use crate::chance::Chance;
use crate::crash::Doom;
use crate::crowd::Crowd;
use crate::link::{LONG, Link, Told, held};
use crate::server::{PATIENCE, Server, Start, alone, depth};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A failed sync, and a failed write, stop the process before any ack; what was acked is there afterwards (V3).
#[test]
fn a_disk_that_fails_stops_the_server_before_it_tells() {
    let _alone = alone();
    const FAULTS: [(&str, &str); 4] = [
        (
            "strace -D -f -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:error=EIO:when=40",
            "Input/output error",
        ),
        (
            "strace -D -f -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:error=ENOSPC:when=70",
            "No space left on device",
        ),
        ("strace -D -f -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:error=EIO:when=60", "Input/output error"),
        (
            "strace -D -f -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:error=EIO:when=150",
            "Input/output error",
        ),
    ];
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    let mut crowd = Crowd::new(&mut Chance::new(11), true);
    let rounds = depth(1, 2, 30);
    runtime().block_on(async {
        crowd.live(&data, &Start::default(), Some(Doom::Working(100))).await;
        for _ in 0..rounds {
            for (under, says) in FAULTS {
                crowd.live(&data, &Start { under, ..Start::default() }, Some(Doom::Itself(says))).await;
            }
        }
        crowd.live(&data, &Start::default(), Some(Doom::Working(250))).await;
        crowd.live(&data, &Start::default(), None).await;
    });
    crowd.has_done_something(rounds * FAULTS.len());
}

/// A write that finds no room is tried again until there is some; nothing that was decided is lost meanwhile.
#[test]
fn a_write_without_room_is_waited_out() {
    let _alone = alone();
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    let under = "strace -D -f -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:error=ENOSPC:when=40..45";
    let mut crowd = Crowd::new(&mut Chance::new(12), true);
    runtime().block_on(async {
        crowd.live(&data, &Start::default(), Some(Doom::Working(100))).await;
        for _ in 0..depth(1, 2, 20) {
            crowd.live(&data, &Start { under, ..Start::default() }, Some(Doom::Working(1_200))).await;
        }
        crowd.live(&data, &Start::default(), None).await;
    });
    crowd.has_done_something(1);
}

/// A call that a signal interrupted is made again; nobody notices.
#[test]
fn a_write_that_is_interrupted_is_made_again() {
    let _alone = alone();
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    let under = "strace -D -f -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:error=EINTR:when=5+3";
    let mut crowd = Crowd::new(&mut Chance::new(13), true);
    runtime().block_on(async {
        for _ in 0..depth(1, 2, 20) {
            crowd.live(&data, &Start { under, ..Start::default() }, Some(Doom::Working(400))).await;
        }
        crowd.live(&data, &Start::default(), None).await;
    });
    crowd.has_done_something(1);
}

/// Set for the copy of this test that runs with mounts of its own.
const SMALL_DISK: &str = "LEASEHOLD_SMALL_DISK";

/// Runs itself again where a mount is seen by nobody else (V4).
#[test]
fn a_full_disk_refuses_what_is_new_and_recovers_without_a_restart() {
    if let Some(path) = std::env::var_os(SMALL_DISK) {
        return runtime().block_on(fill_a_small_disk(Path::new(&path)));
    }
    let _alone = alone();
    let above = tempfile::tempdir().expect("a directory");
    let name = "disk::a_full_disk_refuses_what_is_new_and_recovers_without_a_restart";
    let mut again = Command::new("unshare");
    if fs::metadata(above.path()).map(|made| std::os::unix::fs::MetadataExt::uid(&made)).ok() != Some(0) {
        again.arg("--map-root-user");
    }
    again.arg("--mount").arg(std::env::current_exe().expect("this program")).args(["--exact", name, "--nocapture"]);
    let output = again.env(SMALL_DISK, above.path()).output().expect("unshare runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("the small disk was full"), "{text}");
}

async fn fill_a_small_disk(above: &Path) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=180m", "tmpfs"]).arg(above).status();
    assert!(mounted.expect("mount runs").success());
    let (data, ballast) = (above.join("data"), above.join("ballast"));
    let server = Server::start(&data);
    let mut holder = Holder::new(&server.address).await;
    holder.take("kept", 50).await;
    while !data.join("spare").exists() {
        std::thread::yield_now();
    }

    fill(&ballast);
    holder.until_full().await;
    holder.keeps_what_it_has().await;
    assert_eq!(holder.acquire("new", 0).await, Told::refused("STORAGE_FULL", ""));
    holder.give_back_one().await;
    assert_eq!(holder.acquire("new", 0).await, Told::refused("STORAGE_FULL", ""), "an end is no room");
    fs::remove_file(&ballast).expect("it was written");
    holder.until_granted().await;
    holder.keeps_what_it_has().await;

    assert!(server.figures().contains("\nleasehold_journal_full_total 0\n"), "{}", server.figures());
    fill(&ballast);
    holder.until_full().await;
    drop(server);
    let server = Server::start(&data);
    holder.come_back(&server.address).await;
    holder.keeps_what_it_has().await;
    assert_eq!(holder.acquire("new", 0).await, Told::refused("STORAGE_FULL", ""));
    fs::remove_file(&ballast).expect("it was written");
    holder.until_granted().await;
    holder.keeps_what_it_has().await;
    // A turn that found no room would have kept everybody waiting, those who renew too.
    assert!(server.figures().contains("\nleasehold_journal_full_total 0\n"), "{}", server.figures());
    server.stop();
    println!("the small disk was full");
}

fn fill(ballast: &Path) {
    // Writes until no byte is free; the error is the point.
    fs::write(ballast, vec![1; 180 << 20]).expect_err("more than there is");
}

/// A client on a stream that holds some leases and wants more.
struct Holder {
    own: Option<crate::link::Own>,
    link: Link,
    sequence: u64,
    held: Vec<v1::Grant>,
}

impl Holder {
    async fn new(address: &str) -> Self {
        let mut own = None;
        let link = Link::stream(address, "holder", &mut own).await.expect("it serves");
        Self { own, link, sequence: 0, held: Vec::new() }
    }

    async fn come_back(&mut self, address: &str) {
        self.link = Link::stream(address, "holder", &mut self.own).await.expect("it serves");
    }

    async fn ask(&mut self, asks: Vec<Ask>) -> Vec<Told> {
        let from = self.sequence + 1;
        self.sequence += asks.len() as u64;
        let mut told = vec![Told::Waiting; asks.len()];
        let asks = asks.into_iter().zip(from..).map(|(ask, sequence)| (sequence, ask)).collect();
        let heard = |sequence, answer| told[(sequence - from) as usize] = answer;
        self.link.ask(from, asks, heard).await.expect("the server goes on");
        told
    }

    async fn take(&mut self, prefix: &str, names: usize) {
        for name in 0..names {
            let resource = format!("{prefix}/{name}");
            let Told::Granted(grant) = self.acquire(&resource, 0).await else { panic!("{resource} is free") };
            self.held.push(v1::Grant { resource, ..*grant });
        }
    }

    async fn acquire(&mut self, resource: &str, bytes: usize) -> Told {
        self.ask(vec![acquire(resource, bytes)]).await.remove(0)
    }

    /// Takes and gives back until the disk is full; a message of people's size each time, so that it comes soon.
    async fn until_full(&mut self) {
        let names: Vec<String> = (0..30).map(|name| format!("fill/{name}")).collect();
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "the disk is never full");
            let told = self.ask(names.iter().map(|name| acquire(name, 4_096)).collect()).await;
            let releases = names.iter().zip(&told).filter_map(|(name, told)| match told {
                Told::Granted(grant) => Some(Ask::Release(held(name, &grant.token))),
                told => {
                    assert_eq!(told, &Told::refused("STORAGE_FULL", ""));
                    None
                }
            });
            let releases: Vec<_> = releases.collect();
            let full = releases.len() < names.len();
            assert!(self.ask(releases).await.iter().all(|told| *told == Told::Done), "endings go on");
            if full {
                return;
            }
        }
    }

    async fn until_granted(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.acquire("new", 0).await {
                Told::Granted(grant) => {
                    assert_eq!(self.ask(vec![Ask::Release(held("new", &grant.token))]).await, [Told::Done]);
                    return;
                }
                told => assert_eq!(told, Told::refused("STORAGE_FULL", "")),
            }
            assert!(Instant::now() < until, "space came back, and it is not noticed");
        }
    }

    async fn keeps_what_it_has(&mut self) {
        let renew =
            |grant: &v1::Grant| v1::Renew { held: Some(held(&grant.resource, &grant.token)), ..Default::default() };
        let asks = self.held.iter().map(|grant| Ask::Renew(renew(grant))).collect();
        let expected: Vec<_> = self.held.iter().map(|grant| Told::Current(grant.token_number)).collect();
        assert_eq!(self.ask(asks).await, expected);
    }

    async fn give_back_one(&mut self) {
        let grant = self.held.pop().expect("something is held");
        assert_eq!(self.ask(vec![Ask::Release(held(&grant.resource, &grant.token))]).await, [Told::Done]);
        let confirm = Ask::Confirm(held(&grant.resource, &grant.token));
        assert_eq!(self.ask(vec![confirm]).await, [Told::refused("LEASE_LOST", "released")]);
    }
}

fn acquire(resource: &str, bytes: usize) -> Ask {
    let terms = Some(v1::Terms { metadata: vec![7; bytes], ..Default::default() });
    Ask::Acquire(v1::Acquire { resource: resource.into(), ttl_ms: Some(LONG), terms, ..Default::default() })
}
