//! Concurrent holders that overtake each other: the token numbers of applied writes never decrease (F1).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::RACE;
use super::subject::{FenceWriter, Subject};
use super::tokens::token;
use super::violation::{ConformanceError, Obligation};
use crate::Error;

/// The counts of a successful race.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RaceReport {
    /// Claims and writes requested.
    pub operations: u64,
    /// Claims that raised the mark.
    pub claimed: u64,
    /// Acknowledged writes.
    pub applied: u64,
    /// Rejected claims and writes: those of zombies.
    pub refused: u64,
    /// Claims and writes without a decision: the target was blocked or failed.
    pub undecided: u64,
}

/// The random number generator splitmix64. A seed produces the same numbers everywhere.
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// The reply to a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteReply {
    Applied,
    Not,
    Unknown,
}

/// The log of one writer: counts, and the reply to each value it wrote.
#[derive(Default)]
struct RacerLog {
    report: RaceReport,
    replies: Vec<(String, u64, WriteReply)>,
    /// A write that succeeded although a higher claim had completed before it started.
    late: Option<(u64, u64)>,
}

/// Runs concurrent writers for a total of `operations`. Each takes the next higher token, claims, writes, and continues to
/// write after another writer has overtaken it. Afterwards the target must contain every acknowledged write exactly once and no
/// rejected one, with token numbers that never decrease.
pub async fn race<S: Subject>(
    subject: &S,
    writers: u64,
    operations: u64,
    seed: u64,
) -> Result<RaceReport, ConformanceError> {
    let o = Obligation(RACE);
    subject.fresh().await;
    let (next, claimed) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let start = Arc::new(tokio::sync::Barrier::new(usize::try_from(writers).unwrap_or(usize::MAX)));
    let mut racers = Vec::new();
    for racer in 0..writers {
        let (writer, rng) = (subject.writer().await, SplitMix(seed ^ (racer << 32)));
        let share = operations / writers + u64::from(racer < operations % writers);
        let (start, next, claimed) = (start.clone(), next.clone(), claimed.clone());
        racers.push(tokio::spawn(async move {
            start.wait().await;
            run(writer, racer, share, rng, next, claimed).await
        }));
    }
    let mut report = RaceReport::default();
    let mut replies = HashMap::new();
    for racer in racers {
        let log = racer.await.map_err(|panic| o.broken(format!("a writer panicked: {panic}")))?;
        report.operations += log.report.operations;
        report.claimed += log.report.claimed;
        report.applied += log.report.applied;
        report.refused += log.report.refused;
        report.undecided += log.report.undecided;
        if let Some((number, above)) = log.late {
            return Err(o.broken(format!("a write of token {number} succeeded after the claim of {above} completed")));
        }
        replies.extend(log.replies.into_iter().map(|(value, number, reply)| (value, (number, reply))));
    }
    verify(subject, o, replies).await?;
    if report.applied == 0 || report.claimed == 0 {
        return Err(o.broken(format!("no claim or write succeeded: {report:?}")));
    }
    Ok(report)
}

async fn verify<S: Subject>(
    s: &S,
    o: Obligation,
    mut replies: HashMap<String, (u64, WriteReply)>,
) -> Result<(), ConformanceError> {
    let mut highest = 0;
    for one in s.applied().await {
        let number = one.number.get();
        if number < highest {
            return Err(o.broken(format!("a write of token {number} was applied after one of token {highest}")));
        }
        highest = number;
        match replies.remove(&one.value) {
            Some((presented, WriteReply::Applied | WriteReply::Unknown)) if presented == number => {}
            Some((presented, reply)) => {
                return Err(
                    o.broken(format!("{one:?} was applied; it presented {presented}, and the reply was {reply:?}"))
                );
            }
            None => return Err(o.broken(format!("{one:?} was applied twice, or never requested"))),
        }
    }
    if let Some((value, (number, _))) = replies.iter().find(|(_, (_, reply))| *reply == WriteReply::Applied) {
        return Err(o.broken(format!("the write {value:?} of token {number} was acknowledged and is missing")));
    }
    let mark = o.succeeds("reading the mark", s.mark().await)?.map_or(0, |mark| mark.get());
    if mark < highest {
        return Err(o.broken(format!("the mark is {mark}, below an applied write of token {highest}")));
    }
    Ok(())
}

async fn run(
    mut writer: impl FenceWriter,
    racer: u64,
    share: u64,
    mut rng: SplitMix,
    next: Arc<AtomicU64>,
    claimed: Arc<AtomicU64>,
) -> RacerLog {
    let mut log = RacerLog::default();
    let mut number = 0;
    for operation in 0..share {
        log.report.operations += 1;
        // Also between a claim and its first write: there a claim that raised nothing is detected.
        tokio::task::yield_now().await;
        // One in eight operations is a new claim; all others use the old token, even if it is stale.
        if number == 0 || rng.below(8) == 0 {
            number = next.fetch_add(1, Ordering::SeqCst);
            match writer.claim(&token(number)).await {
                Ok(_) => {
                    claimed.fetch_max(number, Ordering::SeqCst);
                    log.report.claimed += 1;
                }
                Err(Error::Refused(_)) => log.report.refused += 1,
                Err(_) => log.report.undecided += 1,
            }
            continue;
        }
        let above = claimed.load(Ordering::SeqCst);
        let value = format!("{racer}/{operation}");
        let reply = match writer.write(&token(number), &value).await {
            Ok(()) => {
                log.report.applied += 1;
                if number < above {
                    log.late = Some((number, above));
                }
                WriteReply::Applied
            }
            Err(Error::Refused(_)) => {
                log.report.refused += 1;
                WriteReply::Not
            }
            Err(Error::Blocked { .. }) => {
                log.report.undecided += 1;
                WriteReply::Not
            }
            Err(_) => {
                log.report.undecided += 1;
                WriteReply::Unknown
            }
        };
        log.replies.push((value, number, reply));
    }
    log
}
