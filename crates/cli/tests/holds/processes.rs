//! Holders as processes of their own: stopped, killed, told to end, and under a clock that another one does not see.
//!
//! Each test runs itself again as the holder.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use leasehold::{Client, Options, Stopped};
use tokio::signal::unix::{SignalKind, signal};

use crate::servers::Server;
use crate::support::{self, PATIENCE};
use crate::{TTL, acquire, client, client_at, crowd, until};

/// Where the server is, for the copy of a test that holds.
pub const HOLDS_AT: &str = "LEASEHOLD_TEST_HOLDS_AT";
/// Where it writes, if it does.
pub const WRITES_TO: &str = "LEASEHOLD_TEST_WRITES_TO";

/// A holder's own process.
pub struct Process {
    pub child: Child,
    says: Receiver<String>,
}

impl Process {
    /// Runs a test again, as the holder.
    fn start(test: &str, server: &Server, writes_to: &Path) -> Self {
        Self::spawn(Command::new(std::env::current_exe().expect("this program")), test, server, writes_to)
    }

    fn spawn(mut command: Command, test: &str, server: &Server, writes_to: &Path) -> Self {
        command.stdin(Stdio::null());
        Self::again(command, &format!("processes::{test}"), server, writes_to)
    }

    /// The same for a test of any module.
    pub fn again(mut command: Command, name: &str, server: &Server, writes_to: &Path) -> Self {
        command.args(["--exact", name, "--nocapture"]).env(HOLDS_AT, &server.everywhere).env(WRITES_TO, writes_to);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("this program runs again");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let (tell, says) = channel();
        std::thread::spawn(move || lines.try_for_each(|line| tell.send(line)));
        Self { child, says }
    }

