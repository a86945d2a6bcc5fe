//! Where a settlement leaves its traces: a table, an event log, and the file of the bank, which knows no tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::file::{Log, Reader};
use leasehold_fence::{Error, Refusal};

use crate::Fault;
use crate::table::Table;

/// What guards the nightly run.
pub const RESOURCE: &str = "settlement/nightly";

/// The targets, as one process has them open.
pub struct Books {
    table: Table,
    events: Events,
    bank: File,
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
        Table::open(dir, fenced, cluster, name())?.create()?;
        File::create(dir.join("bank.csv"))?;
        if fenced {
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
        Ok(Self { table: Table::open(dir, fenced, cluster, name())?, events, bank: append("bank.csv")? })
    }

    /// A new holder's first act, at every target.
    pub fn claim(&mut self, token: &str) -> Result<(), Error> {
        self.table.claim(token)?;
        match &mut self.events {
            Events::Fenced(log) => log.claim(token).map(drop),
            Events::Plain(_) => Ok(()),
        }
    }

    /// Who has been settled.
    pub fn settled(&self) -> Result<BTreeSet<String>, Fault> {
        self.table.settled()
    }

    /// Settles one merchant: the table, the event, and then the bank is told to pay.
    pub fn settle(&mut self, merchant: &str, cents: i64, token: &str, left: Duration) -> Result<Row, Fault> {
        let row = self.table.put(merchant, cents, token, left);
        let written = row.and_then(|()| match &mut self.events {
            Events::Fenced(log) => log.append(token, merchant.as_bytes()).map(drop),
            Events::Plain(file) => Ok(writeln!(file, "{merchant}")?),
        });
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
