//! The trial of a journal: every obligation of [`Journal`] as a check with its name.
//!
//! Obligations 13 and 14 need a disk that is full or fails on command; each journal shows them in its own tests.

mod both;
mod rack;

use std::fmt;
use std::ops::ControlFlow;

use leasehold_core::grantor::Corrupt;

use both::both;

use super::{Confirmed, FIRST, Journal, Kept, NotTold, Opened, Place, Replay, Shelf};

/// What an open does about a writer that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// It ends that writer's authority.
    Ends,
    /// It is refused while that writer lives: the fence is a lock on one machine.
    Refused,
}

/// An obligation that a journal does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one.
    pub check: &'static str,
    /// What was seen.
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.why)
    }
}

impl std::error::Error for Broken {}

/// What a replay told, kept to be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The snapshot, if one was told.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// The batches, in the order in which they were told.
    pub batches: Vec<(u64, Vec<u8>)>,
}

impl Replay for Told {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        if self.snapshot.is_some() || !self.batches.is_empty() {
            return Err(Corrupt { at: 0, why: "a snapshot is told first and once" });
        }
        self.snapshot = Some((sequence, bytes.to_vec()));
        Ok(())
    }

    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        self.batches.push((sequence, bytes.to_vec()));
        Ok(())
    }
}

/// Puts a journal on trial; `new` gives an empty place each time. Returns the names of the checks that held.
pub async fn run<P: Place>(new: impl Fn() -> P, fencing: Fencing) -> Result<Vec<&'static str>, Broken> {
    let mut held = Vec::new();
    macro_rules! check {
        ($name:literal, $check:expr) => {
            let outcome: Held = $check.await;
            outcome.map_err(|why| Broken { check: $name, why })?;
            held.push($name);
        };
    }
    check!("1 opening fences", opening_fences(&new(), fencing));
    check!("2 generations rise", generations_rise(&new()));
    check!("3 replay is whole and in order", replay_is_whole(&new()));
    check!("4 durable means kept", durable_means_kept(&new()));
    check!("5 nothing is invented", nothing_is_invented(&new()));
    check!("6 a resend is harmless", a_resend_is_harmless(&new()));
    if fencing == Fencing::Ends {
        check!("7 a fenced writer changes nothing", a_fenced_writer_changes_nothing(&new()));
    }
    check!("8 confirm tells the truth", confirm_tells_the_truth(&new(), fencing));
    check!("9 snapshots replace batches", snapshots_replace_batches(&new()));
    check!("10 trim takes only what is covered", trim_takes_only_what_is_covered(&new()));
    check!("11 tail tells what is durable", tail_tells_what_is_durable(&new()));
    check!("12 the shelf is apart", the_shelf_is_apart(&new()));
    check!("15 the rack keeps what was synced", rack::the_rack_keeps(&new()));
    Ok(held)
}

/// A batch that is told from every other, of one byte to a few sectors.
pub fn batch(number: u64) -> Vec<u8> {
    let length = 1 + (number.wrapping_mul(397) % 1_500) as usize;
    let mut batch = format!("batch {number}.").into_bytes();
    batch.resize(length, number as u8 | 1);
    batch[0] = number as u8;
    batch
}

type Held = Result<(), String>;

async fn opening_fences<P: Place>(place: &P, fencing: Fencing) -> Held {
    let (mut first, _) = open(place).await?;
    durable(&mut first, 1).await?;
    match (fencing, open(place).await) {
        (Fencing::Refused, Ok(_)) => Err("a second open got in beside a living writer".to_owned()),
        (Fencing::Refused, Err(_)) => {
            durable(&mut first, 2).await?;
            drop(first);
            let (second, told) = open(place).await?;
            same("what the refused open left", &numbers(&told), &vec![1, 2])?;
            same("next", &second.next(), &3)
        }
        (Fencing::Ends, second) => {
            let (mut second, told) = second?;
            same("what the second open was told", &numbers(&told), &vec![1])?;
            same("the first writer's append", &first.append(2, b"late").await, &Ok(Kept::Fenced))?;
            durable(&mut second, 2).await
        }
    }
}

