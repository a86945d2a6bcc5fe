//! The fence in a Redis or Valkey server: its marks are keys beside the data, its rules one Lua text that the server runs as
//! one step with the write, as a library of functions or, on servers before version 7, as a script.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_core::token::Cluster, token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::name::Name;
//! use leasehold_fence::redis::{Fence, install};
//!
//! let mut db = redis::Client::open("redis://127.0.0.1/")?.get_multiplexed_async_connection().await?;
//! let fence = Fence::new(cluster, Name::parse("jobs/settle")?, 0);
//! install(&mut db).await?; // once for the server
//! fence.arm(&mut db).await?; // once for the resource
//!
//! fence.claim(&mut db, token).await?; // a new holder's first act, before it reads
//! let paid = "{jobs/settle}:paid:7"; // one slot of a cluster, by the tag in braces
//! fence.write::<()>(&mut db, token, &[paid], redis::cmd("SET").arg(paid).arg(1200)).await?;
//! # Ok(())
//! # }
//! ```

mod durability;
mod library;
mod operator;
mod told;

use std::sync::Arc;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, FromRedisValue, Value};

use crate::observer::Watch;
use crate::place::{Passed, Place};
use crate::{Act, Counters, Error, Observer, Once};
pub use durability::{Durability, durability};
pub use library::{FUNCTIONS, SCRIPT, VERSION, install};
pub use operator::survey;

/// The fence of one resource's slot in a server. It keeps nothing itself and can be used with any connection.
#[derive(Clone, Debug)]
pub struct Fence {
    place: Place,
    key: String,
    scripted: bool,
    require_durable: bool,
    watch: Watch,
}

impl Fence {
    /// Guards what is written under this resource's slot; slot 0 under an exclusive lease. In a cluster its mark lies where
    /// keys with the resource's name in braces lie.
    pub fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        let place = Place::new(cluster, resource, slot);
        let key = key(&place, resource.as_str());
        Self { place, key, scripted: false, require_durable: false, watch: Watch::default() }
    }

    /// The mark lies where keys with this tag in braces lie, for data whose keys have a tag already. Everybody who guards the
    /// same data must say the same.
    pub fn tagged(mut self, tag: &str) -> Self {
        self.key = key(&self.place, tag);
        self
    }

    /// For servers without functions: the same rules, sent as a script.
    pub const fn scripted(mut self) -> Self {
        self.scripted = true;
        self
    }

    /// Refuses a claim where the server could forget it: see [`durability`].
    pub const fn require_durable(mut self) -> Self {
        self.require_durable = true;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this fence and its clones answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// The key of the mark.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A new holder's first act, before it reads: raises the mark. It is as durable as the server is.
    pub async fn claim(&self, db: &mut impl ConnectionLike, token: &str) -> Result<Number, Error> {
        let answer = self.claimed(db, token).await;
        self.tell(Act::Claim, answer.as_ref());
        Ok(answer?.number)
    }

    async fn claimed(&self, db: &mut impl ConnectionLike, token: &str) -> Result<Passed, Error> {
        let shown = self.place.read(token)?;
        if self.require_durable {
            durability(db).await?.required()?;
        }
        let mut call = self.call("claim", &[]);
        let told: String = self.ask(db, call.arg(token)).await?;
        Ok(Passed { number: shown.number, left: told::left(&told) })
    }

    /// Runs a command behind the fence, in one step of the server: check, mark and write. `keys` are those it touches, all of
    /// them in one slot of a cluster.
    pub async fn write<T: FromRedisValue>(
        &self,
        db: &mut impl ConnectionLike,
        token: &str,
        keys: &[&str],
        command: &Cmd,
    ) -> Result<T, Error> {
        let done = self.run(db, token, None, keys, command).await;
        self.tell(Act::Write, done.as_ref().map(|(passed, _)| passed));
        Ok(redis::from_redis_value(done?.1).map_err(redis::RedisError::from)?)
    }

    /// The same, and applied once however often it is asked under this sequence. Number the writes of a hold upwards, and
    /// have each one answered before the next.
    pub async fn write_once(
        &self,
        db: &mut impl ConnectionLike,
        token: &str,
        sequence: u64,
        keys: &[&str],
        command: &Cmd,
    ) -> Result<Once, Error> {
        let done = self.run(db, token, Some(sequence), keys, command).await;
        self.tell(Act::Write, done.as_ref().map(|(passed, _)| passed));
        Ok(told::duplicate(&done?.1).map_or(Once::Applied, |last| Once::AlreadyApplied { last }))
    }

    async fn run(
        &self,
        db: &mut impl ConnectionLike,
        token: &str,
        sequence: Option<u64>,
        keys: &[&str],
        command: &Cmd,
    ) -> Result<(Passed, Value), Error> {
        let shown = self.place.read(token)?;
        let mut call = self.call("write", keys);
        call.arg(token).arg(sequence.map_or_else(String::new, |sequence| format!("{sequence:020}")));
        for part in command.args_iter() {
            let Arg::Simple(bytes) = part else {
                return Err(Error::Misplaced("a command with a cursor writes nothing; read it past the fence"));
            };
            call.arg(bytes);
        }
        Ok((Passed { number: shown.number, left: None }, self.ask(db, &call).await?))
    }

    /// A verb of the library with the mark and these keys; its arguments follow.
    fn call(&self, verb: &str, keys: &[&str]) -> Cmd {
        library::call(self.scripted, verb, &self.key, keys)
    }

    async fn ask<T: FromRedisValue>(&self, db: &mut impl ConnectionLike, call: &Cmd) -> Result<T, Error> {
        library::ask(self.scripted, db, call).await
    }

    fn tell(&self, act: Act, answer: Result<&Passed, &Error>) {
        self.watch.told(&self.place.name, self.place.guarded.slot, act, answer);
    }
}

fn key(place: &Place, tag: &str) -> String {
    format!("leasehold:{{{tag}}}:{}:{:08x}", place.resource(), place.guarded.slot)
}
