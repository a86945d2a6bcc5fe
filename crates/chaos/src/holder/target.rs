//! How a holder writes: to a fenced log, to a fenced table, and to an unfenced twin that takes everything.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use leasehold_fence::Error;
use leasehold_fence::file::Log;
use leasehold_fence::postgres::Fence;
use leasehold_sim::ask::EXCLUSIVE;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

use super::Part;
use crate::machine::postgres::{DATABASE, USER};
use crate::said::{Voice, What};

/// How long a write is waited for before its holder goes on.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long somebody else may be inside a target.
const INSIDE: Duration = Duration::from_millis(1_500);

/// The kinds of targets; each has one for each resource, and they are numbered through in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A fenced log.
    File,
    /// A fenced table.
    Postgres,
    /// An unfenced log.
    Twin,
}

impl Kind {
    /// The number of the target of a resource.
    pub const fn target(self, resource: usize) -> u32 {
        (self as u32) * EXCLUSIVE.len() as u32 + resource as u32
    }

    /// Which kind a target is.
    pub const fn of(target: u32) -> Self {
        match target / EXCLUSIVE.len() as u32 {
            0 => Self::File,
            1 => Self::Postgres,
            _ => Self::Twin,
        }
    }
}

/// What is written: it can be found again by who reads the bytes past the fence.
pub fn entry(number: u64, who: u32, op: u64) -> String {
    format!("[[{number} {who} {op}]]\n")
}

/// The fenced log of a resource.
pub fn log(files: &Path, resource: usize) -> PathBuf {
    files.join(format!("{resource}.log"))
}

/// Its unfenced twin.
pub fn twin(files: &Path, resource: usize) -> PathBuf {
    files.join(format!("{resource}.twin"))
}

/// The resource's name, checked.
pub fn name(resource: usize) -> Name<'static> {
    Name::parse(EXCLUSIVE[resource]).expect("a good name")
}

/// A holder's way to its targets.
pub struct Targets {
    who: u32,
    cluster: Cluster,
    files: PathBuf,
    postgres: (String, u16),
    db: Option<Client>,
    logs: Vec<Option<Log>>,
    ttl: Duration,
    fenced: bool,
    voice: Rc<RefCell<Voice>>,
    op: Rc<Cell<u64>>,
}

impl Targets {
    pub fn new(part: &Part, voice: Rc<RefCell<Voice>>, op: Rc<Cell<u64>>) -> Self {
        Self {
            who: part.who,
            cluster: part.cluster.parse().expect("the run knows its cluster"),
            files: part.files.clone(),
            postgres: part.postgres.clone(),
            db: None,
            logs: EXCLUSIVE.iter().map(|_| None).collect(),
            ttl: Duration::from_millis(part.ttl),
            fenced: part.fenced,
            voice,
            op,
        }
    }

    /// Shows the token everywhere before anything is read.
    pub async fn claim(&mut self, resource: usize, number: Number, token: &str) {
        if self.fenced {
            let op = self.sends(Kind::File, resource, number, false);
            let answer = self.log(resource).and_then(|log| log.claim(token)).map(drop);
            self.told(op, answer);
            let op = self.sends(Kind::Postgres, resource, number, false);
            let fence = self.fence(resource);
            let answer = match self.db().await {
                Ok(db) => within(async { fence.claim(db, token).await.map(drop) }).await,
                Err(error) => Err(error),
            };
            self.told_by_postgres(op, answer);
        }
    }

