//! Holders that overtake each other, each sure that it holds: the tokens of what is applied never fall (F1).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::RACE;
use super::subject::{Subject, Writer};
use super::tokens::token;
use super::violation::{Obligation, Violation};
use crate::Error;

/// What came of a race that kept the promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raced {
    /// Claims and writes asked.
    pub operations: u64,
    /// Claims that raised the mark.
    pub claimed: u64,
    /// Writes that were applied and told.
    pub applied: u64,
    /// Claims and writes refused: the zombies.
    pub refused: u64,
    /// Claims and writes that were told neither: the target was blocked or failed.
    pub undecided: u64,
}

/// A small generator of its own, so that a seed means the same everywhere (splitmix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// What was told of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Applied,
    Not,
    Unknown,
}

/// What one racer saw: itself counted, and the fate of each value it wrote.
#[derive(Default)]
struct Seen {
    raced: Raced,
    fates: Vec<(String, u64, Fate)>,
    /// A write that passed although a higher claim was told before it was asked.
    late: Option<(u64, u64)>,
}

/// Lets so many writers race for about so many operations: each takes the next higher token, claims, writes, and goes on
/// writing when it has long been overtaken. Then the ghost log must hold every write that was told as applied once, none
/// that was refused, and numbers that never fall.
pub async fn race<S: Subject>(subject: &S, writers: u64, operations: u64, seed: u64) -> Result<Raced, Violation> {
    let o = Obligation(RACE);
    subject.fresh().await;
    let (next, claimed) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let start = Arc::new(tokio::sync::Barrier::new(usize::try_from(writers).unwrap_or(usize::MAX)));
    let mut racers = Vec::new();
    for racer in 0..writers {
        let (writer, dice) = (subject.writer().await, Dice(seed ^ (racer << 32)));
        let share = operations / writers + u64::from(racer < operations % writers);
        let (start, next, claimed) = (start.clone(), next.clone(), claimed.clone());
        racers.push(tokio::spawn(async move {
            start.wait().await;
            run(writer, racer, share, dice, next, claimed).await
        }));
    }
    let mut raced = Raced::default();
    let mut fates = HashMap::new();
    for racer in racers {
        let seen = racer.await.map_err(|panic| o.broken(format!("a writer panicked: {panic}")))?;
        raced.operations += seen.raced.operations;
        raced.claimed += seen.raced.claimed;
        raced.applied += seen.raced.applied;
        raced.refused += seen.raced.refused;
        raced.undecided += seen.raced.undecided;
        if let Some((number, above)) = seen.late {
            return Err(o.broken(format!("a write of token {number} passed after the claim of {above} was told")));
        }
        fates.extend(seen.fates.into_iter().map(|(value, number, fate)| (value, (number, fate))));
    }
    verify(subject, o, fates).await?;
    if raced.applied == 0 || raced.claimed == 0 {
        return Err(o.broken(format!("nobody got through: {raced:?}")));
    }
    Ok(raced)
}

async fn verify<S: Subject>(s: &S, o: Obligation, mut fates: HashMap<String, (u64, Fate)>) -> Result<(), Violation> {
    let mut highest = 0;
    for one in s.applied().await {
        let number = one.number.get();
        if number < highest {
            return Err(o.broken(format!("a write of token {number} was applied after one of token {highest}")));
        }
        highest = number;
        match fates.remove(&one.value) {
            Some((shown, Fate::Applied | Fate::Unknown)) if shown == number => {}
            Some((shown, fate)) => {
                return Err(o.broken(format!("{one:?} is there; it showed {shown} and was told {fate:?}")));
            }
            None => return Err(o.broken(format!("{one:?} is there twice, or nobody wrote it"))),
        }
    }
    if let Some((value, (number, _))) = fates.iter().find(|(_, (_, fate))| *fate == Fate::Applied) {
        return Err(o.broken(format!("the write {value:?} of token {number} was told as applied and is not there")));
    }
    let mark = o.done("reading the mark", s.mark().await)?.map_or(0, |mark| mark.get());
    if mark < highest {
        return Err(o.broken(format!("the mark is {mark}, below an applied write of token {highest}")));
    }
    Ok(())
}

async fn run(
    mut writer: impl Writer,
    racer: u64,
    share: u64,
    mut dice: Dice,
    next: Arc<AtomicU64>,
    claimed: Arc<AtomicU64>,
) -> Seen {
    let mut seen = Seen::default();
    let mut number = 0;
    for operation in 0..share {
        seen.raced.operations += 1;
        // Between a claim and its first write too: that is where a claim that raised nothing shows.
        tokio::task::yield_now().await;
        // One in eight is a new hold; all else goes on under the old token, however late that is.
        if number == 0 || dice.below(8) == 0 {
            number = next.fetch_add(1, Ordering::SeqCst);
            match writer.claim(&token(number)).await {
                Ok(_) => {
                    claimed.fetch_max(number, Ordering::SeqCst);
                    seen.raced.claimed += 1;
                }
                Err(Error::Refused(_)) => seen.raced.refused += 1,
                Err(_) => seen.raced.undecided += 1,
            }
            continue;
        }
        let above = claimed.load(Ordering::SeqCst);
        let value = format!("{racer}/{operation}");
        let fate = match writer.write(&token(number), &value).await {
            Ok(()) => {
                seen.raced.applied += 1;
                if number < above {
                    seen.late = Some((number, above));
                }
                Fate::Applied
            }
            Err(Error::Refused(_)) => {
                seen.raced.refused += 1;
                Fate::Not
            }
            Err(Error::Blocked { .. }) => {
                seen.raced.undecided += 1;
                Fate::Not
            }
            Err(_) => {
                seen.raced.undecided += 1;
                Fate::Unknown
            }
        };
        seen.fates.push((value, number, fate));
    }
    seen
}
