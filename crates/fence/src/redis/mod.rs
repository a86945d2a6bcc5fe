//! Fence for Redis and Valkey.
//!
//! Marks are keys next to the data. The server runs check and write as one Lua call, as a library of functions or, on servers
//! before version 7, as a script.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_fence::Cluster, token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_fence::FenceId;
//! use leasehold_fence::redis::{Fence, install};
//!
//! let mut db = redis::Client::open("redis://127.0.0.1/")?.get_multiplexed_async_connection().await?;
//! let fence = Fence::new(&FenceId::new(cluster, "jobs/settle")?);
//! install(&mut db).await?; // once per server
//! fence.arm(&mut db).await?; // once per resource
//!
//! fence.claim(&mut db, token).await?; // first call of a new holder, before it reads
//! let paid = "{jobs/settle}:paid:7"; // the hash tag in braces selects the cluster slot
//! fence.write::<()>(&mut db, token, &[paid], redis::cmd("SET").arg(paid).arg(1200)).await?;
//! # Ok(())
//! # }
//! ```

mod durability;
mod error;
mod library;
mod operator;

use std::sync::Arc;

use leasehold_core::token::Number;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, FromRedisValue, Value};

use crate::admission::Admission;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, Observer, Operation, SealVerifier};
pub use durability::{RedisDurability, durability};
pub use library::{FUNCTIONS, SCRIPT, install};
pub use operator::list_marks;

/// Version of [`FUNCTIONS`] and [`SCRIPT`].
pub const VERSION: u32 = 3;

/// Fence of one resource and slot. It holds no connection and no state of the mark, so it works with any connection.
#[derive(Clone, Debug)]
pub struct Fence {
    id: FenceId,
    seals: SealCheck,
    key: String,
    use_script: bool,
    require_durable: bool,
    events: EventSink,
}

impl Fence {
    /// Creates the fence of a resource and slot. An exclusive lease has slot 0. In a Redis cluster the mark is stored with the
    /// keys whose hash tag is the resource's name.
    pub fn new(id: &FenceId) -> Self {
        let key = key(id, id.resource());
        let (seals, events) = (SealCheck::default(), EventSink::default());
        Self { id: id.clone(), seals, key, use_script: false, require_durable: false, events }
    }

    /// Stores the mark with the keys of this hash tag, for data that already has one. All holders must use the same tag.
    pub fn with_hash_tag(mut self, tag: &str) -> Self {
        self.key = key(&self.id, tag);
        self
    }

    /// Runs the checks as a script, for servers without functions.
    pub const fn use_script(mut self) -> Self {
        self.use_script = true;
        self
    }

    /// Makes a claim fail if the server could lose the mark, see [`durability`].
    pub const fn require_durable(mut self) -> Self {
        self.require_durable = true;
        self
    }

    /// Verifies the seal of every token with these keys; tokens that none of them signed are refused (A8).
    pub fn with_seal_verifier(mut self, verifier: &SealVerifier) -> Self {
        self.seals = SealCheck::new(verifier);
        self
    }

    /// Sets the observer of every decision of this fence.
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.events.observer = Some(observer);
        self
    }

    /// Counters shared by this fence and its clones.
    pub fn counters(&self) -> &Counters {
        &self.events.counters
    }

    /// Key under which the mark is stored.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Claims the target for a new holder, before it reads anything: raises the mark. The mark is as durable as the server.
    pub async fn claim(&self, db: &mut impl ConnectionLike, token: impl AsRef<str>) -> Result<Number, Error> {
        let result = self.try_claim(db, token.as_ref()).await;
        self.record(Operation::Claim, result.as_ref());
        Ok(result?.number)
    }

    async fn try_claim(&self, db: &mut impl ConnectionLike, token: &str) -> Result<Admission, Error> {
        let presented = self.seals.present(&self.id, token)?;
        if self.require_durable {
            durability(db).await?.require()?;
        }
        let mut command = self.command("claim", &[]);
        let reply: String = self.query(db, command.arg(token)).await?;
        Ok(Admission { number: presented.number, previous_incarnation: error::previous_incarnation(&reply) })
    }

    /// Runs a command if the token is admitted; check, mark and command are one atomic step of the server. `keys` are all keys
    /// of the command; in a Redis cluster they must be in one slot.
    pub async fn write<T: FromRedisValue>(
        &self,
        db: &mut impl ConnectionLike,
        token: impl AsRef<str>,
        keys: &[&str],
        command: &Cmd,
    ) -> Result<T, Error> {
        let result = self.run(db, token.as_ref(), None, keys, command).await;
        self.record(Operation::Write, result.as_ref().map(|(admission, _)| admission));
        Ok(redis::from_redis_value(result?.1).map_err(redis::RedisError::from)?)
    }

    /// Like [`Fence::write`], but applies the command at most once per sequence. Number the writes of one lease in ascending
    /// order, and wait for each reply before the next write.
    pub async fn write_once(
        &self,
        db: &mut impl ConnectionLike,
        token: impl AsRef<str>,
        sequence: u64,
        keys: &[&str],
        command: &Cmd,
    ) -> Result<ApplyOnce, Error> {
        let result = self.run(db, token.as_ref(), Some(sequence), keys, command).await;
        self.record(Operation::Write, result.as_ref().map(|(admission, _)| admission));
        Ok(error::last_applied(&result?.1).map_or(ApplyOnce::Applied, |last| ApplyOnce::AlreadyApplied { last }))
    }

    async fn run(
        &self,
        db: &mut impl ConnectionLike,
        token: &str,
        sequence: Option<u64>,
        keys: &[&str],
        command: &Cmd,
    ) -> Result<(Admission, Value), Error> {
        let presented = self.seals.present(&self.id, token)?;
        let mut call = self.command("write", keys);
        call.arg(token).arg(sequence.map_or_else(String::new, |sequence| format!("{sequence:020}")));
        for part in command.args_iter() {
            let Arg::Simple(bytes) = part else {
                return Err(Error::InvalidArgument("a command with a cursor writes nothing; run it without the fence"));
            };
            call.arg(bytes);
        }
        Ok((Admission { number: presented.number, previous_incarnation: None }, self.query(db, &call).await?))
    }

    /// Command that calls an operation of the library with the mark and these keys; the caller appends the arguments.
    fn command(&self, operation: &str, keys: &[&str]) -> Cmd {
        library::command(self.use_script, operation, &self.key, keys)
    }

    async fn query<T: FromRedisValue>(&self, db: &mut impl ConnectionLike, command: &Cmd) -> Result<T, Error> {
        library::query(self.use_script, db, command).await
    }

    fn record(&self, operation: Operation, result: Result<&Admission, &Error>) {
        self.events.record(&self.id, operation, result);
    }
}

fn key(id: &FenceId, tag: &str) -> String {
    format!("leasehold:{{{tag}}}:{}:{:08x}", id.resource_hash(), id.slot())
}
