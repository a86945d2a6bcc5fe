//! The doors of the server: one port, gRPC and HTTP behind it, and one way from there to a turn.

mod calls;
mod http;
mod library;
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
use leasehold_core::name::{NameError, Prefix};
use leasehold_wire::{Caller, Code, Issuer, problem, session_bits, session_id, v1};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;

use crate::cluster::{Following, Standing};
use crate::desk::{To, Told};
use crate::inbox::{Ask, Body, Inbox, NotTaken, Seat, Tell};
use crate::keep::Keeping;
use crate::meter::Meter;
use crate::secret;
use crate::watch::{Heard, Seen, Watchers};

pub use calls::{Calls, Marks};
pub use http::{Problem, Refused, routes, served};
pub use library::of_library;
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
    /// What this server is among those over its journal.
    pub standing: Arc<Standing>,
    /// The state that is looked at where no turns are taken, because another server leads.
    pub following: Option<Arc<Following>>,
}

impl Api {
    /// Asks, and waits for the final answer.
    pub async fn ask(&self, request: Request, body: Body, caller: Caller) -> Result<Told, v1::Problem> {
        let (to, told) = oneshot::channel();
        self.inbox.ask(Ask::new(request, body, caller, To::Caller(to))).map_err(not_taken)?;
        told.await.map(heard).map_err(|_| unanswered())
    }

    /// The same for a wait that nobody can ask for again: if whoever asked goes away, so does the wait (W3).
    async fn ask_once(
        &self,
        session: SessionId,
        request: Request,
        body: Body,
        caller: Caller,
    ) -> Result<Told, v1::Problem> {
        let (to, told) = oneshot::channel();
        let seat = Arc::new(Seat::default());
        let ask = Ask::new(request, body, caller, To::Caller(to)).from(seat.clone());
        let mut leaving = Leaving { inbox: self.inbox.clone(), session, seat: Some(seat) };
        self.inbox.ask(ask).map_err(not_taken)?;
        let answer = told.await.map(heard).map_err(|_| unanswered());
        leaving.seat = None;
        answer
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
        if let Some(following) = &self.following {
            let (seen, position) = following.look(look).ok_or_else(nothing_yet)?;
            return if position < least { Err(behind(least, position)) } else { Ok((seen, position)) };
        }
        let (to, seen) = oneshot::channel();
        let look = move |grantor: &Grantor| {
            let seen = look(grantor);
            let tell: Tell = Box::new(move |position| {
                // Whoever went away meanwhile does not want to know any more.
                let _ = to.send((seen, position));
            });
            tell
        };
        self.inbox.look(Box::new(look)).map_err(not_taken)?;
        let (seen, position) = seen.await.map_err(|_| unanswered())?;
        if position < least { Err(behind(least, position)) } else { Ok((seen, position)) }
    }

    /// One request of a single call. A wait without a session gets one that carries the wait and nothing else: what is
    /// granted lives by its own ttl and token.
    pub async fn call(
        &self,
        marks: Marks,
        mut ask: v1::request::Ask,
    ) -> Result<(v1::response::Answer, u64), v1::Problem> {
        self.may_step_down(&ask).await?;
        let caller = self.caller();
        let wait = match &mut ask {
            v1::request::Ask::Acquire(acquire) => wait_of(&acquire.terms, &mut acquire.session),
            v1::request::Ask::AcquireAll(all) => wait_of(&all.terms, &mut all.session),
            _ => None,
        };
        let for_wait = match wait {
            // Whoever asks again under the key asks that session for the wait.
            Some(session) if marks.key.is_some() => {
                *session = marks.key.map(|key| session_bits(key.session));
                None
            }
            Some(session) => {
                let waiting = WaitSession::open(self).await?;
                *session = Some(session_bits(waiting.id));
                Some(waiting)
            }
            None => None,
        };
        let id = marks.key.map(|key| key.id(0));
        let request = leasehold_wire::request(0, &ask, id, marks.seen, &self.issuer);
        let session = waits_in(&ask).filter(|_| request.id.is_none() && for_wait.is_none());
        let body = Body::Ask(Box::new(ask));
        let told = match session {
            Some(session) => self.ask_once(session, request, body, caller).await?,
            None => self.ask(request, body, caller).await?,
        };
        drop(for_wait);
        Ok((stream::spell_answer(&told, self), told.position))
    }