async fn generations_rise<P: Place>(place: &P) -> Held {
    let mut highest = 0;
    for sequence in FIRST..FIRST + 5 {
        let (mut journal, _) = open(place).await?;
        if journal.generation() <= highest {
            return Err(format!("generation {} after {highest}", journal.generation()));
        }
        highest = journal.generation();
        // An open that wrote nothing counts too.
        if sequence.is_multiple_of(2) {
            let next = journal.next();
            durable(&mut journal, next).await?;
        }
    }
    Ok(())
}

async fn replay_is_whole<P: Place>(place: &P) -> Held {
    let (journal, told) = open(place).await?;
    same("an empty journal's replay", &told, &Told::default())?;
    same("an empty journal's next", &journal.next(), &FIRST)?;
    drop(journal);
    for round in 1..=4 {
        let (mut journal, told) = open(place).await?;
        let before = (round - 1) * 10;
        same("replay", &told.batches, &batches(1..=before))?;
        for sequence in before + 1..=round * 10 {
            same("next", &journal.next(), &sequence)?;
            durable(&mut journal, sequence).await?;
        }
    }
    Ok(())
}

async fn durable_means_kept<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    let sizes = [1, 2, 7, 8, 9, 495, 496, 497, 4_096, 65_537, 300_000];
    let batches: Vec<_> = (FIRST..).zip(sizes.map(|size| vec![0xA5; size])).collect();
    for (sequence, batch) in &batches {
        same("append", &journal.append(*sequence, batch).await, &Ok(Kept::Durable))?;
    }
    // Bytes that look like nothing was written are bytes too.
    let zeros = (FIRST + sizes.len() as u64, vec![0; 3_000]);
    same("append of zeros", &journal.append(zeros.0, &zeros.1).await, &Ok(Kept::Durable))?;
    drop(journal);
    let (_, told) = open(place).await?;
    if told.batches != [batches, vec![zeros]].concat() {
        return Err(format!("{} batches came back, or not the same", told.batches.len()));
    }
    Ok(())
}

async fn nothing_is_invented<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    durable(&mut journal, 1).await?;
    drop(journal);
    for _ in 0..3 {
        let (journal, told) = open(place).await?;
        same("replay", &told, &Told { snapshot: None, batches: vec![(1, batch(1))] })?;
        same("next", &journal.next(), &2)?;
    }
    Ok(())
}

async fn a_resend_is_harmless<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    for sequence in 1..=3 {
        durable(&mut journal, sequence).await?;
        durable(&mut journal, sequence).await?;
        same("other bytes", &journal.append(sequence, b"other").await, &Ok(Kept::Fenced))?;
        same("next after a resend", &journal.next(), &(sequence + 1))?;
    }
    drop(journal);
    let (_, told) = open(place).await?;
    same("replay", &told.batches, &batches(1..=3))
}

async fn a_fenced_writer_changes_nothing<P: Place>(place: &P) -> Held {
    let (mut first, _) = open(place).await?;
    let shelf = first.shelf();
    durable(&mut first, 1).await?;
    durable(&mut first, 2).await?;
    let (mut second, _) = open(place).await?;
    durable(&mut second, 3).await?;
    for _ in 0..2 {
        same("append", &first.append(3, &batch(3)).await, &Ok(Kept::Fenced))?;
        same("confirm", &first.confirm().await, &Ok(Confirmed::Fenced))?;
        same("save", &shelf.save(2, b"old").await, &Ok(Kept::Fenced))?;
        same("trim", &shelf.trim(2).await, &Ok(Kept::Fenced))?;
    }
    same("the second's snapshot", &second.shelf().save(1, b"one").await, &Ok(Kept::Durable))?;
    same("trim by the first", &shelf.trim(1).await, &Ok(Kept::Fenced))?;
    drop((first, second, shelf));
    let (_, told) = open(place).await?;
    same("snapshot", &told.snapshot, &Some((1, b"one".to_vec())))?;
    same("batches", &numbers(&told), &vec![2, 3])
}

