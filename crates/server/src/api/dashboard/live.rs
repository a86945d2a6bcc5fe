//! `GET /ui/changes`: server-sent events that say when a page should be read again. They contain nothing but that.
//!
//! The journal position shows that something changed, so that no turn and no event does anything for an open page.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use leasehold_core::access::Action;

use super::super::Api;
use super::response::PageProblem;
use crate::access::StreamAccess;

/// Time between two looks at the journal position; also the shortest time between two updates of a page.
const LOOK: Duration = Duration::from_secs(1);
/// Looks after which a page is updated although nothing changed: renewals are in no journal.
const QUIET_LOOKS: u32 = 5;

/// Streams `refresh` when something changed, at most once a second. The stream ends with the rights of its reader (A10), and when the
/// server shuts down.
pub async fn changes(State(api): State<Api>) -> Result<Response, PageProblem> {
    let identity = api.authorize_current(Action::Status)?;
    let permit = api.access.traffic().of(&identity).map(|traffic| traffic.open_watch()).transpose();
    let permit = permit.inspect_err(|problem| api.denials.limit_reached(&identity, &problem.limit))?;
    let access = StreamAccess::of_action(&api.access, identity, Action::Status);
    let position = api.metrics.position();
    let state = (api, access, position, permit);
    let events = futures::stream::unfold(state, |(api, access, mut position, permit)| async move {
        for look in 1.. {
            let _ = tokio::time::timeout(LOOK, api.watchers.closed()).await;
            if api.watchers.is_closed() || access.end_reason().is_some() {
                return None;
            }
            let now = api.metrics.position();
            if now != position || look == QUIET_LOOKS {
                position = now;
                break;
            }
        }
        let event = Event::default().event("refresh").data(position.to_string());
        Some((Ok::<_, Infallible>(event), (api, access, position, permit)))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::default()).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
