//! The scenario: the first machine stops in the middle of its batch, the second takes over, and then the first one's rows arrive.

use std::fs;
use std::path::Path;

use crate::process::{Machine, ScenarioProcess};
use crate::server::ScenarioServer;
use crate::targets::{PaymentAudit, SettlementTargets};
use crate::{AnyError, OWED};

/// Rows that the first machine settles before it stops.
const HALF: usize = OWED.len() / 2;
const TTL_MS: &str = "2000";

/// Runs the settlement without and with fences. Returns whether both ended as expected.
pub fn run(dir: &Path) -> Result<bool, AnyError> {
    fs::create_dir_all(dir)?;
    let unfenced = settle(&dir.join("unfenced"), false)?;
    let fenced = settle(&dir.join("fenced"), true)?;
    Ok(unfenced && fenced)
}

fn settle(dir: &Path, fenced: bool) -> Result<bool, AnyError> {
    fs::create_dir(dir).map_err(|error| format!("{}: {error}; name a new directory", dir.display()))?;
    println!("{}", if fenced { "\nWith fences" } else { "Without fences" });
    let server = ScenarioServer::start()?;
    let cluster = server.cluster.to_string();
    SettlementTargets::create(dir, fenced, server.cluster)?;
    let machine = |name: &str| Machine::start(name, dir, fenced, &server.address, &cluster, TTL_MS);

    let mut first = machine("first")?;
    let token = first.worker.expect_line("granted")?;
    first.worker.expect_line("read")?;
    println!("  first    holds the lease, token {token}; {} merchants are owed", OWED.len());
    // Started in turn, so that their order in the queue is known.
    let mut second = machine("second")?;
    server.wait_for_waiters(1)?;
    let mut third = machine("third")?;
    server.wait_for_waiters(2)?;
    println!("  second and third wait for it");

    permit(&mut first.relay, HALF)?;
    for _ in 0..HALF {
        first.relay.expect_line("settled")?;
    }
    let sent: usize = first.worker.expect_line("sent")?.parse()?;
    first.stop()?;
    println!(
        "  first    has sent {sent} rows; {HALF} are settled, the others are in a socket buffer. Its machine stops"
    );
    permit(&mut first.relay, OWED.len() - HALF)?;

    let token = second.worker.expect_line("granted")?;
    let read = second.worker.expect_line("read")?;
    println!("  second   is granted the lease, token {token}; it reads that {read} are settled and settles the others");
    let rows: usize = second.worker.expect_line("sent")?.parse()?;
    permit(&mut second.relay, rows)?;
    for _ in 0..rows {
        second.relay.expect_line("settled")?;
    }

    first.resume()?;
    println!("  first    continues: its rows arrive");
    let mut refused = 0;
    for _ in HALF..OWED.len() {
        let line = first.relay.next_line()?;
        if line.starts_with("refused STALE_TOKEN") {
            refused += 1;
        } else if !line.starts_with("settled") {
            return Err(format!("unexpected output of the relay: {line:?}").into());
        }
    }
    println!("  {refused} late rows are refused, {} are written", OWED.len() - HALF - refused);
    first.worker.send("state")?;
    println!("  first    checks its lease now, too late for its rows: held {}", first.worker.expect_line("held")?);

    second.worker.send("release")?;
    second.worker.expect_line("released")?;
    third.worker.expect_line("granted")?;
    println!("  third    is next and finds {} settled: nothing is left to do", third.worker.expect_line("read")?);
    third.worker.expect_line("sent 0")?;
    judge(&PaymentAudit::read(dir, fenced, server.cluster)?, fenced, refused)
}

fn permit(relay: &mut ScenarioProcess, rows: usize) -> Result<(), AnyError> {
    (0..rows).try_for_each(|_| relay.send("go"))
}

fn judge(audit: &PaymentAudit, fenced: bool, refused: usize) -> Result<bool, AnyError> {
    let reconciled = audit.table == audit.events && audit.table.len() == OWED.len();
    let (paid_twice, overpaid) = (audit.paid_twice(), audit.overpaid());
    println!("  table and event log reconciled: {}", if reconciled { "no difference" } else { "A DIFFERENCE" });
    println!("  the bank: {paid_twice} merchants were paid twice, {}.{:02} too much", overpaid / 100, overpaid % 100);
    let late = OWED.len() - HALF;
    let paid_all = audit.bank.len() == OWED.len();
    let counts = if fenced { (late, 0) } else { (0, late) };
    let expected = reconciled && paid_all && (refused, paid_twice) == counts;
    if !expected {
        println!("  This result is unexpected.");
    }
    Ok(expected)
}
