//! The doors of the server: one port, gRPC and HTTP behind it, and one way from there to a turn.

mod calls;
mod http;
mod looks;
mod openapi;
mod past;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use leasehold_core::command::{Answer, Request};
use leasehold_core::grantor::Grantor;
use leasehold_core::ids::SessionId;
use leasehold_wire::{Caller, Code, Issuer, problem, session_bits, v1};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;

use crate::desk::{To, Told};
use crate::inbox::{Ask, Body, Full, Inbox, Tell};
use crate::keep::Keeping;
use crate::meter::Meter;
use crate::secret;
use crate::watch::{Seen, Watchers};

pub use calls::{Calls, Marks};
pub use http::{Problem, Refused, routes, served};
pub use openapi::document;

/// What every door needs. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    /// The way to a turn.
    pub inbox: Arc<Inbox>,
    /// Whose tokens are given out here.
    pub issuer: Issuer,
    /// Those who watch.
    pub watchers: Arc<Watchers>,
    /// What is measured.
    pub meter: Arc<Meter>,
    /// What is kept behind the turns.
    pub keeping: Arc<Keeping>,
}

impl Api {
    /// Asks, and waits for the final answer.
    pub async fn ask(&self, request: Request, body: Body, caller: Caller) -> Result<Told, v1::Problem> {
        let (to, told) = oneshot::channel();
        self.inbox.ask(Ask { request, body, caller, to: To::Caller(to) }).map_err(|Full| too_many())?;
        told.await.map_err(|_| stopping())
    }

    /// Looks at the state, and hears what was seen when it may be told.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Grantor) -> T + Send + 'static,
    ) -> Result<T, v1::Problem> {
        self.look_from(0, look).await.map(|(seen, _)| seen)
    }

    /// The same with the journal position that it depends on, which must be at least this (E1).
    pub async fn look_from<T: Send + 'static>(
        &self,
        least: u64,
        look: impl FnOnce(&Grantor) -> T + Send + 'static,
    ) -> Result<(T, u64), v1::Problem> {
        let (to, seen) = oneshot::channel();
        let look = move |grantor: &Grantor| {
            let seen = look(grantor);
            let tell: Tell = Box::new(move |position| {
                // Whoever went away meanwhile does not want to know any more.
                let _ = to.send((seen, position));
            });
            tell
        };
        self.inbox.look(Box::new(look)).map_err(|Full| too_many())?;
        let (seen, position) = seen.await.map_err(|_| stopping())?;
        if position < least { Err(behind(least, position)) } else { Ok((seen, position)) }
    }

    /// One request of a single call. A wait without a session gets one that carries the wait and nothing else: what is
    /// granted lives by its own ttl and token.
    pub async fn call(
        &self,
        marks: Marks,
        mut ask: v1::request::Ask,
    ) -> Result<(v1::response::Answer, u64), v1::Problem> {
        let caller = self.caller();
        let wait = match &mut ask {
            v1::request::Ask::Acquire(acquire) => wait_of(&acquire.terms, &mut acquire.session),
            v1::request::Ask::AcquireAll(all) => wait_of(&all.terms, &mut all.session),
            _ => None,
        };
        let for_wait = match wait {
            Some(session) => {
                let waiting = WaitSession::open(self).await?;
                *session = Some(session_bits(waiting.id));
                Some(waiting)
            }
            None => None,
        };
        let id = marks.key.map(|key| key.id(0));
        let request = leasehold_wire::request(0, &ask, id, marks.seen, &self.issuer);
        let told = self.ask(request, Body::Ask(Box::new(ask)), caller).await?;
        drop(for_wait);
        Ok((stream::spell_answer(&told, self), told.position))
    }

    /// Everything that happens under a prefix, from now on. Whoever reads too slowly is told that it missed something, and
    /// nothing after that.
    pub fn watch(&self, prefix: String) -> impl Stream<Item = Result<Seen, v1::Problem>> + Send + use<> {
        let watching = Some((self.watchers.watch(), prefix, self.meter.clone()));
        futures::stream::unfold(watching, |watching| async move {
            let (mut events, prefix, meter) = watching?;
            loop {
                match events.recv().await {
                    Ok(seen) if covers(&prefix, &seen.resource) => {
                        return Some((Ok(seen), Some((events, prefix, meter))));
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(missed)) => {
                        meter.events_missed(missed);
                        return Some((Err(missed_some(missed)), None));
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        })
    }

    /// Who asks without a stream.
    pub fn caller(&self) -> Caller {
        Caller { session: None, issuer: self.issuer }
    }
}

/// Where the session of a wait goes, if there is a wait and no session.
fn wait_of<'a>(terms: &Option<v1::Terms>, session: &'a mut Option<u64>) -> Option<&'a mut Option<u64>> {
    let waits = terms.as_ref().is_some_and(|terms| terms.wait_ms > 0);
    (waits && session.is_none()).then_some(session)
}

