//! Targets of a settlement: a table, an event log, and the bank's file, which does not check tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use leasehold_fence::file::{FencedLog, LogReader};
use leasehold_fence::{Cluster, Error, FenceId, FenceRefusal};

use crate::AnyError;
use crate::settlement_table::SettlementTable;

/// Resource of the nightly settlement.
pub const RESOURCE: &str = "settlement/nightly";

/// The open targets of one process.
pub struct SettlementTargets {
    table: SettlementTable,
    events: EventLogTarget,
    bank: File,
}

enum EventLogTarget {
    Fenced(Box<FencedLog>),
    Plain(File),
}

/// Outcome of one row.
#[derive(Debug)]
pub enum SettleOutcome {
    Settled,
    Refused(FenceRefusal),
}

fn fence_id(cluster: Cluster) -> FenceId {
    FenceId::new(cluster, RESOURCE).expect("a valid name")
}

impl SettlementTargets {
    pub fn create(dir: &Path, fenced: bool, cluster: Cluster) -> Result<(), AnyError> {
        let id = fence_id(cluster);
        SettlementTable::open(dir, fenced, &id)?.create()?;
        File::create(dir.join("bank.csv"))?;
        if fenced {
            FencedLog::create(&dir.join("events.log"), &id)?;
        } else {
            File::create(dir.join("events.log"))?;
        }
        Ok(())
    }

    pub fn open(dir: &Path, fenced: bool, cluster: Cluster) -> Result<Self, AnyError> {
        let id = fence_id(cluster);
        let append = |file: &str| OpenOptions::new().append(true).open(dir.join(file));
        let events = if fenced {
            EventLogTarget::Fenced(Box::new(FencedLog::open(&dir.join("events.log"), &id)?))
        } else {
            EventLogTarget::Plain(append("events.log")?)
        };
        Ok(Self { table: SettlementTable::open(dir, fenced, &id)?, events, bank: append("bank.csv")? })
    }

    /// Claims every target; a new holder does this first.
    pub fn claim(&mut self, token: &str) -> Result<(), Error> {
        self.table.claim(token)?;
        match &mut self.events {
            EventLogTarget::Fenced(log) => log.claim(token).map(drop),
            EventLogTarget::Plain(_) => Ok(()),
        }
    }

    /// Merchants that are settled.
    pub fn settled(&self) -> Result<BTreeSet<String>, AnyError> {
        self.table.settled()
    }

    /// Settles one merchant: writes the table and the event, then instructs the bank.
    pub fn settle(
        &mut self,
        merchant: &str,
        cents: i64,
        token: &str,
        remaining: Duration,
    ) -> Result<SettleOutcome, AnyError> {
        let row = self.table.put(merchant, cents, token, remaining);
        let written = row.and_then(|()| match &mut self.events {
            EventLogTarget::Fenced(log) => log.append(token, merchant.as_bytes()).map(drop),
            EventLogTarget::Plain(file) => Ok(writeln!(file, "{merchant}")?),
        });
        match written {
            Ok(()) => {
                writeln!(self.bank, "{merchant};{cents}")?;
                Ok(SettleOutcome::Settled)
            }
            Err(Error::Refused(refusal)) => Ok(SettleOutcome::Refused(refusal)),
            Err(error) => Err(error.into()),
        }
    }
}

/// What an auditor finds afterward.
#[derive(Debug, PartialEq, Eq)]
pub struct PaymentAudit {
    /// Merchants in the table.
    pub table: BTreeSet<String>,
    /// Merchants in the event log.
    pub events: BTreeSet<String>,
    /// Payments of the bank by merchant.
    pub bank: BTreeMap<String, Vec<i64>>,
}

impl PaymentAudit {
    pub fn read(dir: &Path, fenced: bool, cluster: Cluster) -> Result<Self, AnyError> {
        let table = SettlementTargets::open(dir, fenced, cluster)?.settled()?;
        let mut events = BTreeSet::new();
        if fenced {
            let mut reader = LogReader::open(&dir.join("events.log"), &fence_id(cluster))?;
            while let Some(entry) = reader.next()? {
                events.insert(String::from_utf8(entry.bytes)?);
            }
        } else {
            events.extend(std::fs::read_to_string(dir.join("events.log"))?.lines().map(str::to_owned));
        }
        let mut bank: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for line in std::fs::read_to_string(dir.join("bank.csv"))?.lines() {
            let (merchant, cents) = line.split_once(';').ok_or("invalid line in the bank's file")?;
            bank.entry(merchant.to_owned()).or_default().push(cents.parse()?);
        }
        Ok(Self { table, events, bank })
    }

    /// Number of merchants that were paid more than once.
    pub fn paid_twice(&self) -> usize {
        self.bank.values().filter(|credits| credits.len() > 1).count()
    }

    /// Cents paid beyond the amounts owed.
    pub fn overpaid(&self) -> i64 {
        self.bank.values().flat_map(|credits| &credits[1..]).sum()
    }
}
