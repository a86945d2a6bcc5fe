//! Load from one session in a closed loop, with a fixed number of requests in flight.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::session_stream::{IncomingBatch, OutgoingBatch, SessionReceiver, SessionSender};
use leasehold::{Client, Code, Error};
use leasehold_core::command::{Acquire, AcquireOptions, Answer, Command, LeaseRef};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::limits::TTL_MIN;
use leasehold_core::token::Number;

/// Time without a reply after which the benchmark fails.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// The id and token number by which a holder refers to a lease.
pub type LeaseKey = (LeaseId, Number);

/// When leases expire unless renewed.
#[derive(Clone, Copy)]
pub enum LeaseExpiry {
    /// This many milliseconds after each grant.
    After(u64),
    /// All at the same moment.
    At(Instant),
}

impl LeaseExpiry {
    fn ttl_ms(self, now: Instant) -> u64 {
        match self {
            Self::After(ttl_ms) => ttl_ms,
            Self::At(moment) => (moment.saturating_duration_since(now).as_millis() as u64).max(TTL_MIN),
        }
    }
}

/// Result of a measurement.
#[derive(Clone)]
pub struct Sample {
    /// Number of operations.
    pub count: u64,
    pub elapsed: Duration,
    /// Latency of each operation in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Sample {
    pub fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("fixed bounds");
        Self { count: 0, elapsed: Duration::ZERO, latency }
    }

    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.elapsed += other.elapsed;
        self.latency += &other.latency;
    }

    /// Adds samples that were measured concurrently: their elapsed time counts once.
    pub fn add_concurrent(&mut self, others: &[Self]) {
        let elapsed = others.iter().map(|other| other.elapsed).max().unwrap_or_default();
        others.iter().for_each(|other| self.add(&Self { elapsed: Duration::ZERO, ..other.clone() }));
        self.elapsed += elapsed;
    }

    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    pub fn record(&mut self, since: Instant, times: u64) {
        let nanos = since.elapsed().as_nanos().min(u128::from(self.latency.high())) as u64;
        self.latency.record_n(nanos.max(1), times).expect("within bounds");
    }
}

/// A session stream that generates load.
pub struct LoadSession {
    session: SessionId,
    sender: SessionSender,
    receiver: SessionReceiver,
    holder: String,
    next: u64,
}

impl LoadSession {
    pub async fn open(client: &Client, holder: &str, ttl_ms: u64) -> Result<Self, Error> {
        let (opened, sender, receiver) = client.stream(holder, ttl_ms, None).await?;
        Ok(Self { session: opened.id(), sender, receiver, holder: holder.to_owned(), next: 1 })
    }

    /// Acquires `count` leases with this name prefix, with `in_flight` requests in flight. Appends them to `acquired`.
    pub async fn acquire(
        &mut self,
        prefix: &str,
        count: u64,
        in_flight: u64,
        ends: LeaseExpiry,
        acquired: &mut Vec<LeaseKey>,
    ) -> Result<Sample, Error> {
        let mut sample = Sample::new();
        let mut sent: VecDeque<Instant> = VecDeque::new();
        let (began, first) = (Instant::now(), self.next);
        let mut sent_count = 0;
        let mut name = String::new();
        loop {
            let mut batch = OutgoingBatch::new(first + sample.count);
            let now = Instant::now();
            let ttl_ms = ends.ttl_ms(now);
            while sent_count < count && sent_count - sample.count < in_flight {
                use std::fmt::Write;
                name.clear();
                write!(name, "{prefix}/{sent_count:08}").expect("writing to a string");
                batch.push_command(self.next, &Command::Acquire(Acquire::exclusive(&name, &self.holder, ttl_ms)));
                sent.push_back(now);
                self.next += 1;
                sent_count += 1;
            }
            if !batch.is_empty() {
                self.sender.send(batch).await?;
            }
            for (_, answer) in self.next_batch().await?.replies {
                if let Answer::Granted(grant) = answer? {
                    acquired.push((grant.lease, grant.number));
                }
                sample.record(sent.pop_front().unwrap_or(now), 1);
                sample.count += 1;
            }
            if sample.count == count {
                sample.elapsed = began.elapsed();
                return Ok(sample);
            }
        }
    }