/// A session for the wait of one call. It is renewed while the call lasts; when the call ends, or whoever called goes
/// away, the wait ends with it.
struct WaitSession {
    api: Api,
    id: SessionId,
    renewing: tokio::task::JoinHandle<()>,
}

/// How long a wait outlives its caller at most.
const WAIT_TTL: u64 = 10_000;

impl WaitSession {
    async fn open(api: &Api) -> Result<Self, v1::Problem> {
        let open = v1::OpenSession { holder: "a waiting call".into(), ttl_ms: WAIT_TTL, waits_only: true };
        let told = api.ask(Request::tagged(0), Body::Open(open, secret::draw()), api.caller()).await?;
        let id = match told.answer {
            Answer::Session(grant) => grant.session,
            Answer::Refused(refusal) => return Err(problem(&refusal)),
            _ => return Err(stopping()),
        };
        let renewing = tokio::spawn({
            let api = api.clone();
            async move {
                let mut beat = tokio::time::interval(Duration::from_millis(WAIT_TTL / 3));
                loop {
                    beat.tick().await;
                    let renew = v1::RenewSession { session: Some(session_bits(id)), ..Default::default() };
                    let body = Body::Ask(Box::new(v1::request::Ask::RenewSession(renew)));
                    if api.ask(Request::tagged(0), body, api.caller()).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { api: api.clone(), id, renewing })
    }
}

impl Drop for WaitSession {
    fn drop(&mut self) {
        self.renewing.abort();
        let close = v1::CloseSession { session: Some(session_bits(self.id)) };
        let body = Body::Ask(Box::new(v1::request::Ask::CloseSession(close)));
        let (to, _) = oneshot::channel();
        let ask = Ask { request: Request::tagged(0), body, caller: self.api.caller(), to: To::Caller(to) };
        // If even this finds no room, the session ends by its ttl.
        let _ = self.api.inbox.ask(ask);
    }
}

/// Whether a prefix of whole segments covers a resource.
fn covers(prefix: &str, resource: &str) -> bool {
    let rest = resource.strip_prefix(prefix);
    prefix.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A watcher read too slowly.
fn missed_some(missed: u64) -> v1::Problem {
    let max = crate::watch::UNREAD as u64;
    let told = v1::Problem::of(Code::ResourceExhausted, "events were missed; list what is there, and watch again");
    v1::Problem { limit: "unread".into(), max: Some(max), got: Some(max + missed), ..told }
}

/// Too many requests wait for a turn.
pub fn too_many() -> v1::Problem {
    let problem = v1::Problem::of(Code::Unavailable, "too many requests wait; retry the same request in a moment");
    v1::Problem { retry_after_ms: Some(100), ..problem }
}

/// A reader has seen more than there is here.
fn behind(least: u64, position: u64) -> v1::Problem {
    let message = format!(
        "min_position: the journal is at {position}, and {least} was asked for; ask the server that told of it, or later"
    );
    let problem = v1::Problem::of(Code::Unavailable, message);
    v1::Problem { field: "min_position".into(), max: Some(position), got: Some(least), ..problem }
}

/// The driver went away before it answered: the outcome is not known.
pub fn stopping() -> v1::Problem {
    v1::Problem::of(Code::Indeterminate, "the server stopped before it answered; ask again under the same request id")
}
