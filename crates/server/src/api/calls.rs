//! Single calls, for people and other languages: each is one request or one look, and one answer.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_core::command::Request as CoreRequest;
use leasehold_core::lease::Reason;
use leasehold_wire::headers::{IDEMPOTENCY_KEY, Key, POSITION, TOKEN_SEEN};
use leasehold_wire::v1::leasehold_server::Leasehold;
use leasehold_wire::v1::request::Ask;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{event, problem, read_shown, status, v1, welcome};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::looks::{Seen, not_a_name};
use super::stream::{self, Sending};
use super::{Api, unanswered};
use crate::inbox::Body;
use crate::pace::Walk;
use crate::secret;
use crate::trail::{Asked, Broken, Entry, Hash, Head};

/// What is told piece by piece.
type Told<T> = std::pin::Pin<Box<dyn futures::Stream<Item = Result<T, Status>> + Send>>;

/// The gRPC service, and how long the first message of a stream is waited for.
#[derive(Clone)]
pub struct Calls(pub Api, pub Duration);

impl Calls {
    /// One request, and the answer as it is told.
    async fn one(&self, metadata: &MetadataMap, ask: Ask) -> Result<(Answer, u64), Status> {
        let (told, position) = self.0.call(marks(metadata, &self.0)?, ask).await.map_err(status)?;
        match told {
            Answer::Refused(problem) => Err(at(status(*problem), position)),
            answer => Ok((answer, position)),
        }
    }

    /// A request that is done or not.
    async fn done(&self, metadata: &MetadataMap, ask: Ask) -> Result<Response<v1::Done>, Status> {
        let (_, position) = self.one(metadata, ask).await?;
        told(v1::Done {}, position)
    }

    /// A request that leaves a lease current.
    async fn current(&self, metadata: &MetadataMap, ask: Ask) -> Result<Response<v1::Current>, Status> {
        match self.one(metadata, ask).await? {
            (Answer::Current(current), position) => told(current, position),
            _ => Err(unexpected()),
        }
    }
}

/// An answer with the journal position that it depends on.
fn told<T>(answer: T, position: u64) -> Result<Response<T>, Status> {
    let mut response = Response::new(answer);
    response.metadata_mut().insert(POSITION, position.into());
    Ok(response)
}

/// A refusal with the journal position that it depends on.
fn at(mut status: Status, position: u64) -> Status {
    status.metadata_mut().insert(POSITION, position.into());
    status
}

fn seen<T>(seen: Seen<T>) -> Result<Response<T>, Status> {
    let (seen, position) = seen.map_err(status)?;
    told(seen, position)
}

/// What stands beside a request: the key under which a retry is recognised, and the highest token seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// The key.
    pub key: Option<Key>,
    /// The highest token that the caller has seen.
    pub seen: Option<leasehold_core::token::Token>,
}

fn marks(metadata: &MetadataMap, api: &Api) -> Result<Marks, Status> {
    let text = |name: &'static str| match metadata.get(name) {
        None => Ok(None),
        Some(value) => value.to_str().map(Some).map_err(|_| invalid(name, "plain text")),
    };
    let key = match text(IDEMPOTENCY_KEY)? {
        None => None,
        Some(key) => {
            Some(Key::parse(key).map_err(|_| invalid(IDEMPOTENCY_KEY, "<session>:<sequence>, as in 17.0:42"))?)
        }
    };
    let seen = read_shown(text(TOKEN_SEEN)?.unwrap_or_default(), &api.issuer);
    Ok(Marks { key, seen: seen.map_err(|refusal| status(problem(&refusal)))? })
}

fn invalid(field: &'static str, reason: &'static str) -> Status {
    status(problem(&leasehold_core::refusal::Refusal::Invalid { field, reason }))
}

fn unexpected() -> Status {
    status(unanswered())
}

#[tonic::async_trait]
impl Leasehold for Calls {
    type SessionStream = Sending;
    type WatchStream = Told<v1::Event>;
    type BackupStream = Told<v1::BackupPiece>;
    type ExportTrailStream = Told<v1::TrailLines>;

    async fn session(&self, from: Request<Streaming<v1::ClientBatch>>) -> Result<Response<Sending>, Status> {
        let walk = from.extensions().get::<Arc<Walk>>().cloned();
        stream::serve(self.0.clone(), from.into_inner(), self.1, walk).await.map(Response::new)
    }

