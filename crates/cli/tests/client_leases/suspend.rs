//! System suspend: work under a lease stops at its first check after the resume, before it writes.
//!
//! A test cannot suspend the machine. It simulates what a process sees: the process is stopped, and when it continues, its
//! boot clock has jumped while all timers have not. The client's test kit makes the clock jump.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::testing::FAKE_SUSPEND_FILE;
use leasehold::{ClientBuilder, RunError};
use tokio::sync::mpsc::unbounded_channel;

use crate::processes::{Process, WRITE_FILE, run_as_holder_process, run_in_parent, write_count};
use crate::servers::Server;
use crate::until;

/// Longer than any test: only the clock jump can end the lease.
const LONG: Duration = Duration::from_secs(300);
/// Simulated time in suspend, in milliseconds.
const SUSPEND_MS: &str = "3600000";

/// Writes once per line on standard input, under its lease.
async fn write_on_request(client: ClientBuilder) {
    // The session must live as long as its leases.
    let client = client.session_ttl(LONG).build();
    let guard = client.lock("a").ttl(LONG).acquire().await.expect("the resource is free");
    let path = std::env::var_os(WRITE_FILE).expect("the variable is set");
    let (sender, mut requests) = unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    println!("@held");
    let stopped = guard.run(|_| async move {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
        while requests.recv().await.is_some() {
            file.write_all(b"write\n").expect("the write succeeds");
        }
    });
    match stopped.await {
        Ok(()) => println!("@stopped normally"),
        Err(RunError::Suspended) => println!("@stopped suspended"),
        Err(RunError::Lost(loss)) => println!("@stopped {loss}"),
    }
}

#[test]
fn a_holder_suspended_past_its_deadline_stops_before_the_next_write() {
    if run_as_holder_process(write_on_request) {
        return;
    }
    run_in_parent(async {
        let (server, directory) = (Server::start(), tempfile::tempdir().expect("a directory"));
        let (file, slept) = (directory.path().join("writes"), directory.path().join("slept"));
        let name = "suspend::a_holder_suspended_past_its_deadline_stops_before_the_next_write";
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        command.stdin(Stdio::piped()).env(FAKE_SUSPEND_FILE, &slept);
        let mut holder = Process::spawn_test(command, name, &server, &file);
        let mut stdin = holder.0.take_stdin().expect("the stream is piped");
        holder.wait_for_output("@held");
        stdin.write_all(b"write\n").expect("the receiver exists");
        until(async || write_count(&file) == 1).await;

        // Stopped with a pending write, but no clock jump: the lease is still valid, and the holder writes.
        holder.signal("STOP");
        stdin.write_all(b"write\n").expect("the write succeeds");
        holder.signal("CONT");
        until(async || write_count(&file) == 2).await;

        // The same with a clock jump, as after a suspend.
        holder.signal("STOP");
        stdin.write_all(b"write\n").expect("the write succeeds");
        std::fs::write(&slept, SUSPEND_MS).expect("the write succeeds");
        holder.signal("CONT");
        assert_eq!(holder.wait_for_output("@stopped"), "suspended");
        assert!(holder.0.wait().success());
        assert_eq!(write_count(&file), 2, "it wrote after the suspend");
    });
}
