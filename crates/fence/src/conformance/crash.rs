//! Crashes of the target: acknowledged writes survive, and a mark survives together with its effect or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::order::{applied, mark};
use super::race::SplitMix;
use super::subject::{FenceWriter, Subject};
use super::tokens::token;
use super::violation::{ConformanceError, Obligation};
use super::{AppliedEntry, DURABLE};

pub(super) async fn durable<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.succeeds("a claim", holder.claim(&token(130)).await)?;
    o.succeeds("a write", holder.write(&token(130), "kept").await)?;
    o.succeeds("the successor's claim", holder.claim(&token(131)).await)?;
    if !s.crash().await {
        return Ok(false);
    }
    let mut holder = s.writer().await;
    mark(s, o, Some(131)).await?;
    o.refused("a late write after the crash", "STALE_TOKEN", holder.write(&token(130), "late").await)?;
    o.succeeds("the successor's write", holder.write(&token(131), "after").await)?;
    applied(s, o, &[(130, "kept"), (131, "after")]).await?;
    Ok(true)
}

/// Kills the target's server `kills` times, at random moments during writes, each under a higher token. After each crash the
/// mark must be that of the last applied write, all acknowledged writes must exist, and at most the one in flight besides.
/// Returns the number of acknowledged writes; 0 if the target has no server.
pub async fn crashes<S: Subject>(subject: &S, kills: u64, seed: u64) -> Result<u64, ConformanceError> {
    let o = Obligation(DURABLE);
    let mut rng = SplitMix(seed);
    subject.fresh().await;
    let mut acked: Vec<u64> = Vec::new();
    for round in 1..=kills {
        let claimed = round * 1_000_000;
        let mut writer = subject.writer().await;
        o.succeeds("a claim between two crashes", writer.claim(&token(claimed)).await)?;
        let acked_number = Arc::new(AtomicU64::new(claimed));
        let (over, progress) = (Arc::new(AtomicBool::new(false)), acked_number.clone());
        let stop = over.clone();
        let writing = tokio::spawn(async move {
            // Until the server is killed.
            while !stop.load(Ordering::SeqCst) {
                let next = progress.load(Ordering::SeqCst) + 1;
                if writer.write(&token(next), &next.to_string()).await.is_err() {
                    return;
                }
                progress.store(next, Ordering::SeqCst);
            }
        });
        tokio::time::sleep(Duration::from_millis(rng.below(40))).await;
        let crashed = subject.crash().await;
        over.store(true, Ordering::SeqCst);
        writing.await.map_err(|panic| o.broken(format!("the writer panicked: {panic}")))?;
        if !crashed {
            return Ok(0);
        }
        let last_acked = acked_number.load(Ordering::SeqCst);
        acked.extend(claimed + 1..=last_acked);
        let applied: Vec<u64> = subject.applied().await.iter().map(|one| one.number.get()).collect();
        match applied.strip_prefix(acked.as_slice()) {
            Some([]) => {}
            Some([one]) if *one == last_acked + 1 => acked.push(*one),
            _ => {
                let (actual, expected) = (applied.len(), acked.len());
                return Err(o.broken(format!(
                    "crash {round}: {expected} writes were acknowledged up to {last_acked}, and {actual} exist, the last ones {:?}",
                    &applied[applied.len().saturating_sub(3)..]
                )));
            }
        }
        let expected_mark = acked.last().copied().unwrap_or(0).max(claimed);
        mark(subject, o, Some(expected_mark)).await?;
    }
    let is_complete = |one: &AppliedEntry| one.value == one.number.get().to_string();
    if let Some(torn) = subject.applied().await.iter().find(|one| !is_complete(one)) {
        return Err(o.broken(format!("a write is torn: {torn:?}")));
    }
    Ok(acked.len() as u64)
}