async fn confirm_tells_the_truth<P: Place>(place: &P, fencing: Fencing) -> Held {
    let (mut first, _) = open(place).await?;
    same("confirm before any append", &first.confirm().await, &Ok(Confirmed::StillMine))?;
    durable(&mut first, 1).await?;
    same("confirm", &first.confirm().await, &Ok(Confirmed::StillMine))?;
    match (fencing, open(place).await) {
        (Fencing::Refused, _) => same("confirm", &first.confirm().await, &Ok(Confirmed::StillMine)),
        (Fencing::Ends, second) => {
            let (mut second, _) = second?;
            same("the first's confirm", &first.confirm().await, &Ok(Confirmed::Fenced))?;
            same("the second's confirm", &second.confirm().await, &Ok(Confirmed::StillMine))
        }
    }
}

async fn snapshots_replace_batches<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    let shelf = journal.shelf();
    same("no snapshot", &shelf.newest().await, &Ok(None))?;
    let large = vec![7; 200_000];
    for sequence in 1..=20 {
        durable(&mut journal, sequence).await?;
        if sequence.is_multiple_of(5) {
            same("save", &shelf.save(sequence, &large[..sequence as usize * 10_000]).await, &Ok(Kept::Durable))?;
        }
        if sequence == 17 {
            same("an older one", &shelf.save(3, b"old").await, &Ok(Kept::Durable))?;
            same("newest", &shelf.newest().await, &Ok(Some((15, large[..150_000].to_vec()))))?;
        }
    }
    durable(&mut journal, 21).await?;
    drop((journal, shelf));
    let (mut journal, told) = open(place).await?;
    same("snapshot", &told.snapshot.map(|(at, bytes)| (at, bytes == large)), &Some((20, true)))?;
    same("batches after it", &told.batches, &vec![(21, batch(21))])?;
    same("a snapshot of the last batch", &journal.shelf().save(21, b"all").await, &Ok(Kept::Durable))?;
    drop(journal);
    let told;
    (journal, told) = open(place).await?;
    same("all in a snapshot", &told, &Told { snapshot: Some((21, b"all".to_vec())), batches: Vec::new() })?;
    same("next", &journal.next(), &22)
}

async fn trim_takes_only_what_is_covered<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    let shelf = journal.shelf();
    for sequence in 1..=30 {
        durable(&mut journal, sequence).await?;
    }
    same("trim without a snapshot", &shelf.trim(30).await, &Ok(Kept::Durable))?;
    same("all is there", &tail(&shelf, 1).await, &Ok(((1..=30).collect(), 31)))?;
    for sequence in [10, 20] {
        same("save", &shelf.save(sequence, b"state").await, &Ok(Kept::Durable))?;
        same("trim", &shelf.trim(u64::MAX).await, &Ok(Kept::Durable))?;
        same("not covered", &tail(&shelf, sequence + 1).await, &Ok(((sequence + 1..=30).collect(), 31)))?;
    }
    durable(&mut journal, 31).await?;
    drop((journal, shelf));
    let (_, told) = open(place).await?;
    same("snapshot", &told.snapshot, &Some((20, b"state".to_vec())))?;
    same("batches", &told.batches, &batches(21..=31))
}

