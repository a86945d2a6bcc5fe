//! What is shown by mistake: no token, half a token, somebody else's token.

use super::order::{applied, mark};
use super::subject::{Subject, Writer};
use super::tokens::{mistakes, token};
use super::violation::{Obligation, Violation};

pub(super) async fn refused<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.done("a claim", holder.claim(&token(40)).await)?;
    o.done("a write", holder.write(&token(40), "first").await)?;
    // Above the mark, so that only the mistake can be the reason.
    for (what, text, code) in mistakes(50) {
        o.refused(&format!("a claim with {what}"), code, holder.claim(&text).await)?;
        o.refused(&format!("a write with {what}"), code, holder.write(&text, "by mistake").await)?;
    }
    mark(s, o, Some(40)).await?;
    applied(s, o, &[(40, "first")]).await?;
    o.done("a write after all the mistakes", holder.write(&token(40), "second").await)?;
    applied(s, o, &[(40, "first"), (40, "second")]).await?;
    Ok(true)
}
