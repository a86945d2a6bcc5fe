//! Holders in separate processes: stopped, killed, terminated, and in another time namespace.
//!
//! Each test starts the test binary again as the holder.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{ClientBuilder, RunError};
use leasehold_testkit::process::TestProcess;
use tokio::signal::unix::{SignalKind, signal};

use crate::servers::Server;
use crate::support::{self, TEST_TIMEOUT};
use crate::{TTL, acquire, builder, client, holders_and_waiters, until};

/// Environment variable with the server address for the holder process.
pub const SERVER_ADDRESS: &str = "LEASEHOLD_TEST_HOLDS_AT";
/// Environment variable with the path of the file that the holder writes.
pub const WRITE_FILE: &str = "LEASEHOLD_TEST_WRITES_TO";

/// A holder process.
pub struct Process(pub TestProcess);

impl Process {
    /// Runs a test of this module as the holder.
    fn start(test: &str, server: &Server, writes_to: &Path) -> Self {
        Self::spawn(Command::new(std::env::current_exe().expect("the test binary")), test, server, writes_to)
    }

    fn spawn(mut command: Command, test: &str, server: &Server, writes_to: &Path) -> Self {
        command.stdin(Stdio::null());
        Self::spawn_test(command, &format!("processes::{test}"), server, writes_to)
    }

    /// Runs a test of any module as the holder.
    pub fn spawn_test(mut command: Command, name: &str, server: &Server, writes_to: &Path) -> Self {
        command
            .args(["--exact", name, "--nocapture"])
            .env(SERVER_ADDRESS, &server.addresses)
            .env(WRITE_FILE, writes_to);
        Self(TestProcess::spawn(command.stdout(Stdio::piped())).expect("this program runs again"))
    }

    /// Waits for a line that contains `marker` and returns the rest of the line.
    #[track_caller]
    pub fn wait_for_output(&self, marker: &str) -> String {
        // The test harness prints its own text before the first line.
        self.0.stdout().wait_for_rest(marker).trim().to_owned()
    }

    pub fn signal(&self, name: &str) {
        support::signal(&self.0, name);
    }
}