    /// Writes everywhere, whatever this holder knows of its lease.
    pub async fn write(&mut self, resource: usize, number: Number, token: &str) {
        let who = self.who;
        if self.fenced {
            let op = self.sends(Kind::File, resource, number, true);
            let bytes = entry(number.get(), who, op);
            let answer = self.log(resource).and_then(|log| log.append(token, bytes.as_bytes())).map(drop);
            self.told(op, answer);
        }
        let op = self.sends(Kind::Twin, resource, number, true);
        let bytes = entry(number.get(), who, op);
        let twin = OpenOptions::new().create(true).append(true).open(twin(&self.files, resource));
        let answer = twin.and_then(|mut twin| twin.write_all(bytes.as_bytes())).map_err(Error::from);
        self.told(op, answer);
        if self.fenced {
            let op = self.sends(Kind::Postgres, resource, number, true);
            let (fence, left) = (self.fence(resource), self.ttl);
            let answer = match self.db().await {
                Ok(db) => within(put(db, &fence, token, left, resource, number, who, op)).await,
                Err(error) => Err(error),
            };
            self.told_by_postgres(op, answer);
        }
    }

    fn sends(&self, kind: Kind, resource: usize, number: Number, value: bool) -> u64 {
        self.op.set(self.op.get() + 1);
        let (op, target) = (self.op.get(), kind.target(resource));
        self.voice.borrow_mut().say(What::Sends { op, target, number: number.get(), value });
        op
    }

    fn told(&self, op: u64, answer: Result<(), Error>) {
        let what = match answer {
            Ok(()) => What::Written { op },
            Err(Error::Refused(refusal)) => What::Stopped { op, code: refusal.code().to_owned() },
            Err(other) => What::Lost { op, why: other.to_string() },
        };
        self.voice.borrow_mut().say(what);
    }

    fn told_by_postgres(&mut self, op: u64, answer: Result<(), Error>) {
        // What was not refused in so many words may be under way: that connection is not used again.
        if !matches!(answer, Ok(()) | Err(Error::Refused(_))) {
            self.db = None;
        }
        self.told(op, answer);
    }

    fn fence(&self, resource: usize) -> Fence {
        Fence::new(self.cluster, name(resource), 0).patience(INSIDE)
    }

    fn log(&mut self, resource: usize) -> Result<&mut Log, Error> {
        let log = &mut self.logs[resource];
        match log {
            Some(log) => Ok(log),
            None => {
                let opened = Log::open(&self::log(&self.files, resource), self.cluster, name(resource), 0)?;
                Ok(log.insert(opened.patience(INSIDE)))
            }
        }
    }

    async fn db(&mut self) -> Result<&mut Client, Error> {
        if self.db.is_none() {
            let (host, port) = &self.postgres;
            let mut config = Config::new();
            config.host(host).port(*port).user(USER).dbname(DATABASE);
            let connected = within(async { config.connect(NoTls).await.map_err(Error::from) }).await;
            let (client, connection) = connected?;
            // It ends with the client, or with an error that the client's own calls tell.
            tokio::spawn(connection);
            self.db = Some(client);
        }
        self.db.as_mut().ok_or(Error::Misplaced("just connected"))
    }
}

#[allow(clippy::too_many_arguments, reason = "a row has these columns")]
async fn put(
    db: &mut Client,
    fence: &Fence,
    token: &str,
    left: Duration,
    resource: usize,
    number: Number,
    who: u32,
    op: u64,
) -> Result<(), Error> {
    let column = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let row: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&column(resource as u64), &column(number.get()), &column(who.into()), &column(op)];
    // Every second write is one statement with the check folded in, the others are transactions.
    if op.is_multiple_of(2) {
        let columns = "$4::bigint, $5::bigint, $6::bigint, $7::bigint";
        let insert =
            format!("INSERT INTO written (resource, number, who, op) SELECT {columns} WHERE {}", Fence::FOLDED);
        let folded = db.prepare(&insert).await?;
        return match fence.execute(db, token, &folded, &row).await? {
            1 => Ok(()),
            _ => Err(Error::Misplaced("a statement that was admitted wrote nothing")),
        };
    }
    let tx = db.transaction().await?;
    fence.admit(&tx, token, left).await?;
    tx.execute("INSERT INTO written (resource, number, who, op) VALUES ($1, $2, $3, $4)", &row).await?;
    Ok(tx.commit().await?)
}

async fn within<T>(what: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = || std::io::Error::other("no answer in time");
    timeout(PATIENCE, what).await.unwrap_or_else(|_| Err(late().into()))
}
