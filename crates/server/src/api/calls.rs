//! Single calls, for people and other languages: each is one request or one look, and one answer.

use futures::StreamExt;
use leasehold_core::command::Request as CoreRequest;
use leasehold_core::grantor::Grantor;
use leasehold_wire::headers::{IDEMPOTENCY_KEY, Key, TOKEN_SEEN};
use leasehold_wire::v1::leasehold_server::Leasehold;
use leasehold_wire::v1::request::Ask;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{
    charter, deadlock_view, ended, event, lease_view, problem, read_shown, resource_view, status, status_view, usage,
    usage_list, v1, waiter_view, welcome,
};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::stream::{self, Sending};
use super::{Api, stopping};
use crate::inbox::Body;
use crate::secret;

/// Most resources of one page of a list, and most places looked at for it.
const PAGE: usize = 1_000;
const LOOKED_AT: u32 = 1 << 16;

/// The gRPC service.
#[derive(Clone)]
pub struct Calls(pub Api);

impl Calls {
    /// One request, and the answer as it is told.
    async fn one(&self, metadata: &MetadataMap, ask: Ask) -> Result<Answer, Status> {
        let told = self.0.call(marks(metadata, &self.0)?, ask).await.map_err(status)?;
        match told {
            Answer::Refused(problem) => Err(status(*problem)),
            answer => Ok(answer),
        }
    }

    /// A request that is done or not.
    async fn done(&self, metadata: &MetadataMap, ask: Ask) -> Result<Response<v1::Done>, Status> {
        self.one(metadata, ask).await.map(|_| Response::new(v1::Done {}))
    }

    async fn seen<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Grantor) -> T + Send + 'static,
    ) -> Result<Response<T>, Status> {
        self.0.look(look).await.map(Response::new).map_err(status)
    }
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
    status(stopping())
}

#[tonic::async_trait]
impl Leasehold for Calls {
    type SessionStream = Sending;
    type WatchStream = std::pin::Pin<Box<dyn futures::Stream<Item = Result<v1::Event, Status>> + Send>>;

    async fn session(&self, from: Request<Streaming<v1::ClientBatch>>) -> Result<Response<Sending>, Status> {
        stream::serve(self.0.clone(), from.into_inner()).await.map(Response::new)
    }

    async fn open(&self, from: Request<v1::OpenSession>) -> Result<Response<v1::Welcome>, Status> {
        let drawn = secret::draw();
        let seen = marks(from.metadata(), &self.0)?.seen;
        let request = CoreRequest { tag: 0, id: None, shown: seen };
        let told = self.0.ask(request, Body::Open(from.into_inner(), drawn), self.0.caller()).await;
        let answer = told.map_err(status)?.answer;
        match answer {
            leasehold_core::command::Answer::Session(grant) => {
                self.seen(move |grantor| welcome(&grant, Some(drawn), &grantor.status())).await
            }
            leasehold_core::command::Answer::Refused(refusal) => Err(status(problem(&refusal))),
            _ => Err(unexpected()),
        }
    }

    async fn renew_session(&self, from: Request<v1::RenewSession>) -> Result<Response<v1::SessionState>, Status> {
        let (metadata, _, ask) = from.into_parts();
        match self.one(&metadata, Ask::RenewSession(ask)).await? {
            Answer::Session(session) => Ok(Response::new(session)),
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
            Answer::Granted(grant) => Ok(Response::new(grant)),
            _ => Err(unexpected()),
        }
    }

    async fn acquire_all(&self, from: Request<v1::AcquireAll>) -> Result<Response<v1::Grants>, Status> {
        let (metadata, _, ask) = from.into_parts();
        match self.one(&metadata, Ask::AcquireAll(ask)).await? {
            Answer::GrantedAll(grants) => Ok(Response::new(grants)),
            _ => Err(unexpected()),
        }
    }

    async fn renew(&self, from: Request<v1::Renew>) -> Result<Response<v1::Current>, Status> {
        let (metadata, _, ask) = from.into_parts();
        match self.one(&metadata, Ask::Renew(ask)).await? {
            Answer::Current(current) => Ok(Response::new(current)),
            _ => Err(unexpected()),
        }
    }

