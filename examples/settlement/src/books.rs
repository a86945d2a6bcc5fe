//! Where a settlement leaves its traces: a table, an event log, and the file of the bank, which knows no tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::file::{Log, Reader};
use leasehold_fence::sqlite::{Fence, install};
use leasehold_fence::{Error, Refusal};
use rusqlite::{Connection, Transaction, params};

use crate::Fault;

/// What guards the nightly run.
pub const RESOURCE: &str = "settlement/nightly";

/// The targets, as one process has them open.
pub struct Books {
    db: Connection,
    events: Events,
    bank: File,
    fence: Fence,
}

enum Events {
    Fenced(Box<Log>),
    Plain(File),
}

/// What became of one row.
#[derive(Debug)]
pub enum Row {
    Settled,
    Refused(Refusal),
}

fn name() -> Name<'static> {
    Name::parse(RESOURCE).expect("it is a name")
}

impl Books {
    pub fn create(dir: &Path, fenced: bool, cluster: Cluster) -> Result<(), Fault> {
        let mut db = database(dir)?;
        // One row for each merchant: settling it again replaces the row, and that looks harmless.
        db.execute_batch("CREATE TABLE settled (merchant TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT")?;
        File::create(dir.join("bank.csv"))?;
        if fenced {
            install(&mut db)?;
            Fence::new(cluster, name(), 0).arm(&mut db)?;
            Log::create(&dir.join("events.log"), cluster, name(), 0)?;
        } else {
            File::create(dir.join("events.log"))?;
        }
        Ok(())
    }

    pub fn open(dir: &Path, fenced: bool, cluster: Cluster) -> Result<Self, Fault> {
        let append = |file: &str| OpenOptions::new().append(true).open(dir.join(file));
        let events = if fenced {
            Events::Fenced(Box::new(Log::open(&dir.join("events.log"), cluster, name(), 0)?))
        } else {
            Events::Plain(append("events.log")?)
        };
        Ok(Self { db: database(dir)?, events, bank: append("bank.csv")?, fence: Fence::new(cluster, name(), 0) })
    }

    /// A new holder's first act, at every target.
    pub fn claim(&mut self, token: &str) -> Result<(), Error> {
        if let Events::Fenced(log) = &mut self.events {
            self.fence.claim(&mut self.db, token)?;
            log.claim(token)?;
        }
        Ok(())
    }

    /// Who has been settled.
    pub fn settled(&self) -> Result<BTreeSet<String>, Fault> {
        let mut rows = self.db.prepare("SELECT merchant FROM settled")?;
        let merchants = rows.query_map([], |row| row.get(0))?;
        Ok(merchants.collect::<Result<_, _>>()?)
    }

    /// Settles one merchant: the table, the event, and then the bank is told to pay.
    pub fn settle(&mut self, merchant: &str, cents: i64, token: &str) -> Result<Row, Fault> {
        let written = match &mut self.events {
            Events::Fenced(log) => {
                let row = self.fence.write(&mut self.db, token, |tx| put(tx, merchant, cents));
                row.and_then(|()| log.append(token, merchant.as_bytes()).map(drop))
            }
            Events::Plain(file) => {
                let tx = self.db.transaction()?;
                put(&tx, merchant, cents)?;
                tx.commit()?;
                writeln!(file, "{merchant}")?;
                Ok(())
            }
        };
        match written {
            Ok(()) => {
                writeln!(self.bank, "{merchant};{cents}")?;
                Ok(Row::Settled)
            }
            Err(Error::Refused(refusal)) => Ok(Row::Refused(refusal)),
            Err(error) => Err(error.into()),
        }
    }
}

fn database(dir: &Path) -> Result<Connection, Fault> {
    let db = Connection::open(dir.join("table.db"))?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.busy_timeout(Duration::from_secs(10))?;
    Ok(db)
}

fn put(tx: &Transaction<'_>, merchant: &str, cents: i64) -> rusqlite::Result<()> {
    tx.execute("INSERT OR REPLACE INTO settled VALUES (?1, ?2)", params![merchant, cents]).map(drop)
}

/// What an auditor finds afterwards.
#[derive(Debug, PartialEq, Eq)]
pub struct Audit {
    /// Merchants in the table.
    pub table: BTreeSet<String>,
    /// Merchants in the event log.
    pub events: BTreeSet<String>,
    /// What the bank paid, credit by credit.
    pub bank: BTreeMap<String, Vec<i64>>,
}

impl Audit {
    pub fn of(dir: &Path, fenced: bool, cluster: Cluster) -> Result<Self, Fault> {
        let table = Books::open(dir, fenced, cluster)?.settled()?;
        let mut events = BTreeSet::new();
        if fenced {
            let mut reader = Reader::open(&dir.join("events.log"), cluster, name(), 0)?;
            while let Some(entry) = reader.next()? {
                events.insert(String::from_utf8(entry.bytes)?);
            }
        } else {
            events.extend(std::fs::read_to_string(dir.join("events.log"))?.lines().map(str::to_owned));
        }
        let mut bank: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for line in std::fs::read_to_string(dir.join("bank.csv"))?.lines() {
            let (merchant, cents) = line.split_once(';').ok_or("a line of the bank's that is not one")?;
            bank.entry(merchant.to_owned()).or_default().push(cents.parse()?);
        }
        Ok(Self { table, events, bank })
    }

    /// Those who were paid more than once.
    pub fn twice(&self) -> usize {
        self.bank.values().filter(|credits| credits.len() > 1).count()
    }

    /// How many cents were paid beyond what was owed.
    pub fn too_much(&self) -> i64 {
        self.bank.values().flat_map(|credits| &credits[1..]).sum()
    }
}