    async fn open(&self, from: Request<v1::OpenSession>) -> Result<Response<v1::Welcome>, Status> {
        let drawn = secret::draw();
        let shown = marks(from.metadata(), &self.0)?.seen;
        let request = CoreRequest { tag: 0, id: None, shown };
        let told = self.0.ask(request, Body::Open(from.into_inner(), drawn), self.0.caller()).await;
        let answer = told.map_err(status)?.answer;
        match answer {
            leasehold_core::command::Answer::Session(grant) => {
                seen(self.0.look_from(0, move |grantor| welcome(&grant, Some(drawn), &grantor.status())).await)
            }
            leasehold_core::command::Answer::Refused(refusal) => Err(status(problem(&refusal))),
            _ => Err(unexpected()),
        }
    }

    async fn renew_session(&self, from: Request<v1::RenewSession>) -> Result<Response<v1::SessionState>, Status> {
        let (metadata, _, ask) = from.into_parts();
        match self.one(&metadata, Ask::RenewSession(ask)).await? {
            (Answer::Session(session), position) => told(session, position),
            _ => Err(unexpected()),
        }
    }

    async fn close_session(&self, from: Request<v1::CloseSession>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::CloseSession(ask)).await
    }

    async fn acquire(&self, from: Request<v1::Acquire>) -> Result<Response<v1::Grant>, Status> {
        let (metadata, _, ask) = from.into_parts();
        match self.one(&metadata, Ask::Acquire(ask)).await? {
            (Answer::Granted(grant), position) => told(grant, position),
            _ => Err(unexpected()),
        }
    }

    async fn acquire_all(&self, from: Request<v1::AcquireAll>) -> Result<Response<v1::Grants>, Status> {
        let (metadata, _, ask) = from.into_parts();
        match self.one(&metadata, Ask::AcquireAll(ask)).await? {
            (Answer::GrantedAll(grants), position) => told(grants, position),
            _ => Err(unexpected()),
        }
    }

    async fn renew(&self, from: Request<v1::Renew>) -> Result<Response<v1::Current>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.current(&metadata, Ask::Renew(ask)).await
    }

    async fn release(&self, from: Request<v1::Held>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::Release(ask)).await
    }

    async fn confirm(&self, from: Request<v1::Held>) -> Result<Response<v1::Current>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.current(&metadata, Ask::Confirm(ask)).await
    }

    async fn revoke(&self, from: Request<v1::Revoke>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::Revoke(ask)).await
    }

    async fn hand_off(&self, from: Request<v1::HandOff>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::HandOff(ask)).await
    }

    async fn drained(&self, from: Request<v1::Held>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::Drained(ask)).await
    }

    async fn free(&self, from: Request<v1::Free>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::Free(ask)).await
    }

    async fn set_capacity(&self, from: Request<v1::SetCapacity>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::SetCapacity(ask)).await
    }

    async fn confirm_hold(&self, from: Request<v1::Held>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::ConfirmHold(ask)).await
    }

    async fn resize_hold(&self, from: Request<v1::ResizeHold>) -> Result<Response<v1::Current>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.current(&metadata, Ask::ResizeHold(ask)).await
    }

    async fn veto(&self, from: Request<v1::Veto>) -> Result<Response<v1::Current>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.current(&metadata, Ask::Veto(ask)).await
    }

    async fn waive_quarantine(&self, from: Request<v1::WaiveQuarantine>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::WaiveQuarantine(ask)).await
    }

    async fn step_down(&self, from: Request<v1::StepDown>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::StepDown(ask)).await
    }

    async fn cluster(&self, _: Request<v1::ClusterRequest>) -> Result<Response<v1::ClusterView>, Status> {
        let (view, position) = self.0.cluster().await;
        told(view, position)
    }

    async fn show(&self, from: Request<v1::ShowRequest>) -> Result<Response<v1::ResourceView>, Status> {
        seen(self.0.show(from.into_inner()).await)
    }

    async fn list(&self, from: Request<v1::ListRequest>) -> Result<Response<v1::ResourceList>, Status> {
        seen(self.0.list(from.into_inner()).await)
    }

    async fn held_by(&self, from: Request<v1::HeldByRequest>) -> Result<Response<v1::LeaseList>, Status> {
        seen(self.0.held_by(from.into_inner()).await)
    }

    async fn waiters(&self, from: Request<v1::WaitersRequest>) -> Result<Response<v1::WaiterList>, Status> {
        seen(self.0.waiters(from.into_inner()).await)
    }

    async fn deadlocks(&self, from: Request<v1::DeadlocksRequest>) -> Result<Response<v1::DeadlockList>, Status> {
        seen(self.0.deadlocks(from.into_inner()).await)
    }

    async fn history(&self, from: Request<v1::HistoryRequest>) -> Result<Response<v1::EndedList>, Status> {
        seen(self.0.ends(from.into_inner()).await)
    }

    async fn state(&self, from: Request<v1::StateRequest>) -> Result<Response<v1::StateList>, Status> {
        seen(self.0.state(from.into_inner()).await)
    }

    async fn queue(&self, from: Request<v1::QueueRequest>) -> Result<Response<v1::QueueView>, Status> {
        seen(self.0.queue(from.into_inner()).await)
    }

    async fn usage(&self, from: Request<v1::UsageRequest>) -> Result<Response<v1::UsageList>, Status> {
        seen(self.0.usage(from.into_inner()).await)
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::Status>, Status> {
        seen(self.0.status(0).await)
    }

    async fn watch(&self, from: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let prefix = from.into_inner().prefix;
        let events = self.0.watch(prefix).map_err(|error| status(not_a_name(error)))?.map(|seen| match seen {
            Ok(seen) => Ok(event(&seen.event, seen.position, &seen.resource, &seen.holder)),
            Err(missed) => Err(status(missed)),
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn charters(&self, from: Request<v1::ChartersRequest>) -> Result<Response<v1::Charters>, Status> {
        seen(self.0.charters(from.into_inner()).await)
    }

    async fn set_charter(&self, from: Request<v1::SetCharter>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::SetCharter(Box::new(ask))).await
    }

    async fn remove_charter(&self, from: Request<v1::RemoveCharter>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::RemoveCharter(ask)).await
    }

    async fn report(&self, from: Request<v1::Reports>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::Report(ask)).await
    }

    async fn fences(&self, from: Request<v1::FencesRequest>) -> Result<Response<v1::Fences>, Status> {
        seen(self.0.fences(from.into_inner()).await)
    }

    async fn forget_target(&self, from: Request<v1::ForgetTarget>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::ForgetTarget(ask)).await
    }

    async fn backup(&self, _: Request<v1::BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let (_, pieces) = self.0.backup().await.map_err(status)?;
        Ok(Response::new(Box::pin(
            pieces.map(|piece| piece.map(|bytes| v1::BackupPiece { bytes }).map_err(|problem| status(*problem))),
        )))
    }

    async fn trail(&self, from: Request<v1::TrailRequest>) -> Result<Response<v1::TrailPage>, Status> {
        let v1::TrailRequest { resource, after, before, oldest_first, most } = from.into_inner();
        let resource = (!resource.is_empty()).then_some(resource);
        let asked = Asked { resource, after, before, oldest_first, most: most as usize };
        let (entries, head) = self.0.trail(asked).await.map_err(status)?;
        let entries = entries.into_iter().map(|(text, hash)| entry(text, hash)).collect();
        let Head { entries: last, hash, position } = head;
        told(v1::TrailPage { entries, last, hash: hash.to_vec(), position }, position)
    }

    async fn export_trail(
        &self,
        _: Request<v1::ExportTrailRequest>,
    ) -> Result<Response<Self::ExportTrailStream>, Status> {
        let lines = self.0.export_trail().await.map_err(status)?;
        Ok(Response::new(Box::pin(
            lines.map(|piece| piece.map(|bytes| v1::TrailLines { bytes }).map_err(|problem| status(*problem))),
        )))
    }

    async fn verify_trail(&self, _: Request<v1::VerifyTrailRequest>) -> Result<Response<v1::TrailVerified>, Status> {
        Ok(Response::new(match self.0.verify_trail().await.map_err(status)? {
            Ok(found) => v1::TrailVerified {
                whole: true,
                first: found.first,
                last: found.last,
                hash: found.hash.to_vec(),
                ..Default::default()
            },
            Err(Broken::At { file, offset, why }) => v1::TrailVerified { file, offset, why, ..Default::default() },
            Err(Broken::NotTold(why)) => v1::TrailVerified { why: why.to_string(), ..Default::default() },
        }))
    }
}

/// An entry of the trail, as far as its text can be read.
fn entry(text: String, hash: Hash) -> v1::TrailEntry {
    let read = Entry::read(text.as_bytes()).unwrap_or_default();
    let word = |word: Option<std::borrow::Cow<'_, str>>| word.unwrap_or_default().into_owned();
    let reason = Reason::ALL.into_iter().find(|reason| read.reason.as_deref() == Some(reason.word()));
    v1::TrailEntry {
        entry: read.entry,
        position: read.position,
        time_ms: read.time_ms,
        wall_ms: read.wall_ms,
        kind: read.kind.into_owned(),
        resource: word(read.resource),
        holder: word(read.holder),
        lease: word(read.lease),
        session: word(read.session),
        token_number: read.token_number.and_then(|number| number.parse().ok()),
        state: reason.map_or(0, |reason| v1::State::from(reason.state()).into()),
        reason: reason.map_or(0, |reason| v1::Reason::from(reason).into()),
        why: word(read.why),
        hash: hash.to_vec(),
        text,
    }
}