async fn tail_tells_what_is_durable<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    let shelf = journal.shelf();
    same("nothing", &tail(&shelf, 1).await, &Ok((Vec::new(), 1)))?;
    for sequence in 1..=40 {
        durable(&mut journal, sequence).await?;
    }
    for from in [1, 2, 39, 40] {
        same("tail", &tail(&shelf, from).await, &Ok(((from..=40).collect(), 41)))?;
    }
    same("nothing yet", &tail(&shelf, 41).await, &Ok((Vec::new(), 41)))?;
    let mut heard = Vec::new();
    let mut listen = |sequence: u64, bytes: &[u8]| {
        heard.push((sequence, bytes.to_vec()));
        if sequence == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    same("broken off", &shelf.tail(5, &mut listen).await, &Ok(8))?;
    same("heard", &heard, &batches(5..=7))?;
    for sequence in [35, 40] {
        same("save", &shelf.save(sequence, b"state").await, &Ok(Kept::Durable))?;
    }
    same("trim", &shelf.trim(40).await, &Ok(Kept::Durable))?;
    match tail(&shelf, 1).await {
        Err(NotTold::Trimmed { first }) if first > 1 && first <= 41 => {
            same("from the first that is kept", &tail(&shelf, first).await, &Ok(((first..=40).collect(), 41)))
        }
        // A journal may keep more than it must.
        whole => same("all is kept", &whole, &Ok(((1..=40).collect(), 41))),
    }
}

async fn the_shelf_is_apart<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    let shelf = journal.shelf();
    durable(&mut journal, 1).await?;
    let snapshot = vec![3; 100_000];
    for sequence in 2..=40 {
        let append = durable(&mut journal, sequence);
        let beside = async {
            let (heard, _) = tail(&shelf, sequence - 1).await.map_err(|error| error.to_string())?;
            same("durable before", &heard.first(), &Some(&(sequence - 1)))?;
            same("save", &shelf.save(sequence - 1, &snapshot).await, &Ok(Kept::Durable))?;
            same("trim", &shelf.trim(sequence - 1).await, &Ok(Kept::Durable))
        };
        let (append, beside) = both(append, beside).await;
        append.and(beside)?;
    }
    drop((journal, shelf));
    let (_, told) = open(place).await?;
    same("snapshot", &told.snapshot.map(|(at, _)| at), &Some(39))?;
    same("batches", &told.batches, &vec![(40, batch(40))])
}

async fn open<P: Place>(place: &P) -> Result<(P::Journal, Told), String> {
    let mut told = Told::default();
    let Opened { journal, .. } = place.open(&mut told).await.map_err(|error| format!("not opened: {error}"))?;
    let start = told.snapshot.as_ref().map_or(FIRST, |(sequence, _)| sequence + 1);
    let next = start + told.batches.len() as u64;
    same("sequences told", &numbers(&told), &(start..next).collect::<Vec<_>>())?;
    same("the next sequence", &journal.next(), &next)?;
    Ok((journal, told))
}

async fn durable<J: Journal>(journal: &mut J, sequence: u64) -> Held {
    same("append", &journal.append(sequence, &batch(sequence)).await, &Ok(Kept::Durable))
}

async fn tail<S: Shelf>(shelf: &S, from: u64) -> Result<(Vec<u64>, u64), NotTold> {
    let mut heard = Vec::new();
    let mut wrong = None;
    let listen = &mut |sequence, bytes: &[u8]| {
        heard.push(sequence);
        if bytes != batch(sequence) {
            wrong.get_or_insert(sequence);
        }
        ControlFlow::Continue(())
    };
    let next = shelf.tail(from, listen).await?;
    match wrong {
        Some(sequence) => Err(NotTold::Unreadable { why: format!("batch {sequence} has other bytes") }),
        None => Ok((heard, next)),
    }
}

fn numbers(told: &Told) -> Vec<u64> {
    told.batches.iter().map(|(sequence, _)| *sequence).collect()
}

fn batches(sequences: std::ops::RangeInclusive<u64>) -> Vec<(u64, Vec<u8>)> {
    sequences.map(|at| (at, batch(at))).collect()
}

fn same<T: fmt::Debug + PartialEq>(what: &str, seen: &T, owed: &T) -> Held {
    // Enough to see what it is, not whole batches.
    let short = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    if seen == owed { Ok(()) } else { Err(format!("{what}: {}, not {}", short(seen), short(owed))) }
}
