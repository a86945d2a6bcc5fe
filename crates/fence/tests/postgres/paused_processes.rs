//! Holders in separate processes that are paused with SIGSTOP: with a pending write, and inside an open transaction (F8).

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::database::{Database, LONG, put};
use crate::support::token;

/// A holder that runs in a psql process.
struct Holder {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
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
        let input = process.stdin.take().expect("it was piped");
        let output = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        Self { process, input, output }
    }

    fn send(&mut self, script: &str) {
        writeln!(self.input, "{script}").expect("written");
    }

    /// Waits for this output.
    fn wait_for(&mut self, wanted: &str) {
        let found = self.output.by_ref().map(|line| line.expect("text")).any(|line| line.contains(wanted));
        assert!(found, "no output {wanted}");
    }

    /// Pauses it, and waits until the kernel reports that it is stopped.
    fn pause(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).expect("it is our child");
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("it is our child");
    }

    fn resume(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).expect("it is our child");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Fails if it has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn begin(number: u64, remaining: &str) -> String {
    let token = token(number);
    format!(
        "BEGIN; SELECT leasehold.admit('{token}', 'jobs/settle', remaining => '{remaining}') AS admitted \\gset\n\
         INSERT INTO written (number) VALUES ({number}); \\echo admitted"
    )
}

const ECHO_STATE: &str = "\\echo ended :SQLSTATE";

#[tokio::test]
async fn a_paused_holder_with_a_pending_write_is_refused_when_it_resumes() {
    for protected in [false, true] {
        let base = Database::new().await;
        base.fence.claim(&base.db, &token(33)).await.expect("the predecessor claims");
        if protected {
            base.fence.protect(&base.db, "written").await.expect("protected");
        }
        let mut old = Holder::start(&base);
        old.send("\\echo ready");
        old.wait_for("ready");
        old.pause();
        // The write waits in the pipe of the paused process.
        old.send(&format!("{}\nCOMMIT; {ECHO_STATE}", begin(33, "1 h")));
        let mut new = base.connect().await;
        base.fence.claim(&new, &token(34)).await.expect("the successor claims");
        base.write(&mut new, 34).await.expect("and writes");
        old.resume();
        old.wait_for("ended");
        assert_eq!(base.written().await, [34], "protected: {protected}");
    }
}

#[tokio::test]
async fn the_successor_of_a_holder_paused_inside_its_transaction_claims_within_two_seconds() {
    // The lease ends, so the server ends the transaction; or the lease is long, and the claim terminates the backend.
    for (remaining, terminate) in [("200 ms", false), ("1 h", true)] {
        let base = Database::new().await;
        base.fence.claim(&base.db, &token(33)).await.expect("the predecessor claims");
        base.fence.protect(&base.db, "written").await.expect("protected");
        let mut old = Holder::start(&base);
        old.send(&begin(33, remaining));
        old.wait_for("admitted");
        old.pause();

        let new = base.connect().await;
        let claim = base.fence.clone();
        let claimed = if terminate {
            // It waits for the timeout twice.
            claim.with_claim_timeout(Duration::from_secs(1)).terminate_blockers().claim(&new, &token(34)).await
        } else {
            claim.with_claim_timeout(Duration::from_secs(2)).claim(&new, &token(34)).await
        };
        claimed.unwrap_or_else(|error| panic!("{remaining}: {error}"));
        assert_eq!(base.written().await, [] as [u64; 0], "{remaining}: the successor reads no write of it");
        old.send(&format!("COMMIT; {ECHO_STATE}"));
        old.resume();
        old.output.by_ref().for_each(drop);
        assert_eq!(base.written().await, [] as [u64; 0], "{remaining}: the late commit fails");
        let mut new = new;
        let tx = new.transaction().await.expect("begun");
        base.fence.admit(&tx, &token(34), LONG).await.expect("admitted");
        put(&tx, 34).await.expect("written");
        tx.commit().await.expect("committed");
        assert_eq!(base.written().await, [34], "{remaining}");
    }
}