    async fn release(&self, from: Request<v1::Held>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::Release(ask)).await
    }

    async fn confirm(&self, from: Request<v1::Held>) -> Result<Response<v1::Current>, Status> {
        let (metadata, _, ask) = from.into_parts();
        match self.one(&metadata, Ask::Confirm(ask)).await? {
            Answer::Current(current) => Ok(Response::new(current)),
            _ => Err(unexpected()),
        }
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

    async fn waive_quarantine(&self, from: Request<v1::WaiveQuarantine>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::WaiveQuarantine(ask)).await
    }

    async fn show(&self, from: Request<v1::ShowRequest>) -> Result<Response<v1::ResourceView>, Status> {
        let name = from.into_inner().resource;
        let seen = self.seen(move |grantor| grantor.show(&name).map(|view| resource_view(&view))).await?.into_inner();
        let missing = leasehold_core::refusal::Refusal::NotFound(leasehold_core::refusal::What::Resource);
        seen.map(Response::new).ok_or_else(|| status(problem(&missing)))
    }

    async fn list(&self, from: Request<v1::ListRequest>) -> Result<Response<v1::ResourceList>, Status> {
        let from = from.into_inner();
        self.seen(move |grantor| {
            let most = if from.most == 0 { PAGE } else { PAGE.min(from.most as usize) };
            let (found, next) = grantor.list(&from.prefix, from.from, most, LOOKED_AT);
            v1::ResourceList { resources: found.iter().map(resource_view).collect(), next, position: 0 }
        })
        .await
    }

    async fn held_by(&self, from: Request<v1::HeldByRequest>) -> Result<Response<v1::LeaseList>, Status> {
        let holder = from.into_inner().holder;
        self.seen(move |grantor| v1::LeaseList { leases: grantor.held_by(&holder).iter().map(lease_view).collect() })
            .await
    }

    async fn waiters(&self, from: Request<v1::WaitersRequest>) -> Result<Response<v1::WaiterList>, Status> {
        let name = from.into_inner().resource;
        self.seen(move |grantor| v1::WaiterList { waiters: grantor.waiters(&name).iter().map(waiter_view).collect() })
            .await
    }

    async fn deadlocks(&self, _: Request<v1::DeadlocksRequest>) -> Result<Response<v1::DeadlockList>, Status> {
        self.seen(|grantor| v1::DeadlockList { deadlocks: grantor.deadlocks().map(deadlock_view).collect() }).await
    }

    async fn history(&self, from: Request<v1::HistoryRequest>) -> Result<Response<v1::EndedList>, Status> {
        let from = from.into_inner();
        self.seen(move |grantor| {
            let most = if from.most == 0 { PAGE } else { PAGE.min(from.most as usize) };
            v1::EndedList { ended: grantor.history(&from.resource, most).iter().map(ended).collect() }
        })
        .await
    }

    async fn usage(&self, from: Request<v1::UsageRequest>) -> Result<Response<v1::UsageList>, Status> {
        let holder = from.into_inner().holder;
        self.seen(move |grantor| {
            if holder.is_empty() {
                let (all, others) = grantor.usage_of_all();
                return usage_list(&all, &others);
            }
            v1::UsageList { holders: grantor.usage(&holder).iter().map(|used| usage(&holder, used)).collect() }
        })
        .await
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::Status>, Status> {
        self.seen(|grantor| status_view(&grantor.status(), 0)).await
    }

    async fn watch(&self, from: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let prefix = from.into_inner().prefix;
        let events = self.0.watch(prefix).map(|seen| match seen {
            Ok(seen) => Ok(event(&seen.event, 0, &seen.resource, &seen.holder)),
            Err(missed) => Err(status(missed)),
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn charters(&self, from: Request<v1::ChartersRequest>) -> Result<Response<v1::Charters>, Status> {
        let name = from.into_inner().resource;
        self.seen(move |grantor| {
            let entry = |(prefix, found): (&str, &leasehold_core::charter::Charter)| v1::CharterEntry {
                prefix: prefix.into(),
                charter: Some(charter(found)),
            };
            let charters = if name.is_empty() {
                grantor.charters().map(entry).collect()
            } else {
                grantor.charter_of(&name).into_iter().map(entry).collect()
            };
            v1::Charters { charters }
        })
        .await
    }

    async fn set_charter(&self, from: Request<v1::SetCharter>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::SetCharter(Box::new(ask))).await
    }

    async fn remove_charter(&self, from: Request<v1::RemoveCharter>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, ask) = from.into_parts();
        self.done(&metadata, Ask::RemoveCharter(ask)).await
    }
}
