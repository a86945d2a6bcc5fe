//! Holders that write to a fenced database, go silent, and write again after their lease: the fence rejects these writes,
//! because a later holder has presented a higher token.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use leasehold_core::token::Token;
use leasehold_fence::sqlite::{Fence, install};
use leasehold_fence::{Error, FenceId, FenceRefusal};
use leasehold_wire::v1;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::history::{self, History};
use crate::transport::{Disconnected, GrpcClient, Reply, connect, reply, within};

/// The resource of the fenced database.
const NAME: &str = "target";
const TTL: Duration = Duration::from_millis(150);
/// Number of earlier holders that still try to write.
const ZOMBIES: usize = 4;

/// A fenced database and its past holders.
pub struct Writer {
    database: Connection,
    _directory: TempDir,
    fence: Option<Fence>,
    history: History,
    requests: u64,
    last: Option<u64>,
    zombies: VecDeque<String>,
    /// Number of rejected writes of zombies.
    pub refused: usize,
}

impl Writer {
    pub fn new(history: History) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut database = Connection::open(directory.path().join("target.db")).expect("a database");
        database.pragma_update(None, "journal_mode", "wal").expect("WAL mode is available");
        database.execute_batch("CREATE TABLE applied (number INTEGER) STRICT").expect("the database is new");
        install(&mut database).expect("the database is new");
        let zombies = VecDeque::new();
        Self { database, _directory: directory, fence: None, history, requests: 0, last: None, zombies, refused: 0 }
    }

    pub async fn recover(&mut self, address: &str) -> Result<GrpcClient, Disconnected> {
        connect(address).await
    }

    /// Runs one holder after the other until the connection breaks.
    pub async fn load(&mut self, mut calls: GrpcClient) -> Disconnected {
        loop {
            if let Err(gone) = self.succeed(&mut calls).await {
                return gone;
            }
        }
    }

    async fn succeed(&mut self, calls: &mut GrpcClient) -> Result<(), Disconnected> {
        self.requests += 1;
        let (floor, from) = (self.history.floor(), Instant::now());
        let request = v1::Acquire {
            resource: NAME.into(),
            holder: "writer".into(),
            ttl_ms: Some(TTL.as_millis() as u64),
            options: Some(v1::AcquireOptions { wait_ms: 60_000, ..Default::default() }),
            ..Default::default()
        };
        let grant = match reply(within(calls.acquire(request)).await, |grant| Reply::Granted(Box::new(grant)))? {
            Reply::Granted(grant) => *grant,
            other => panic!("{NAME}: {other:?}"),
        };
        if let Some(last) = self.last.replace(grant.token_number) {
            self.history.expired(last, Instant::now());
            self.history.ending(NAME, last);
        }
        self.history.granted(NAME, &(NAME.to_owned(), self.requests), grant.token_number, floor);
        self.history.valid_for(grant.token_number, from, TTL);
        self.write(&grant);
        Ok(())
    }

    /// The new holder claims; then the zombies try to write, and the holder writes.
    fn write(&mut self, grant: &v1::Grant) {
        let fence = self.fence.get_or_insert_with(|| {
            let token: Token = grant.token.parse().expect("a valid token");
            let fence = Fence::new(&FenceId::new(token.cluster, NAME).expect("a name"));
            fence.arm(&mut self.database).expect("the fence is not armed yet");
            fence
        });
        fence.claim(&mut self.database, &grant.token).expect("the newest token is the highest (T1)");
        for zombie in &self.zombies {
            let reply = apply(fence, &mut self.database, zombie);
            assert!(
                matches!(reply, Err(Error::Refused(FenceRefusal::Stale { .. }))),
                "a zombie's write: {reply:?} (F1)"
            );
            self.refused += 1;
        }
        apply(fence, &mut self.database, &grant.token).expect("the holder has claimed");
        self.zombies.push_back(grant.token.clone());
        self.zombies.drain(..self.zombies.len().saturating_sub(ZOMBIES));
    }

    /// Number of applied writes. Checks that their tokens never decrease.
    pub fn applied(&self) -> usize {
        let mut rows = self.database.prepare("SELECT number FROM applied ORDER BY rowid").expect("the table exists");
        let applied: Vec<u64> = rows
            .query_map([], |row| row.get::<_, i64>(0))
            .expect("the table is readable")
            .map(|number| number.expect("a number").unsigned_abs())
            .collect();
        history::assert_never_decreases(&applied);
        applied.len()
    }
}

fn apply(fence: &Fence, database: &mut Connection, text: &str) -> Result<usize, Error> {
    let token: Token = text.parse().expect("a valid token");
    let number = i64::try_from(token.number.get()).expect("below 2^63");
    fence.write(database, text, |tx| tx.execute("INSERT INTO applied VALUES (?)", [number]))
}