    /// Renews these leases repeatedly for a duration, in batches of `size`, with `in_flight` batches in flight.
    pub async fn renew(
        &mut self,
        leases: &[LeaseKey],
        size: usize,
        in_flight: usize,
        duration: Duration,
    ) -> Result<Sample, Error> {
        let mut sample = Sample::new();
        let mut sent = VecDeque::new();
        let mut portions = leases.chunks(size).cycle();
        let began = Instant::now();
        loop {
            while sent.len() < in_flight && began.elapsed() < duration {
                let mut batch = OutgoingBatch::new(self.next);
                batch.renew(self.next, portions.next().expect("there are leases").iter().copied());
                self.next += 1;
                sent.push_back(Instant::now());
                self.sender.send(batch).await?;
            }
            if sent.is_empty() {
                sample.elapsed = began.elapsed();
                return Ok(sample);
            }
            for renewed in self.next_batch().await?.renewals {
                if let Some((_, detail)) = renewed.details.into_iter().next() {
                    detail?;
                }
                let count = renewed.remaining_ms.len() as u64;
                sample.record(sent.pop_front().unwrap_or(began), count);
                sample.count += count;
            }
        }
    }

    /// Sends a request for one lease, which may wait. Returns before it is granted.
    pub async fn request(&mut self, resource: &str, wait_ms: u64) -> Result<(), Error> {
        let terms = AcquireOptions { wait_ms, ..AcquireOptions::DEFAULT };
        let mut batch = OutgoingBatch::new(self.next);
        batch.push_command(
            self.next,
            &Command::Acquire(Acquire { options: terms, ..Acquire::exclusive(resource, &self.holder, 30_000) }),
        );
        self.next += 1;
        self.sender.send(batch).await
    }

    /// Waits until the request is queued.
    pub async fn wait_queued(&mut self) -> Result<(), Error> {
        self.wait_for_answer(|answer| matches!(answer, Answer::Waiting { .. }).then_some(())).await
    }

    /// Waits until a lease is granted.
    pub async fn wait_granted(&mut self) -> Result<LeaseKey, Error> {
        self.wait_for_answer(|answer| match answer {
            Answer::Granted(grant) => Some((grant.lease, grant.number)),
            _ => None,
        })
        .await
    }

    /// Sends the release of a lease. Returns before it is done.
    pub async fn release(&mut self, (lease, number): LeaseKey) -> Result<(), Error> {
        let mut batch = OutgoingBatch::new(self.next);
        batch.push_command(self.next, &Command::Release(LeaseRef::by_id(lease, number)));
        self.next += 1;
        self.sender.send(batch).await
    }

    /// Closes the session with all its leases.
    pub async fn close(mut self) -> Result<(), Error> {
        let mut batch = OutgoingBatch::new(self.next);
        batch.push_command(self.next, &Command::CloseSession { session: self.session });
        self.sender.send(batch).await?;
        self.wait_for_answer(|answer| (*answer == Answer::Done).then_some(())).await
    }

    /// Receives the next batch. Fails if the server does not reply in time.
    async fn next_batch(&mut self) -> Result<IncomingBatch, Error> {
        let silent = || Error::new(Code::Unavailable, "no reply for a minute; check the server");
        tokio::time::timeout(REPLY_TIMEOUT, self.receiver.recv()).await.map_err(|_| silent())?
    }

    async fn wait_for_answer<T>(&mut self, mut wanted: impl FnMut(&Answer) -> Option<T>) -> Result<T, Error> {
        loop {
            for (_, answer) in self.next_batch().await?.replies {
                if let Some(found) = wanted(&answer?) {
                    return Ok(found);
                }
            }
        }
    }
}
