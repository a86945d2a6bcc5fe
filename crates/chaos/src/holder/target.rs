//! A holder's targets: a fenced log, a fenced table, and an unfenced twin that accepts every write.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::token::{Cluster, Number};
use leasehold_fence::file::FencedLog;
use leasehold_fence::postgres::Fence;
use leasehold_fence::{Error, FenceId};
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

use super::HolderArgs;
use crate::holder_log::{EventLog, LoggedEvent};
use leasehold_sim::run_constants::EXCLUSIVE;
use leasehold_testkit::postgres::{DATABASE, USER};

/// Time after which the holder continues without the result of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// Claim timeout of the fences.
const CLAIM_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Kinds of targets. There is one of each kind per resource, numbered consecutively in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A fenced log.
    File,
    /// A fenced table.
    Postgres,
    /// An unfenced log.
    Twin,
}

impl TargetKind {
    /// Number of the target of a resource.
    pub const fn target(self, resource: usize) -> u32 {
        (self as u32) * EXCLUSIVE.len() as u32 + resource as u32
    }

    /// Kind of a target.
    pub const fn of(target: u32) -> Self {
        match target / EXCLUSIVE.len() as u32 {
            0 => Self::File,
            1 => Self::Postgres,
            _ => Self::Twin,
        }
    }
}

/// Text of a write, which can be found in the raw bytes of a target.
pub fn entry(number: u64, holder: u32, op: u64) -> String {
    format!("[[{number} {holder} {op}]]\n")
}

/// The fenced log of a resource.
pub fn log(files: &Path, resource: usize) -> PathBuf {
    files.join(format!("{resource}.log"))
}

/// Its unfenced twin.
pub fn twin(files: &Path, resource: usize) -> PathBuf {
    files.join(format!("{resource}.twin"))
}

/// The id of the fences of a resource.
pub fn fence_id(cluster: Cluster, resource: usize) -> FenceId {
    FenceId::new(cluster, EXCLUSIVE[resource]).expect("a valid name")
}

/// A holder's connections to its targets.
pub struct Targets {
    holder: u32,
    cluster: Cluster,
    files: PathBuf,
    postgres: (String, u16),
    db: Option<Client>,
    logs: Vec<Option<FencedLog>>,
    ttl: Duration,
    fenced: bool,
    events: Rc<RefCell<EventLog>>,
    op: Rc<Cell<u64>>,
}

impl Targets {
    pub fn new(args: &HolderArgs, events: Rc<RefCell<EventLog>>, op: Rc<Cell<u64>>) -> Self {
        Self {
            holder: args.holder,
            cluster: args.cluster.parse().expect("the run knows its cluster"),
            files: args.files.clone(),
            postgres: args.postgres.clone(),
            db: None,
            logs: EXCLUSIVE.iter().map(|_| None).collect(),
            ttl: Duration::from_millis(args.ttl),
            fenced: args.fenced,
            events,
            op,
        }
    }

    /// Claims all targets, before anything is read.
    pub async fn claim(&mut self, resource: usize, number: Number, token: &str) {
        if self.fenced {
            let op = self.log_send(TargetKind::File, resource, number, false);
            let answer = self.log(resource).and_then(|log| log.claim(token)).map(drop);
            self.log_result(op, answer);
            let op = self.log_send(TargetKind::Postgres, resource, number, false);
            let fence = self.fence(resource);
            let answer = match self.db().await {
                Ok(db) => with_timeout(async { fence.claim(db, token).await.map(drop) }).await,
                Err(error) => Err(error),
            };
            self.log_postgres_result(op, answer);
        }
    }

    /// Writes to all targets, whatever the holder knows about its lease.
    pub async fn write(&mut self, resource: usize, number: Number, token: &str) {
        let holder = self.holder;
        if self.fenced {
            let op = self.log_send(TargetKind::File, resource, number, true);
            let bytes = entry(number.get(), holder, op);
            let answer = self.log(resource).and_then(|log| log.append(token, bytes.as_bytes())).map(drop);
            self.log_result(op, answer);
        }
        let op = self.log_send(TargetKind::Twin, resource, number, true);
        let bytes = entry(number.get(), holder, op);
        let twin = OpenOptions::new().create(true).append(true).open(twin(&self.files, resource));
        let answer = twin.and_then(|mut twin| twin.write_all(bytes.as_bytes())).map_err(Error::from);
        self.log_result(op, answer);
        if self.fenced {
            let op = self.log_send(TargetKind::Postgres, resource, number, true);
            let (fence, remaining) = (self.fence(resource), self.ttl);
            let answer = match self.db().await {
                Ok(db) => with_timeout(insert(db, &fence, token, remaining, resource, number, holder, op)).await,
                Err(error) => Err(error),
            };
            self.log_postgres_result(op, answer);
        }
    }