/// In the holder process, runs the holder and returns true.
pub fn run_as_holder_process<W: Future<Output = ()>>(holder: impl FnOnce(ClientBuilder) -> W) -> bool {
    let Ok(address) = std::env::var(SERVER_ADDRESS) else {
        return false;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(holder(builder(&address).holder("process")));
    true
}

pub fn run_in_parent(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

pub fn write_count(to: &Path) -> usize {
    std::fs::read_to_string(to).map_or(0, |text| text.lines().count())
}

/// Writes repeatedly under its lease until the guard stops it.
async fn write_until_stopped(client: ClientBuilder) {
    let client = client.build();
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("the resource is free");
    let path = std::env::var_os(WRITE_FILE).expect("the variable is set");
    println!("@held");
    let stopped = guard.run(|_| async move {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
        loop {
            file.write_all(b"write\n").expect("the write succeeds");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    match stopped.await {
        Ok(()) => unreachable!("the work never ends by itself"),
        Err(RunError::Suspended) => println!("@stopped suspended"),
        Err(RunError::Lost(loss)) => println!("@stopped {loss}"),
    }
}

#[test]
fn a_holder_stopped_for_three_ttls_loses_its_lease_and_stops_writing() {
    if run_as_holder_process(write_until_stopped) {
        return;
    }
    run_in_parent(async {
        let (server, directory) = (Server::start(), tempfile::tempdir().expect("a directory"));
        let file = directory.path().join("writes");
        let name = "a_holder_stopped_for_three_ttls_loses_its_lease_and_stops_writing";
        let holder = Process::start(name, &server, &file);
        holder.wait_for_output("@held");
        until(async || write_count(&file) > 10).await;
        holder.signal("STOP");
        let successor = client(&server, "w2").lock("a").wait(TEST_TIMEOUT).acquire().await.expect("it has run out");
        tokio::time::sleep(2 * TTL).await;
        let before = write_count(&file);
        holder.signal("CONT");
        holder.wait_for_output("@stopped");
        // A stop can land between the look at the clock and the write: that one only a fence refuses.
        assert!(write_count(&file) <= before + 1, "it wrote on as a zombie");
        successor.check().await.expect("there is one holder");
    });
}

/// Holds leases under load and releases all of them on SIGTERM.
async fn close_on_sigterm(client: ClientBuilder) {
    let client = client.build();
    let mut sigterm = signal(SignalKind::terminate()).expect("a handler");
    let guard = client.lock("a").acquire().await.expect("the resource is free");
    for at in 0..64 {
        let other = client.lock(format!("load/{at}")).acquire().await.expect("the resource is free");
        tokio::spawn(async move { while other.put("at", b"x").await.is_ok() {} });
    }
    println!("@held");
    sigterm.recv().await;
    client.close().await.expect("the server responds");
    assert!(!guard.is_held());
    println!("@closed");
}

#[test]
fn a_holder_under_load_releases_on_sigterm_instead_of_expiring() {
    if run_as_holder_process(close_on_sigterm) {
        return;
    }
    run_in_parent(async {
        let (server, nowhere) = (Server::start(), Path::new("/dev/null"));
        let observer = client(&server, "observer");
        let name = "a_holder_under_load_releases_on_sigterm_instead_of_expiring";
        let mut holder = Process::start(name, &server, nowhere);
        holder.wait_for_output("@held");
        let lock = client(&server, "w2").lock("a").wait(TEST_TIMEOUT);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until(async || holders_and_waiters(&observer, "a").await == (1, 1)).await;
        holder.signal("TERM");
        let successor = waiting.await.expect("the task completed").expect("the lease was released");
        holder.wait_for_output("@closed");
        assert!(holder.0.wait().success());
        let ends = observer.recent_ends("a", 10).await.expect("the server responds");
        let reasons: Vec<&str> = ends.iter().map(|end| end.reason.as_str()).collect();
        assert!(matches!(reasons[..], ["released" | "session"]), "{reasons:?}");
        until(async || holders_and_waiters(&observer, "load/7").await.0 == 0).await;
        successor.check().await.expect("the lease is held");
    });
}

/// Waits for a held lease in a session with a short ttl.
async fn wait_in_short_session(client: ClientBuilder) {
    let client = client.session_ttl(TTL).build();
    println!("@waits");
    let granted = client.lock("a").ttl(TTL).wait(TEST_TIMEOUT).acquire().await;
    println!("@granted {}", granted.is_ok());
}

#[test]
fn a_waiter_with_an_ended_session_is_never_granted() {
    if run_as_holder_process(wait_in_short_session) {
        return;
    }
    run_in_parent(async {
        let server = Server::start();
        let observer = client(&server, "observer");
        let guard = client(&server, "w1").lock("a").acquire().await.expect("the resource is free");
        let mut waiter =
            Process::start("a_waiter_with_an_ended_session_is_never_granted", &server, Path::new("/dev/null"));
        waiter.wait_for_output("@waits");
        until(async || holders_and_waiters(&observer, "a").await == (1, 1)).await;
        waiter.0.kill();
        until(async || holders_and_waiters(&observer, "a").await == (1, 0)).await;
        guard.release().await.expect("the lease is held");
        assert_eq!(holders_and_waiters(&observer, "a").await, (0, 0));
        assert_eq!(
            observer.recent_ends("a", 10).await.expect("the server responds").len(),
            1,
            "there was no other grant"
        );
    });
}

/// Prints its deadline on the boot clock.
async fn print_deadline(client: ClientBuilder) {
    let client = client.build();
    let guard = acquire(&client, "a").await;
    println!("@until {}", guard.deadline().earliest.0 / 1_000_000_000);
}

#[test]
fn a_holder_uses_the_boot_clock_which_includes_suspend() {
    const SUSPEND_MS: u64 = 1_000_000;
    if run_as_holder_process(print_deadline) {
        return;
    }
    run_in_parent(async {
        let server = Server::start();
        let uptime = std::fs::read_to_string("/proc/uptime").expect("this is Linux");
        let uptime: u64 = uptime.split('.').next().and_then(|seconds| seconds.parse().ok()).expect("seconds");
        let mut namespace = Command::new("unshare");
        if !rustix::process::getuid().is_root() {
            namespace.arg("--map-root-user");
        }
        // A time namespace with an offset of the boot clock only, as after a suspend.
        namespace.args(["--time", "--boottime", &SUSPEND_MS.to_string(), "--"]);
        namespace.arg(std::env::current_exe().expect("the test binary"));
        let name = "a_holder_uses_the_boot_clock_which_includes_suspend";
        let holder = Process::spawn(namespace, name, &server, Path::new("/dev/null"));
        let until: u64 = holder.wait_for_output("@until").parse().expect("seconds");
        assert!(until >= uptime + SUSPEND_MS, "{until} is not on the boot clock");
    });
}
