//! A crash of the target: what was told is kept, and a mark and its effect are there together or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::order::{applied, mark};
use super::race::Dice;
use super::subject::{Subject, Writer};
use super::tokens::token;
use super::violation::{Obligation, Violation};
use super::{Applied, DURABLE};

pub(super) async fn kept<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.done("a claim", holder.claim(&token(130)).await)?;
    o.done("a write", holder.write(&token(130), "kept").await)?;
    o.done("the successor's claim", holder.claim(&token(131)).await)?;
    if !s.crash().await {
        return Ok(false);
    }
    let mut holder = s.writer().await;
    mark(s, o, Some(131)).await?;
    o.refused("a late write after the crash", "STALE_TOKEN", holder.write(&token(130), "late").await)?;
    o.done("the successor's write", holder.write(&token(131), "after").await)?;
    applied(s, o, &[(130, "kept"), (131, "after")]).await?;
    Ok(true)
}

/// Kills the target's server so many times, at random moments while somebody writes, each write under a higher token. After
/// each the mark is the last applied write's, every acknowledged write is there, and at most the one in flight beside
/// them. Gives the number of writes acknowledged; none if the target has no server.
pub async fn crashes<S: Subject>(subject: &S, kills: u64, seed: u64) -> Result<u64, Violation> {
    let o = Obligation(DURABLE);
    let mut dice = Dice(seed);
    subject.fresh().await;
    let mut acked: Vec<u64> = Vec::new();
    for round in 1..=kills {
        let claimed = round * 1_000_000;
        let mut writer = subject.writer().await;
        o.done("a claim between two crashes", writer.claim(&token(claimed)).await)?;
        let told = Arc::new(AtomicU64::new(claimed));
        let (over, note) = (Arc::new(AtomicBool::new(false)), told.clone());
        let stop = over.clone();
        let writing = tokio::spawn(async move {
            // Until the target is gone. What comes back is somebody else's business.
            while !stop.load(Ordering::SeqCst) {
                let next = note.load(Ordering::SeqCst) + 1;
                if writer.write(&token(next), &next.to_string()).await.is_err() {
                    return;
                }
                note.store(next, Ordering::SeqCst);
            }
        });
        tokio::time::sleep(Duration::from_millis(dice.below(40))).await;
        let had_one = subject.crash().await;
        over.store(true, Ordering::SeqCst);
        writing.await.map_err(|panic| o.broken(format!("the writer panicked: {panic}")))?;
        if !had_one {
            return Ok(0);
        }
        let last_told = told.load(Ordering::SeqCst);
        acked.extend(claimed + 1..=last_told);
        let applied: Vec<u64> = subject.applied().await.iter().map(|one| one.number.get()).collect();
        match applied.strip_prefix(acked.as_slice()) {
            Some([]) => {}
            Some([one]) if *one == last_told + 1 => acked.push(*one),
            _ => {
                let (have, want) = (applied.len(), acked.len());
                return Err(o.broken(format!(
                    "crash {round}: {want} writes were acknowledged up to {last_told}, and {have} are there: {:?} at the end",
                    &applied[applied.len().saturating_sub(3)..]
                )));
            }
        }
        let stands = acked.last().copied().unwrap_or(0).max(claimed);
        mark(subject, o, Some(stands)).await?;
    }
    let whole = |one: &Applied| one.value == one.number.get().to_string();
    if let Some(torn) = subject.applied().await.iter().find(|one| !whole(one)) {
        return Err(o.broken(format!("a write is not whole: {torn:?}")));
    }
    Ok(acked.len() as u64)
}