    /// Everything that happens under a prefix, from now on. Whoever reads too slowly is told that it missed something, and
    /// nothing after that; the last word of a server that stops says so.
    pub fn watch(
        &self,
        prefix: String,
    ) -> Result<impl Stream<Item = Result<Seen, v1::Problem>> + Send + use<>, NameError> {
        Prefix::parse(&prefix)?;
        let watching = Some((self.watchers.watch(), prefix, self.meter.clone()));
        Ok(futures::stream::unfold(watching, |watching| async move {
            let (events, prefix, meter) = watching?;
            let Some(mut events) = events else { return Some((Err(being_stopped()), None)) };
            loop {
                match events.recv().await {
                    Ok(Heard::Seen(seen)) if covers(&prefix, &seen.resource) => {
                        return Some((Ok(seen), Some((Some(events), prefix, meter))));
                    }
                    Ok(Heard::Seen(_)) => {}
                    Ok(Heard::Over) => return Some((Err(being_stopped()), None)),
                    Err(RecvError::Lagged(missed)) => {
                        meter.events_missed(missed);
                        return Some((Err(missed_some(missed)), None));
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        }))
    }

    /// This server and the others over its journal.
    pub async fn cluster(&self) -> (v1::ClusterView, u64) {
        let position = self.meter.position();
        (self.standing.view(position).await, position)
    }

    /// Whether somebody could lead in this server's place is asked before it gives that up: whoever has nobody beside it
    /// would only stop deciding for a moment.
    async fn may_step_down(&self, ask: &v1::request::Ask) -> Result<(), v1::Problem> {
        let asked = matches!(ask, v1::request::Ask::StepDown(_)) && !self.standing.is_alone();
        if !asked || self.standing.has_successor().await {
            return Ok(());
        }
        let told = "no other server stands by, and nothing happened; start another one first";
        Err(v1::Problem { about: "standby".into(), ..v1::Problem::of(Code::NotFound, told) })
    }

    /// Who asks without a stream.
    pub fn caller(&self) -> Caller {
        Caller { session: None, issuer: self.issuer }
    }
}

/// The answer has come to somebody who is there.
fn heard(mut told: Told) -> Told {
    if let Some(unheard) = told.unheard.take() {
        unheard.heard();
    }
    told
}

/// The session that carries a wait.
fn waits_in(ask: &v1::request::Ask) -> Option<SessionId> {
    let (terms, session) = match ask {
        v1::request::Ask::Acquire(acquire) => (&acquire.terms, acquire.session),
        v1::request::Ask::AcquireAll(all) => (&all.terms, all.session),
        _ => return None,
    };
    session.filter(|_| terms.as_ref().is_some_and(|terms| terms.wait_ms > 0)).map(session_id)
}

/// Tells the turns that a caller has gone, when it goes.
struct Leaving {
    inbox: Arc<Inbox>,
    session: SessionId,
    /// None once it is answered.
    seat: Option<Arc<Seat>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(mark) = self.seat.take().and_then(|seat| seat.leave()) {
            // A server that stops ends all waits.
            let _ = self.inbox.leave(self.session, mark);
        }
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
        let (asked, beat) = (std::time::Instant::now(), Duration::from_millis(WAIT_TTL / 3));
        let open = v1::OpenSession { holder: "a waiting call".into(), ttl_ms: WAIT_TTL, waits_only: true };
        let told = api.ask(Request::tagged(0), Body::Open(open, secret::draw()), api.caller()).await?;
        let id = match told.answer {
            Answer::Session(grant) => grant.session,
            Answer::Refused(refusal) => return Err(problem(&refusal)),
            _ => return Err(unanswered()),
        };
        let renew = move |api: Api| async move {
            let renew = v1::RenewSession { session: Some(session_bits(id)), ..Default::default() };
            let body = Body::Ask(Box::new(v1::request::Ask::RenewSession(renew)));
            // Where there is no room now, there may be by the next beat.
            let _ = api.ask(Request::tagged(0), body, api.caller()).await;
        };
        // A journal that stood still meanwhile has used its time up.
        if asked.elapsed() > beat {
            renew(api.clone()).await;
        }
        let renewing = tokio::spawn({
            let api = api.clone();
            async move {
                loop {
                    tokio::time::sleep(beat).await;
                    renew(api.clone()).await;
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
        let ask = Ask::new(Request::tagged(0), body, self.api.caller(), To::Caller(to));
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

/// It was not taken, and nothing happened.
fn not_taken(why: NotTaken) -> v1::Problem {
    match why {
        NotTaken::Full => {
            let told = "too many requests wait; retry the same request in a moment";
            v1::Problem { retry_after_ms: Some(100), ..v1::Problem::of(Code::Unavailable, told) }
        }
        NotTaken::Stopping => being_stopped(),
    }
}

/// Nothing is taken any more.
fn being_stopped() -> v1::Problem {
    v1::Problem::of(Code::Unavailable, "the server is being stopped; ask again when it is back")
}

/// A server that stands by has just begun to.
fn nothing_yet() -> v1::Problem {
    let told = "this server stands by and knows nothing yet; ask again in a moment, or ask the leader";
    v1::Problem { retry_after_ms: Some(200), ..v1::Problem::of(Code::Unavailable, told) }
}

/// A reader has seen more than there is here.
pub(crate) fn behind(least: u64, position: u64) -> v1::Problem {
    let message = format!(
        "min_position: the journal is at {position}, and {least} was asked for; ask the server that told of it, or later"
    );
    let problem = v1::Problem::of(Code::Unavailable, message);
    v1::Problem { field: "min_position".into(), max: Some(position), got: Some(least), ..problem }
}

/// Nobody answers any more, so the outcome is not known (X3).
fn unanswered() -> v1::Problem {
    let told = "the server stopped, or the same request was asked elsewhere; ask again under the same request id";
    v1::Problem::of(Code::Indeterminate, told)
}