    /// Waits until it says something that begins so, and returns the rest.
    #[track_caller]
    pub fn says(&self, begins: &str) -> String {
        loop {
            let line = self.says.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never said {begins:?}"));
            // The first line of a test follows what the harness says about it.
            if let Some((_, rest)) = line.split_once(begins) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn signal(&self, name: &str) {
        support::signal(&self.child, name);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that ended already has nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the holder's process: does what it is there for.
pub fn as_holder<W: Future<Output = ()>>(holds: impl FnOnce(Client, Options) -> W) -> bool {
    let Ok(address) = std::env::var(HOLDS_AT) else {
        return false;
    };
    let options = Options { holder: Some("process".into()), ..Options::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(holds(client_at(&address, options.clone()), options));
    true
}

pub fn in_parent(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

pub fn writes(to: &Path) -> usize {
    std::fs::read_to_string(to).map_or(0, |text| text.lines().count())
}

/// Writes again and again under its lease, until that stops it.
async fn write_on(client: Client, _: Options) {
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("it is free");
    let path = std::env::var_os(WRITES_TO).expect("it was told where");
    println!("@held");
    let stopped = guard.run(|_| async move {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
        loop {
            file.write_all(b"write\n").expect("there is room");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    match stopped.await {
        Ok(()) => unreachable!("the work has no end of its own"),
        Err(Stopped::Suspended) => println!("@stopped suspended"),
        Err(Stopped::Lost(loss)) => println!("@stopped {loss}"),
    }
}

#[test]
fn a_holder_stopped_for_three_ttls_has_lost_its_lease_and_writes_no_more() {
    if as_holder(write_on) {
        return;
    }
    in_parent(async {
        let (server, directory) = (Server::start(), tempfile::tempdir().expect("a directory"));
        let file = directory.path().join("writes");
        let name = "a_holder_stopped_for_three_ttls_has_lost_its_lease_and_writes_no_more";
        let holder = Process::start(name, &server, &file);
        holder.says("@held");
        until(async || writes(&file) > 10).await;
        holder.signal("STOP");
        let successor = client(&server, "w2").lock("a").wait(PATIENCE).acquire().await.expect("it has run out");
        tokio::time::sleep(2 * TTL).await;
        let before = writes(&file);
        holder.signal("CONT");
        holder.says("@stopped");
        // A stop can land between the look at the clock and the write: that one only a fence refuses.
        assert!(writes(&file) <= before + 1, "it wrote on as a zombie");
        successor.confirm().await.expect("there is one holder");
    });
}

/// Holds under load, and gives everything back when it is told to end.
async fn end_when_told(client: Client, _: Options) {
    let mut told = signal(SignalKind::terminate()).expect("a handler");
    let guard = client.lock("a").acquire().await.expect("it is free");
    for at in 0..64 {
        let other = client.lock(format!("load/{at}")).acquire().await.expect("it is free");
        tokio::spawn(async move { while other.put("at", b"x").await.is_ok() {} });
    }
    println!("@held");
    told.recv().await;
    client.close().await.expect("the server hears it");
    assert!(!guard.is_held());
    println!("@closed");
}

#[test]
fn a_holder_that_is_told_to_end_under_load_hands_over_at_once_and_not_by_expiry() {
    if as_holder(end_when_told) {
        return;
    }
    in_parent(async {
        let (server, nowhere) = (Server::start(), Path::new("/dev/null"));
        let looking = client(&server, "looks");
        let name = "a_holder_that_is_told_to_end_under_load_hands_over_at_once_and_not_by_expiry";
        let mut holder = Process::start(name, &server, nowhere);
        holder.says("@held");
        let lock = client(&server, "w2").lock("a").wait(PATIENCE);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until(async || crowd(&looking, "a").await == (1, 1)).await;
        holder.signal("TERM");
        let successor = waiting.await.expect("it ran").expect("it was handed over");
        holder.says("@closed");
        assert!(holder.child.wait().expect("it ends").success());
        let ends = looking.ends("a", 10).await.expect("the server answers");
        let reasons: Vec<&str> = ends.iter().map(|end| end.reason.as_str()).collect();
        assert!(matches!(reasons[..], ["released" | "session"]), "{reasons:?}");
        until(async || crowd(&looking, "load/7").await.0 == 0).await;
        successor.confirm().await.expect("it holds");
    });
}

/// Waits for what somebody else has, in a session that does not live long without it.
async fn wait_for_it(_: Client, options: Options) {
    let address = std::env::var(HOLDS_AT).expect("it was told where");
    let client = client_at(&address, Options { session: TTL, ..options });
    println!("@waits");
    let granted = client.lock("a").ttl(TTL).wait(PATIENCE).acquire().await;
    println!("@granted {}", granted.is_ok());
}

#[test]
fn a_waiter_whose_session_died_is_never_granted() {
    if as_holder(wait_for_it) {
        return;
    }
    in_parent(async {
        let server = Server::start();
        let looking = client(&server, "looks");
        let guard = client(&server, "w1").lock("a").acquire().await.expect("it is free");
        let mut waiter =
            Process::start("a_waiter_whose_session_died_is_never_granted", &server, Path::new("/dev/null"));
        waiter.says("@waits");
        until(async || crowd(&looking, "a").await == (1, 1)).await;
        waiter.child.kill().expect("it runs");
        waiter.child.wait().expect("it ends");
        until(async || crowd(&looking, "a").await == (1, 0)).await;
        guard.release().await.expect("it is ours");
        assert_eq!(crowd(&looking, "a").await, (0, 0));
        assert_eq!(looking.ends("a", 10).await.expect("the server answers").len(), 1, "there was no other grant");
    });
}

/// Tells by which clock its deadline is.
async fn tell_the_deadline(client: Client, _: Options) {
    let guard = acquire(&client, "a").await;
    println!("@until {}", guard.deadline().earliest.0 / 1_000_000_000);
}

#[test]
fn a_holder_counts_by_the_clock_that_goes_on_while_the_machine_sleeps() {
    const ASLEEP: u64 = 1_000_000;
    if as_holder(tell_the_deadline) {
        return;
    }
    in_parent(async {
        let server = Server::start();
        let uptime = std::fs::read_to_string("/proc/uptime").expect("this is Linux");
        let uptime: u64 = uptime.split('.').next().and_then(|seconds| seconds.parse().ok()).expect("seconds");
        let mut elsewhere = Command::new("unshare");
        if !rustix::process::getuid().is_root() {
            elsewhere.arg("--map-root-user");
        }
        // As if the machine had slept that long: its boot clock shows it, and its other clock does not.
        elsewhere.args(["--time", "--boottime", &ASLEEP.to_string(), "--"]);
        elsewhere.arg(std::env::current_exe().expect("this program"));
        let name = "a_holder_counts_by_the_clock_that_goes_on_while_the_machine_sleeps";
        let holder = Process::spawn(elsewhere, name, &server, Path::new("/dev/null"));
        let until: u64 = holder.says("@until").parse().expect("seconds");
        assert!(until >= uptime + ASLEEP, "{until} is not on the boot clock");
    });
}
