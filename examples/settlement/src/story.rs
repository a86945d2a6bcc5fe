//! The night: the first machine stops in mid-batch, the second takes over, and then the first one's rows arrive.

use std::fs;
use std::path::Path;

use crate::books::{Audit, Books};
use crate::grantor::Grantor;
use crate::party::{Machine, Party};
use crate::{Fault, OWED};

/// How far the first machine comes.
const HALF: usize = OWED.len() / 2;
const TTL_MS: &str = "2000";

/// Plays both nights; whether each ended as it must.
pub fn play(dir: &Path) -> Result<bool, Fault> {
    fs::create_dir_all(dir)?;
    let unfenced = night(&dir.join("unfenced"), false)?;
    let fenced = night(&dir.join("fenced"), true)?;
    Ok(unfenced && fenced)
}

fn night(dir: &Path, fenced: bool) -> Result<bool, Fault> {
    fs::create_dir(dir).map_err(|error| format!("{}: {error}; name a new directory", dir.display()))?;
    println!("{}", if fenced { "\nWith fences" } else { "Without fences" });
    let grantor = Grantor::start()?;
    let cluster = grantor.cluster.to_string();
    Books::create(dir, fenced, grantor.cluster)?;
    let machine = |name: &str| Machine::start(name, dir, fenced, &grantor.address, &cluster, TTL_MS);

    let mut first = machine("first")?;
    let token = first.worker.says("granted")?;
    first.worker.says("read")?;
    println!("  first    holds the lease, token {token}; {} merchants are owed", OWED.len());
    // One after the other, so that it is known who comes next.
    let mut second = machine("second")?;
    grantor.until_so_many_wait(1)?;
    let mut third = machine("third")?;
    grantor.until_so_many_wait(2)?;
    println!("  second and third wait for it");

    permit(&mut first.wire, HALF)?;
    for _ in 0..HALF {
        first.wire.says("settled")?;
    }
    let sent: usize = first.worker.says("sent")?.parse()?;
    first.stop()?;
    println!(
        "  first    has sent {sent} rows; {HALF} are settled, the rest lies in a socket's buffer. Its machine stops"
    );
    permit(&mut first.wire, OWED.len() - HALF)?;

    let token = second.worker.says("granted")?;
    let read = second.worker.says("read")?;
    println!(
        "  second   is granted the lease, token {token}; it reads that {read} are settled, and settles the others"
    );
    let did: usize = second.worker.says("sent")?.parse()?;
    permit(&mut second.wire, did)?;
    for _ in 0..did {
        second.wire.says("settled")?;
    }

    first.go_on()?;
    println!("  first    goes on: what it had sent arrives");
    let mut refused = 0;
    for _ in HALF..OWED.len() {
        let line = first.wire.next()?;
        if line.starts_with("refused STALE_TOKEN") {
            refused += 1;
        } else if !line.starts_with("settled") {
            return Err(format!("the wire said {line:?}").into());
        }
    }
    println!("  {refused} late rows are refused, {} are written", OWED.len() - HALF - refused);
    first.worker.order("state")?;
    println!("  first    looks now, too late for its rows: held {}", first.worker.says("held")?);

    second.worker.order("release")?;
    second.worker.says("released")?;
    third.worker.says("granted")?;
    println!("  third    is next, and finds {} settled: nothing is left to do", third.worker.says("read")?);
    third.worker.says("sent 0")?;
    judge(&Audit::of(dir, fenced, grantor.cluster)?, fenced, refused)
}

fn permit(wire: &mut Party, rows: usize) -> Result<(), Fault> {
    (0..rows).try_for_each(|_| wire.order("go"))
}

fn judge(audit: &Audit, fenced: bool, refused: usize) -> Result<bool, Fault> {
    let reconciled = audit.table == audit.events && audit.table.len() == OWED.len();
    let (twice, too_much) = (audit.twice(), audit.too_much());
    println!("  table and event log, reconciled: {}", if reconciled { "no difference" } else { "A DIFFERENCE" });
    println!("  the bank: {twice} merchants were paid twice, {}.{:02} too much", too_much / 100, too_much % 100);
    let late = OWED.len() - HALF;
    let paid_all = audit.bank.len() == OWED.len();
    let as_it_must =
        reconciled && paid_all && if fenced { refused == late && twice == 0 } else { refused == 0 && twice == late };
    if !as_it_must {
        println!("  This is not what must happen.");
    }
    Ok(as_it_must)
}
