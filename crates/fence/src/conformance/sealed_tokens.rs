//! Sealed token texts: read like plain ones where nothing verifies, and verified at a sealed fence.

use super::order::{applied, mark};
use super::subject::{FenceWriter, Subject};
use super::tokens::{forged_tokens, number, seal_keys, sealed_token, token};
use super::violation::{ConformanceError, Obligation};
use crate::SealVerifier;

/// Without keys a sealed text means what its first 76 bytes mean.
pub(super) async fn texts<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let mut holder = s.writer().await;
    let claimed = o.succeeds("a claim with a sealed text", holder.claim(&sealed_token(40)).await)?;
    o.equal("the number claimed", &claimed.get(), &40)?;
    o.succeeds("a write with a sealed text", holder.write(&sealed_token(40), "first").await)?;
    o.succeeds("a write with the plain text of the same token", holder.write(&token(40), "second").await)?;
    mark(s, o, Some(40)).await?;
    let mut successor = s.writer().await;
    o.succeeds("a claim with a higher sealed text", successor.claim(&sealed_token(41)).await)?;
    for stale in [token(40), sealed_token(40)] {
        o.refused("a write below the mark", "STALE_TOKEN", holder.write(&stale, "late").await)?;
    }
    o.succeeds("a write of the successor", successor.write(&sealed_token(41), "third").await)?;
    mark(s, o, Some(41)).await?;
    applied(s, o, &[(40, "first"), (40, "second"), (41, "third")]).await?;
    Ok(true)
}

/// A sealed fence admits what a key signed, and refuses everything else with its reason.
pub(super) async fn verified<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let verifier = SealVerifier::new(seal_keys());
    let Some(mut holder) = s.sealed_writer(&verifier).await else { return Ok(false) };
    o.equal("whether it was sealed", &o.succeeds("sealing", s.seal().await)?, &true)?;
    o.succeeds("a claim with a sealed token", holder.claim(&sealed_token(40)).await)?;
    o.succeeds("a write with a sealed token", holder.write(&sealed_token(40), "first").await)?;
    // Above the mark, so that the fence has no other reason to reject them.
    for (what, text, reason) in forged_tokens(50) {
        for outcome in [holder.claim(&text).await.map(drop), holder.write(&text, "forged").await] {
            let error = o.refused(&what, "TOKEN_INVALID", outcome)?;
            let actual = error.refusal().map(|refusal| refusal.reason());
            o.equal(&format!("the reason for refusing {what}"), &actual, &Some(reason))?;
        }
    }
    mark(s, o, Some(40)).await?;
    if let Some(marks) = o.succeeds("listing the marks", s.list_marks().await)? {
        o.equal("whether the mark is listed as sealed", &marks.iter().all(|mark| mark.sealed), &true)?;
    }
    o.succeeds("a claim of the successor", holder.claim(&sealed_token(41)).await)?;
    o.refused("a sealed token below the mark", "STALE_TOKEN", holder.write(&sealed_token(40), "late").await)?;
    applied(s, o, &[(40, "first")]).await?;
    Ok(true)
}

/// The seal is stored with the mark: a process without keys admits nothing, and no action of an operator removes it.
pub(super) async fn permanent<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    if s.keys_in_target() {
        return Ok(false);
    }
    s.fresh().await;
    let verifier = SealVerifier::new(seal_keys());
    let Some(mut holder) = s.sealed_writer(&verifier).await else { return Ok(false) };
    // Opened before the fence is sealed: it learns that from the mark.
    let mut other = s.writer().await;
    o.succeeds("a plain claim before the fence is sealed", other.claim(&token(39)).await)?;
    o.succeeds("sealing", s.seal().await)?;
    o.refused("the same plain claim afterwards", "TOKEN_INVALID", other.claim(&token(39)).await)?;
    o.succeeds("a claim with a sealed token", holder.claim(&sealed_token(40)).await)?;
    o.succeeds("sealing again", s.seal().await)?;
    if o.succeeds("making the fence strict", s.strict(true).await)? {
        o.succeeds("making the fence lenient", s.strict(false).await)?;
    }
    if o.succeeds("declaring the mark lost", s.declare_lost().await)? {
        o.succeeds("re-arming", s.rearm(number(45)).await)?;
    }
    o.refused("a plain claim without keys", "TOKEN_INVALID", other.claim(&token(50)).await)?;
    o.refused("a plain write without keys", "TOKEN_INVALID", other.write(&token(50), "plain").await)?;
    if !s.relies_on_clients() {
        o.refused("a sealed token without keys", "CONFIG", other.claim(&sealed_token(60)).await)?;
        for (what, text, _) in forged_tokens(60) {
            let admitted = other.write(&text, "forged").await.is_ok();
            o.equal(&format!("whether {what} is admitted without keys"), &admitted, &false)?;
        }
    }
    applied(s, o, &[]).await?;
    o.succeeds("a claim with keys", holder.claim(&sealed_token(61)).await)?;
    Ok(true)
}
