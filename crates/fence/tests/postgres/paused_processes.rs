//! Holders in separate processes that are paused with SIGSTOP: with a pending write, and inside an open transaction (F8).

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testkit::process::TestProcess;

use crate::database::{Database, LONG, put};
use crate::support::token;

/// Starts a holder that runs in a psql process.
fn start_holder(base: &Database) -> TestProcess {
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "psql", "-X", "-q", "-A", "-t", "-U", "leasehold", "-h"]);
    command.arg(base.server.socket()).arg(&base.name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    TestProcess::spawn(&mut command).expect("psql can be started; ./test installs it")
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
        let mut old = start_holder(&base);
        old.send_line("\\echo ready");
        old.stdout().wait_for("ready");
        old.stop();
        // The write waits in the pipe of the paused process.
        old.send_line(&format!("{}\nCOMMIT; {ECHO_STATE}", begin(33, "1 h")));
        let mut new = base.connect().await;
        base.fence.claim(&new, &token(34)).await.expect("the successor claims");
        base.write(&mut new, 34).await.expect("and writes");
        old.resume();
        old.stdout().wait_for("ended");
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
        let mut old = start_holder(&base);
        old.send_line(&begin(33, remaining));
        old.stdout().wait_for("admitted");
        old.stop();

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
        old.send_line(&format!("COMMIT; {ECHO_STATE}"));
        old.resume();
        old.stdout().read_to_end();
        assert_eq!(base.written().await, [] as [u64; 0], "{remaining}: the late commit fails");
        let mut new = new;
        let tx = new.transaction().await.expect("begun");
        base.fence.admit(&tx, &token(34), LONG).await.expect("admitted");
        put(&tx, 34).await.expect("written");
        tx.commit().await.expect("committed");
        assert_eq!(base.written().await, [34], "{remaining}");
    }
}
