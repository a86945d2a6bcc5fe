//! One session that asks as fast as it is answered, with so many requests in flight.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::stream::{Asking, Batch, Heard, Hearing};
use leasehold::{Client, Code, Error};
use leasehold_core::command::{Acquire, Answer, Command, Held, Terms};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::limits::TTL_MIN;
use leasehold_core::token::Number;

/// The longest that is waited for an answer.
const SILENCE: Duration = Duration::from_secs(60);

/// A lease as its holder names it.
pub type Lease = (LeaseId, Number);

/// When leases end if nobody renews them.
#[derive(Clone, Copy)]
pub enum Ends {
    /// So many milliseconds after each was taken.
    After(u64),
    /// All at one moment.
    At(Instant),
}

impl Ends {
    fn ttl_ms(self, now: Instant) -> u64 {
        match self {
            Self::After(ttl_ms) => ttl_ms,
            Self::At(moment) => (moment.saturating_duration_since(now).as_millis() as u64).max(TTL_MIN),
        }
    }
}

/// What one measured stretch came to.
#[derive(Clone)]
pub struct Stretch {
    /// How many operations.
    pub count: u64,
    /// In how long.
    pub took: Duration,
    /// How long each waited for its answer, in nanoseconds.
    pub waited: Histogram<u64>,
}

impl Stretch {
    pub fn new() -> Self {
        let waited = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("fixed bounds");
        Self { count: 0, took: Duration::ZERO, waited }
    }

    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.took += other.took;
        self.waited += &other.waited;
    }

    /// Adds stretches that went on side by side.
    pub fn beside(&mut self, others: &[Self]) {
        let took = others.iter().map(|other| other.took).max().unwrap_or_default();
        others.iter().for_each(|other| self.add(&Self { took: Duration::ZERO, ..other.clone() }));
        self.took += took;
    }

    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64()
    }

    pub fn waited(&mut self, since: Instant, times: u64) {
        let nanos = since.elapsed().as_nanos().min(u128::from(self.waited.high())) as u64;
        self.waited.record_n(nanos.max(1), times).expect("within bounds");
    }
}

/// A session on its stream.
pub struct Line {
    session: SessionId,
    asking: Asking,
    hearing: Hearing,
    holder: String,
    next: u64,
}

impl Line {
    pub async fn open(client: &Client, holder: &str, ttl_ms: u64) -> Result<Self, Error> {
        let (opened, asking, hearing) = client.stream(holder, ttl_ms, None).await?;
        Ok(Self { session: opened.session(), asking, hearing, holder: holder.to_owned(), next: 1 })
    }

    /// Acquires `count` leases under names with this prefix, so many in flight, and keeps them.
    pub async fn acquire(
        &mut self,
        prefix: &str,
        count: u64,
        in_flight: u64,
        ends: Ends,
        kept: &mut Vec<Lease>,
    ) -> Result<Stretch, Error> {
        let mut stretch = Stretch::new();
        let mut sent: VecDeque<Instant> = VecDeque::new();
        let (began, first) = (Instant::now(), self.next);
        let mut asked = 0;
        let mut name = String::new();
        loop {
            let mut batch = Batch::from(first + stretch.count);
            let now = Instant::now();
            let ttl_ms = ends.ttl_ms(now);
            while asked < count && asked - stretch.count < in_flight {
                use std::fmt::Write;
                name.clear();
                write!(name, "{prefix}/{asked:08}").expect("a string takes it");
                batch.ask(self.next, &Command::Acquire(Acquire::exclusive(&name, &self.holder, ttl_ms)));
                sent.push_back(now);
                self.next += 1;
                asked += 1;
            }
            if !batch.is_empty() {
                self.asking.send(batch).await?;
            }
            for (_, answer) in self.heard().await?.answers {
                if let Answer::Granted(grant) = answer? {
                    kept.push((grant.lease, grant.number));
                }
                stretch.waited(sent.pop_front().unwrap_or(now), 1);
                stretch.count += 1;
            }
            if stretch.count == count {
                stretch.took = began.elapsed();
                return Ok(stretch);
            }
        }
    }

    /// Renews these leases over and over for so long, in batches, with so many batches in flight.
    pub async fn renew(
        &mut self,
        leases: &[Lease],
        size: usize,
        in_flight: usize,
        for_: Duration,
    ) -> Result<Stretch, Error> {
        let mut stretch = Stretch::new();
        let mut sent = VecDeque::new();
        let mut portions = leases.chunks(size).cycle();
        let began = Instant::now();
        loop {
            while sent.len() < in_flight && began.elapsed() < for_ {
                let mut batch = Batch::from(self.next);
                batch.renew(self.next, portions.next().expect("there are leases").iter().copied());
                self.next += 1;
                sent.push_back(Instant::now());
                self.asking.send(batch).await?;
            }
            if sent.is_empty() {
                stretch.took = began.elapsed();
                return Ok(stretch);
            }
            for renewed in self.heard().await?.renewed {
                if let Some((_, other)) = renewed.others.into_iter().next() {
                    other?;
                }
                let count = renewed.remaining_ms.len() as u64;
                stretch.waited(sent.pop_front().unwrap_or(began), count);
                stretch.count += count;
            }
        }
    }

    /// Asks for one lease and waits for it if it must. Returns before it is granted.
    pub async fn want(&mut self, resource: &str, wait_ms: u64) -> Result<(), Error> {
        let terms = Terms { wait_ms, ..Terms::DEFAULT };
        let mut batch = Batch::from(self.next);
        batch
            .ask(self.next, &Command::Acquire(Acquire { terms, ..Acquire::exclusive(resource, &self.holder, 30_000) }));
        self.next += 1;
        self.asking.send(batch).await
    }

    /// Hears until the wait has begun.
    pub async fn waiting(&mut self) -> Result<(), Error> {
        self.hear(|answer| matches!(answer, Answer::Waiting { .. }).then_some(())).await
    }

    /// Hears until a lease is granted.
    pub async fn granted(&mut self) -> Result<Lease, Error> {
        self.hear(|answer| match answer {
            Answer::Granted(grant) => Some((grant.lease, grant.number)),
            _ => None,
        })
        .await
    }

    /// Gives a lease back. Returns before that is done.
    pub async fn release(&mut self, (lease, number): Lease) -> Result<(), Error> {
        let mut batch = Batch::from(self.next);
        batch.ask(self.next, &Command::Release(Held::by_id(lease, number)));
        self.next += 1;
        self.asking.send(batch).await
    }

    /// Ends the session with all that it holds.
    pub async fn close(mut self) -> Result<(), Error> {
        let mut batch = Batch::from(self.next);
        batch.ask(self.next, &Command::CloseSession { session: self.session });
        self.asking.send(batch).await?;
        self.hear(|answer| (*answer == Answer::Done).then_some(())).await
    }

    /// A server that says nothing for so long is not measured any further.
    async fn heard(&mut self) -> Result<Heard, Error> {
        let silent = || Error::new(Code::Unavailable, "no answer for a minute; look at the server");
        tokio::time::timeout(SILENCE, self.hearing.next()).await.map_err(|_| silent())?
    }

    async fn hear<T>(&mut self, mut wanted: impl FnMut(&Answer) -> Option<T>) -> Result<T, Error> {
        loop {
            for (_, answer) in self.heard().await?.answers {
                if let Some(found) = wanted(&answer?) {
                    return Ok(found);
                }
            }
        }
    }
}
