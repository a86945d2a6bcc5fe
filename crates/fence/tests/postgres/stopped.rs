//! Holders that are real processes, really stopped: with a write in flight, and inside an open transaction (F8).

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::database::{Database, LONG, put};
use crate::support::token;

/// A holder that is psql, in a process of its own.
struct Holder {
    process: Child,
    orders: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(base: &Database) -> Self {
        let mut process = Command::new("stdbuf")
            .args(["-oL", "psql", "-X", "-q", "-A", "-t", "-U", "leasehold", "-h"])
            .arg(base.server.socket())
            .arg(&base.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql can be started; ./test installs it");
        let orders = process.stdin.take().expect("it was piped");
        let says = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        Self { process, orders, says }
    }

    fn order(&mut self, script: &str) {
        writeln!(self.orders, "{script}").expect("it listens");
    }

    /// Waits until it says this.
    fn says(&mut self, wanted: &str) {
        let found = self.says.by_ref().map(|line| line.expect("text")).any(|line| line.contains(wanted));
        assert!(found, "it never said {wanted}");
    }

    /// Stops it, and waits until the kernel says that it stands.
    fn stop(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).expect("it is our child");
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("it is our child");
    }

    fn go_on(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).expect("it is our child");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended already; nobody is left behind either way.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn begin(number: u64, left: &str) -> String {
    let token = token(number);
    format!(
        "BEGIN; SELECT leasehold.admit('{token}', 'jobs/settle', remaining => '{left}') AS admitted \\gset\n\
         INSERT INTO written (number) VALUES ({number}); \\echo inside"
    )
}

const ASK: &str = "\\echo ended :SQLSTATE";

#[tokio::test]
async fn a_stopped_holder_with_a_write_in_flight_is_refused_when_it_goes_on() {
    for forced in [false, true] {
        let base = Database::new().await;
        base.fence.claim(&base.db, &token(33)).await.expect("the predecessor claims");
        if forced {
            base.fence.protect(&base.db, "written").await.expect("protected");
        }
        let mut old = Holder::start(&base);
        old.order("\\echo ready");
        old.says("ready");
        old.stop();
        // It lies in the pipe of one who is stopped.
        old.order(&format!("{}\nCOMMIT; {ASK}", begin(33, "1 h")));
        let mut new = base.connect().await;
        base.fence.claim(&new, &token(34)).await.expect("the successor claims");
        base.write(&mut new, 34).await.expect("and writes");
        old.go_on();
        old.says("ended");
        assert_eq!(base.written().await, [34], "forced: {forced}");
    }
}

#[tokio::test]
async fn a_holder_stopped_inside_its_transaction_lets_its_successor_in_within_two_seconds() {
    // Its lease ends: the server ends it. Or it has a long lease, and the claim ends it.
    for (left, evicting) in [("200 ms", false), ("1 h", true)] {
        let base = Database::new().await;
        base.fence.claim(&base.db, &token(33)).await.expect("the predecessor claims");
        base.fence.protect(&base.db, "written").await.expect("protected");
        let mut old = Holder::start(&base);
        old.order(&begin(33, left));
        old.says("inside");
        old.stop();

        let new = base.connect().await;
        let claim = base.fence.clone();
        let claimed = if evicting {
            // As long again to see them gone.
            claim.patience(Duration::from_secs(1)).evicting().claim(&new, &token(34)).await
        } else {
            claim.patience(Duration::from_secs(2)).claim(&new, &token(34)).await
        };
        claimed.unwrap_or_else(|error| panic!("{left}: {error}"));
        assert_eq!(base.written().await, [] as [u64; 0], "{left}: the successor reads nothing of it");
        old.order(&format!("COMMIT; {ASK}"));
        old.go_on();
        old.says.by_ref().for_each(drop);
        assert_eq!(base.written().await, [] as [u64; 0], "{left}: the late commit fails");
        let mut new = new;
        let tx = new.transaction().await.expect("begun");
        base.fence.admit(&tx, &token(34), LONG).await.expect("admitted");
        put(&tx, 34).await.expect("written");
        tx.commit().await.expect("committed");
        assert_eq!(base.written().await, [34], "{left}");
    }
}
