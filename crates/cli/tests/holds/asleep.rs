//! A machine that slept: work under a lease stops at the first look after waking, before it writes.
//!
//! A machine cannot be put to sleep for a test. What its sleep looks like to a process can be had: the process stands still, and
//! when it goes on its boot clock has jumped while every timer stands where it stood. The jump is made by the client's test kit.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::testing::SLEPT;
use leasehold::{Client, Options, Stopped};
use tokio::sync::mpsc::unbounded_channel;

use crate::processes::{HOLDS_AT, Process, WRITES_TO, as_holder, in_parent, writes};
use crate::servers::Server;
use crate::{client_at, until};

/// No test lasts that long: only the clock's jump can end it.
const LONG: Duration = Duration::from_secs(300);
/// How long the machine sleeps, in milliseconds.
const ASLEEP: &str = "3600000";

/// Writes whenever it is told to, under its lease.
async fn write_when_told(_: Client, options: Options) {
    let address = std::env::var(HOLDS_AT).expect("it was told where");
    // A session lives for as long as its leases.
    let client = client_at(&address, Options { session: LONG, ..options });
    let guard = client.lock("a").ttl(LONG).acquire().await.expect("it is free");
    let path = std::env::var_os(WRITES_TO).expect("it was told where");
    let (tell, mut told) = unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    println!("@held");
    let stopped = guard.run(|_| async move {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
        while told.recv().await.is_some() {
            file.write_all(b"write\n").expect("there is room");
        }
    });
    match stopped.await {
        Ok(()) => println!("@stopped by nobody"),
        Err(Stopped::Suspended) => println!("@stopped suspended"),
        Err(Stopped::Lost(loss)) => println!("@stopped {loss}"),
    }
}

#[test]
fn a_holder_whose_machine_slept_past_its_deadline_stops_before_the_next_write() {
    if as_holder(write_when_told) {
        return;
    }
    in_parent(async {
        let (server, directory) = (Server::start(), tempfile::tempdir().expect("a directory"));
        let (file, slept) = (directory.path().join("writes"), directory.path().join("slept"));
        let name = "asleep::a_holder_whose_machine_slept_past_its_deadline_stops_before_the_next_write";
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.stdin(Stdio::piped()).env(SLEPT, &slept);
        let mut holder = Process::again(command, name, &server, &file);
        let mut orders = holder.child.stdin.take().expect("it is piped");
        holder.says("@held");
        orders.write_all(b"write\n").expect("it listens");
        until(async || writes(&file) == 1).await;

        // It stands still, a write is due when it goes on, and no clock has jumped: the lease is its own, and it writes.
        holder.signal("STOP");
        orders.write_all(b"write\n").expect("there is room");
        holder.signal("CONT");
        until(async || writes(&file) == 2).await;

        // The same, and the machine slept.
        holder.signal("STOP");
        orders.write_all(b"write\n").expect("there is room");
        std::fs::write(&slept, ASLEEP).expect("there is room");
        holder.signal("CONT");
        assert_eq!(holder.says("@stopped"), "suspended");
        assert!(holder.child.wait().expect("it ends").success());
        assert_eq!(writes(&file), 2, "it wrote after its machine had slept");
    });
}
