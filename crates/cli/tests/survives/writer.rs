//! Holders that write to a fenced database, fall silent, and write on when their time is over: whoever was granted later
//! has shown a higher token there, and nothing of theirs is applied any more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use leasehold_core::name::Name;
use leasehold_core::token::Token;
use leasehold_fence::sqlite::{Fence, install};
use leasehold_fence::{Error, Refusal};
use leasehold_wire::v1;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::history::{self, History};
use crate::link::{Calls, Gone, Told, connect, told, within};

/// What they all write to.
const NAME: &str = "target";
const TTL: Duration = Duration::from_millis(150);
/// Earlier holders that still try.
const ZOMBIES: usize = 4;

/// A fenced database and those who held its name.
pub struct Writer {
    database: Connection,
    _directory: TempDir,
    fence: Option<Fence>,
    history: History,
    asked: u64,
    last: Option<u64>,
    zombies: VecDeque<String>,
    /// Writes of zombies that were refused.
    pub refused: usize,
}

impl Writer {
    /// Nobody has written yet.
    pub fn new(history: History) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut database = Connection::open(directory.path().join("target.db")).expect("a database");
        database.pragma_update(None, "journal_mode", "wal").expect("it is a file");
        database.execute_batch("CREATE TABLE applied (number INTEGER) STRICT").expect("it is new");
        install(&mut database).expect("it is new");
        let zombies = VecDeque::new();
        Self { database, _directory: directory, fence: None, history, asked: 0, last: None, zombies, refused: 0 }
    }

    /// Comes back.
    pub async fn recover(&mut self, address: &str) -> Result<Calls, Gone> {
        connect(address).await
    }

    /// One holder after the other, until the connection breaks.
    pub async fn load(&mut self, mut calls: Calls) -> Gone {
        loop {
            if let Err(gone) = self.succeed(&mut calls).await {
                return gone;
            }
        }
    }

    async fn succeed(&mut self, calls: &mut Calls) -> Result<(), Gone> {
        self.asked += 1;
        let (floor, from) = (self.history.floor(), Instant::now());
        let ask = v1::Acquire {
            resource: NAME.into(),
            holder: "writer".into(),
            ttl_ms: Some(TTL.as_millis() as u64),
            terms: Some(v1::Terms { wait_ms: 60_000, ..Default::default() }),
            ..Default::default()
        };
        let grant = match told(within(calls.acquire(ask)).await, |grant| Told::Granted(Box::new(grant)))? {
            Told::Granted(grant) => *grant,
            other => panic!("{NAME}: {other:?}"),
        };
        if let Some(last) = self.last.replace(grant.token_number) {
            self.history.ran_out(last, Instant::now());
            self.history.ending(NAME, last);
        }
        self.history.granted(NAME, &(NAME.to_owned(), self.asked), grant.token_number, floor);
        self.history.lasts(grant.token_number, from, TTL);
        self.write(&grant);
        Ok(())
    }

    /// The new holder claims; then the old ones try, and it writes.
    fn write(&mut self, grant: &v1::Grant) {
        let fence = self.fence.get_or_insert_with(|| {
            let token: Token = grant.token.parse().expect("a token's text");
            let fence = Fence::new(token.cluster, Name::parse(NAME).expect("a name"), 0);
            fence.arm(&mut self.database).expect("nobody armed it before");
            fence
        });
        fence.claim(&mut self.database, &grant.token).expect("the newest holder's token is the highest (T1)");
        for zombie in &self.zombies {
            let told = apply(fence, &mut self.database, zombie);
            assert!(matches!(told, Err(Error::Refused(Refusal::Stale { .. }))), "a zombie's write: {told:?} (F1)");
            self.refused += 1;
        }
        apply(fence, &mut self.database, &grant.token).expect("it holds, and has claimed");
        self.zombies.push_back(grant.token.clone());
        self.zombies.drain(..self.zombies.len().saturating_sub(ZOMBIES));
    }

    /// What was applied, in order, by number. The tokens never fell.
    pub fn applied(&self) -> usize {
        let mut rows = self.database.prepare("SELECT number FROM applied ORDER BY rowid").expect("it is there");
        let applied: Vec<u64> = rows
            .query_map([], |row| row.get::<_, i64>(0))
            .expect("it is read")
            .map(|number| number.expect("a number").unsigned_abs())
            .collect();
        history::never_falls(&applied);
        applied.len()
    }
}

fn apply(fence: &Fence, database: &mut Connection, text: &str) -> Result<usize, Error> {
    let token: Token = text.parse().expect("a token's text");
    let number = i64::try_from(token.number.get()).expect("below 2^63");
    fence.write(database, text, |tx| tx.execute("INSERT INTO applied VALUES (?)", [number]))
}
