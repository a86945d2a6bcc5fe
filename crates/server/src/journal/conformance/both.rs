//! Two futures at once, so that a check can do something beside an append.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Both at once, on one thread.
pub(super) async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut done, mut over) = (None, None);
    poll_fn(|context| {
        if done.is_none()
            && let Poll::Ready(answer) = one.as_mut().poll(context)
        {
            done = Some(answer);
        }
        if over.is_none()
            && let Poll::Ready(answer) = other.as_mut().poll(context)
        {
            over = Some(answer);
        }
        if done.is_some() && over.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (done.expect("both are ready"), over.expect("both are ready"))
}
