//! Missing and lost marks: the fence rejects every token, and never starts at zero.

use leasehold_core::name::resource_hash;

use super::order::applied;
use super::subject::{FenceWriter, Subject};
use super::tokens::{CLUSTER, INCARNATION, RESOURCE, number, token};
use super::violation::{ConformanceError, Obligation};
use crate::Mark;

pub(super) async fn unarmed<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    if !s.unarmed().await {
        return Ok(false);
    }
    let mut holder = s.writer().await;
    o.refused("a claim", "STORAGE_FAILED", holder.claim(&token(60)).await)?;
    o.refused("a write", "STORAGE_FAILED", holder.write(&token(60), "unarmed").await)?;
    o.refused("reading the mark", "STORAGE_FAILED", s.mark().await)?;
    Ok(true)
}

pub(super) async fn declared<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.succeeds("a claim", holder.claim(&token(70)).await)?;
    o.succeeds("a write", holder.write(&token(70), "before").await)?;
    if !o.succeeds("declaring the mark lost", s.declare_lost().await)? {
        return Ok(false);
    }
    for number in [69, 70, 71] {
        o.refused("a claim while the mark is lost", "STORAGE_FAILED", holder.claim(&token(number)).await)?;
        o.refused("a write while the mark is lost", "STORAGE_FAILED", holder.write(&token(number), "lost").await)?;
    }
    o.refused("reading the mark", "STORAGE_FAILED", s.mark().await)?;
    o.refused("re-arming below the mark", "CONFLICT", s.rearm(number(69)).await)?;
    o.refused("a claim after that", "STORAGE_FAILED", holder.claim(&token(71)).await)?;
    let armed = o.succeeds("re-arming from a floor", s.rearm(number(80)).await)?;
    o.equal("a target that can lose its mark can re-arm it", &armed, &true)?;
    o.refused("a holder below the floor", "STALE_TOKEN", holder.write(&token(79), "late").await)?;
    o.succeeds("a holder above the floor", holder.write(&token(81), "after").await)?;
    applied(s, o, &[(70, "before"), (81, "after")]).await?;
    Ok(true)
}

pub(super) async fn listed<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let Some(fresh) = o.succeeds("listing the marks", s.list_marks().await)? else { return Ok(false) };
    o.equal("the number of marks of a fresh target", &fresh.len(), &1)?;
    o.equal("the mark of a fresh target", &fresh[0].mark, &Mark::Fresh)?;
    let mut holder = s.writer().await;
    o.succeeds("a claim", holder.claim(&token(90)).await)?;
    let marks = o.succeeds("listing the marks", s.list_marks().await)?.unwrap_or_default();
    o.equal("the number of marks", &marks.len(), &1)?;
    let one = &marks[0];
    let resource = format!("{:016x}", u64::from_be_bytes(resource_hash(RESOURCE)));
    o.equal(
        "cluster, resource and slot",
        &(one.cluster, one.resource_hash.as_str(), one.slot),
        &(CLUSTER, resource.as_str(), 0),
    )?;
    o.equal("the mark", &one.mark, &Mark::Armed(number(90)))?;
    o.equal("the incarnation", &one.incarnation, &Some(INCARNATION))?;
    if let Some(name) = &one.name {
        o.equal("the name", &name.as_str(), &RESOURCE)?;
    }
    if o.succeeds("declaring the mark lost", s.declare_lost().await)? {
        let marks = o.succeeds("listing a lost mark", s.list_marks().await)?.unwrap_or_default();
        o.equal("a lost mark", &marks.iter().map(|info| info.mark).collect::<Vec<_>>(), &vec![Mark::Lost])?;
    }
    Ok(true)
}
