//! Invalid tokens: none, a truncated one, one of another resource or cluster.

use super::order::{applied, mark};
use super::subject::{FenceWriter, Subject};
use super::tokens::{invalid_tokens, token};
use super::violation::{ConformanceError, Obligation};

pub(super) async fn rejected<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.succeeds("a claim", holder.claim(&token(40)).await)?;
    o.succeeds("a write", holder.write(&token(40), "first").await)?;
    // Above the mark, so that the fence has no other reason to reject them.
    for (what, text, code) in invalid_tokens(50) {
        o.refused(&format!("a claim with {what}"), code, holder.claim(&text).await)?;
        o.refused(&format!("a write with {what}"), code, holder.write(&text, "invalid").await)?;
    }
    mark(s, o, Some(40)).await?;
    applied(s, o, &[(40, "first")]).await?;
    o.succeeds("a write after all invalid tokens", holder.write(&token(40), "second").await)?;
    applied(s, o, &[(40, "first"), (40, "second")]).await?;
    Ok(true)
}