    fn log_send(&self, kind: TargetKind, resource: usize, number: Number, value: bool) -> u64 {
        self.op.set(self.op.get() + 1);
        let (op, target) = (self.op.get(), kind.target(resource));
        self.events.borrow_mut().append(LoggedEvent::WriteSent { op, target, number: number.get(), value });
        op
    }

    fn log_result(&self, op: u64, answer: Result<(), Error>) {
        let event = match answer {
            Ok(()) => LoggedEvent::WriteAcknowledged { op },
            Err(Error::Refused(refusal)) => LoggedEvent::WriteRefused { op, code: refusal.code().to_owned() },
            Err(other) => LoggedEvent::WriteUnknown { op, error: other.to_string() },
        };
        self.events.borrow_mut().append(event);
    }

    fn log_postgres_result(&mut self, op: u64, answer: Result<(), Error>) {
        // Unless it was explicitly refused, the operation may still be in progress, so the connection is not reused.
        if !matches!(answer, Ok(()) | Err(Error::Refused(_))) {
            self.db = None;
        }
        self.log_result(op, answer);
    }

    fn fence(&self, resource: usize) -> Fence {
        Fence::new(&fence_id(self.cluster, resource)).with_claim_timeout(CLAIM_TIMEOUT)
    }

    fn log(&mut self, resource: usize) -> Result<&mut FencedLog, Error> {
        let log = &mut self.logs[resource];
        match log {
            Some(log) => Ok(log),
            None => {
                let opened = FencedLog::open(&self::log(&self.files, resource), &fence_id(self.cluster, resource))?;
                Ok(log.insert(opened.with_claim_timeout(CLAIM_TIMEOUT)))
            }
        }
    }

    async fn db(&mut self) -> Result<&mut Client, Error> {
        if self.db.is_none() {
            let (host, port) = &self.postgres;
            let mut config = Config::new();
            config.host(host).port(*port).user(USER).dbname(DATABASE);
            let connected = with_timeout(async { config.connect(NoTls).await.map_err(Error::from) }).await;
            let (client, connection) = connected?;
            // The task ends with the client; errors surface in the client's calls.
            tokio::spawn(connection);
            self.db = Some(client);
        }
        self.db.as_mut().ok_or(Error::InvalidArgument("just connected"))
    }
}

#[allow(clippy::too_many_arguments, reason = "a row has these columns")]
async fn insert(
    db: &mut Client,
    fence: &Fence,
    token: &str,
    remaining: Duration,
    resource: usize,
    number: Number,
    holder: u32,
    op: u64,
) -> Result<(), Error> {
    let column = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let row: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&column(resource as u64), &column(number.get()), &column(holder.into()), &column(op)];
    // Every second write is one statement with an inline check; the others are transactions.
    if op.is_multiple_of(2) {
        let columns = "$4::bigint, $5::bigint, $6::bigint, $7::bigint";
        let check = Fence::inline_check(1);
        let insert = format!("INSERT INTO written (resource, number, holder, op) SELECT {columns} WHERE {check}");
        let statement = db.prepare(&insert).await?;
        return match fence.write(db, token, &statement, &row).await? {
            1 => Ok(()),
            _ => Err(Error::InvalidArgument("an admitted statement wrote nothing")),
        };
    }
    let tx = db.transaction().await?;
    fence.admit(&tx, token, remaining).await?;
    tx.execute("INSERT INTO written (resource, number, holder, op) VALUES ($1, $2, $3, $4)", &row).await?;
    Ok(tx.commit().await?)
}

async fn with_timeout<T>(event: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = || std::io::Error::other("no reply in time");
    timeout(WRITE_TIMEOUT, event).await.unwrap_or_else(|_| Err(late().into()))
}
