//! The gRPC service: each unary method is one command or one query.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use leasehold_core::command;
use leasehold_core::grantor::Query;
use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::SessionSecret;
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::headers::{POSITION, TRACEPARENT};
use leasehold_wire::v1::leasehold_server::Leasehold;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem, problem_to_status, session_id, v1, welcome};
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::Api;
use super::grpc_session::{self, ServerBatchStream};
use super::metadata::RequestMetadata;
use super::problems::no_reply;
use super::queries::{QueryResult, status_of};
use crate::audit::{AuditEntry, AuditHead, AuditQuery, Hash, VerifyError};
use crate::random;
use crate::request::RequestPayload;
use crate::transport::{RequestCharge, RequestRate};

/// A streamed response.
type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The gRPC service.
#[derive(Clone)]
pub struct GrpcService {
    /// The operations.
    pub api: Api,
    /// Time for the first message of a session stream.
    pub hello_timeout: Duration,
}

impl GrpcService {
    /// Executes an operation and returns its answer.
    async fn execute(&self, metadata: &MetadataMap, operation: Operation) -> Result<(Answer, u64), Status> {
        let metadata = parse_metadata(metadata, &self.api)?;
        match self.api.call(metadata, operation).await.map_err(problem_to_status)? {
            (Answer::Refused(problem), position) => Err(with_position(problem_to_status(*problem), position)),
            answer => Ok(answer),
        }
    }

    /// Executes an operation whose answer has no content.
    async fn execute_done(&self, metadata: &MetadataMap, operation: Operation) -> Result<Response<v1::Done>, Status> {
        let (_, position) = self.execute(metadata, operation).await?;
        respond(v1::Done {}, position)
    }

    /// Executes an operation whose answer is the current lease.
    async fn execute_current(
        &self,
        metadata: &MetadataMap,
        operation: Operation,
    ) -> Result<Response<v1::CurrentLease>, Status> {
        match self.execute(metadata, operation).await? {
            (Answer::Current(current), position) => respond(current, position),
            _ => Err(unexpected_answer()),
        }
    }
}

/// A response with the journal position that it depends on.
fn respond<T>(message: T, position: u64) -> Result<Response<T>, Status> {
    let mut response = Response::new(message);
    response.metadata_mut().insert(POSITION, position.into());
    Ok(response)
}

/// A refusal with the journal position that it depends on.
fn with_position(mut status: Status, position: u64) -> Status {
    status.metadata_mut().insert(POSITION, position.into());
    status
}

fn respond_query<T>(result: QueryResult<T>) -> Result<Response<T>, Status> {
    let (message, position) = result.map_err(problem_to_status)?;
    respond(message, position)
}

fn parse_metadata(metadata: &MetadataMap, api: &Api) -> Result<RequestMetadata, Status> {
    let header = |name: &'static str| {
        let mut values = metadata.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(Refusal::Invalid { field: name, reason: "repeated; send it once" }),
            (Some(value), None) => {
                value.to_str().map(Some).map_err(|_| Refusal::Invalid { field: name, reason: "must be plain text" })
            }
        }
    };
    RequestMetadata::parse(api, header).map_err(|refusal| problem_to_status(problem(&refusal)))
}

/// Counts a decoded request, unless its operation is exempt from the rate limit.
fn check_rate(extensions: &Extensions, operation: &Operation) -> Result<(), Status> {
    let charge = extensions.get::<Arc<RequestCharge>>();
    charge.map_or(Ok(()), |charge| charge.check(operation)).map_err(|problem| problem_to_status(*problem))
}

fn unexpected_answer() -> Status {
    problem_to_status(no_reply())
}

#[tonic::async_trait]
impl Leasehold for GrpcService {
    type SessionStream = ServerBatchStream;
    type WatchStream = ResponseStream<v1::Event>;
    type BackupStream = ResponseStream<v1::BackupChunk>;
    type ExportAuditStream = ResponseStream<v1::AuditExportChunk>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientBatch>>,
    ) -> Result<Response<ServerBatchStream>, Status> {
        let rate = request.extensions().get::<RequestRate>().cloned();
        let trace = request.metadata().get(TRACEPARENT).and_then(|text| TraceContext::parse(text.to_str().ok()?));
        let stream = grpc_session::serve(self.api.clone(), request.into_inner(), self.hello_timeout, rate, trace);
        stream.await.map(Response::new)
    }

    async fn open_session(&self, request: Request<v1::OpenSession>) -> Result<Response<v1::Welcome>, Status> {
        let secret = SessionSecret::new(random::bytes());
        let metadata = parse_metadata(request.metadata(), &self.api)?;
        let core_request = super::request_with(metadata.token_seen, metadata.trace);
        let body = RequestPayload::Open(request.into_inner(), secret.digest());
        let reply = self.api.submit(core_request, body, self.api.caller()).await.map_err(problem_to_status)?;
        self.api.observe(&reply);
        match reply.answer {
            command::Answer::Session(grant) => {
                let status = self.api.query(0, Query::Status, status_of).await;
                respond_query(status.map(|(status, position)| (welcome(&grant, Some(&secret), &status), position)))
            }
            command::Answer::Refused(refusal) => Err(problem_to_status(problem(&refusal))),
            _ => Err(unexpected_answer()),
        }
    }

    async fn renew_session(&self, request: Request<v1::RenewSession>) -> Result<Response<v1::SessionState>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let operation = Operation::RenewSession(message);
        check_rate(&extensions, &operation)?;
        match self.execute(&metadata, operation).await? {
            (Answer::Session(session), position) => respond(session, position),
            _ => Err(unexpected_answer()),
        }
    }

    async fn acquire(&self, request: Request<v1::Acquire>) -> Result<Response<v1::Grant>, Status> {
        let (metadata, _, message) = request.into_parts();
        match self.execute(&metadata, Operation::Acquire(message)).await? {
            (Answer::Granted(grant), position) => respond(grant, position),
            _ => Err(unexpected_answer()),
        }
    }

    async fn acquire_all(&self, request: Request<v1::AcquireAll>) -> Result<Response<v1::Grants>, Status> {
        let (metadata, _, message) = request.into_parts();
        match self.execute(&metadata, Operation::AcquireAll(message)).await? {
            (Answer::GrantedAll(grants), position) => respond(grants, position),
            _ => Err(unexpected_answer()),
        }
    }

    async fn close_session(&self, request: Request<v1::CloseSession>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::CloseSession(message)).await
    }

    async fn reconcile(&self, request: Request<v1::Reconcile>) -> Result<Response<v1::SessionState>, Status> {
        let (metadata, _, message) = request.into_parts();
        match self.execute(&metadata, Operation::Reconcile(message)).await? {
            (Answer::Session(session), position) => respond(session, position),
            _ => Err(unexpected_answer()),
        }
    }

    async fn cancel(&self, request: Request<v1::Cancel>) -> Result<Response<v1::Done>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let operation = Operation::Cancel(message);
        check_rate(&extensions, &operation)?;
        self.execute_done(&metadata, operation).await
    }

    async fn session_leases(
        &self,
        request: Request<v1::SessionLeasesRequest>,
    ) -> Result<Response<v1::SessionLeaseList>, Status> {
        let secret = parse_metadata(request.metadata(), &self.api)?.session_secret;
        respond_query(self.api.session_leases(request.into_inner(), secret).await)
    }

    async fn renew_leases(
        &self,
        request: Request<v1::RenewLeasesRequest>,
    ) -> Result<Response<v1::RenewBatchResult>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        check_rate(&extensions, &Operation::Renew(v1::Renew::default()))?;
        let metadata = parse_metadata(&metadata, &self.api)?;
        let leases = message.to_leases().map_err(|refusal| problem_to_status(problem(&refusal)))?;
        respond_query(self.api.renew_leases(&metadata, session_id(message.session), leases).await)
    }

    async fn progress(&self, request: Request<v1::Progress>) -> Result<Response<v1::CurrentLease>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let operation = Operation::Progress(message);
        check_rate(&extensions, &operation)?;
        self.execute_current(&metadata, operation).await
    }

    async fn rotate(&self, request: Request<v1::LeaseRef>) -> Result<Response<v1::CurrentLease>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_current(&metadata, Operation::Rotate(message)).await
    }

    async fn put(&self, request: Request<v1::Put>) -> Result<Response<v1::PutResult>, Status> {
        let (metadata, _, message) = request.into_parts();
        match self.execute(&metadata, Operation::Put(message)).await? {
            (Answer::Stored(stored), position) => respond(stored, position),
            (_, position) => respond(v1::PutResult { revision: 0 }, position),
        }
    }

    async fn pin(&self, request: Request<v1::Pin>) -> Result<Response<v1::CurrentLease>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_current(&metadata, Operation::Pin(message)).await
    }

    async fn collect(&self, request: Request<v1::Collect>) -> Result<Response<v1::CollectResult>, Status> {
        let (metadata, _, message) = request.into_parts();
        match self.execute(&metadata, Operation::Collect(message)).await? {
            (Answer::CollectBelow(below), position) => respond(v1::CollectResult { below }, position),
            _ => Err(unexpected_answer()),
        }
    }

    async fn delivery(&self, request: Request<v1::DeliveryCommand>) -> Result<Response<v1::DeliveryAnswer>, Status> {
        let (metadata, _, message) = request.into_parts();
        let metadata = parse_metadata(&metadata, &self.api)?;
        match self.api.delivery(metadata, message).await.map_err(problem_to_status)? {
            (Answer::Delivery(answer), position) => respond(answer, position),
            (Answer::Refused(problem), position) => Err(with_position(problem_to_status(*problem), position)),
            _ => Err(unexpected_answer()),
        }
    }

    async fn cache(&self, request: Request<v1::CacheCommand>) -> Result<Response<v1::CacheAnswer>, Status> {
        let (metadata, _, message) = request.into_parts();
        match self.execute(&metadata, Operation::Cache(message)).await? {
            (Answer::Cache(answer), position) => respond(answer, position),
            _ => Err(unexpected_answer()),
        }
    }

    async fn observe_token(&self, request: Request<v1::ObserveToken>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::ObserveToken(message)).await
    }

    async fn renew(&self, request: Request<v1::Renew>) -> Result<Response<v1::CurrentLease>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let operation = Operation::Renew(message);
        check_rate(&extensions, &operation)?;
        self.execute_current(&metadata, operation).await
    }

    async fn release(&self, request: Request<v1::LeaseRef>) -> Result<Response<v1::Done>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let operation = Operation::Release(message);
        check_rate(&extensions, &operation)?;
        self.execute_done(&metadata, operation).await
    }

    async fn check(&self, request: Request<v1::LeaseRef>) -> Result<Response<v1::CurrentLease>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_current(&metadata, Operation::Check(message)).await
    }

    async fn revoke(&self, request: Request<v1::Revoke>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::Revoke(message)).await
    }

    async fn handoff(&self, request: Request<v1::Handoff>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::Handoff(message)).await
    }

    async fn finish_drain(&self, request: Request<v1::LeaseRef>) -> Result<Response<v1::Done>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let operation = Operation::FinishDrain(message);
        check_rate(&extensions, &operation)?;
        self.execute_done(&metadata, operation).await
    }

    async fn free(&self, request: Request<v1::Free>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::Free(message)).await
    }

    async fn set_capacity(&self, request: Request<v1::SetCapacity>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::SetCapacity(message)).await
    }

    async fn confirm_hold(&self, request: Request<v1::LeaseRef>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::ConfirmHold(message)).await
    }

    async fn resize_hold(&self, request: Request<v1::ResizeHold>) -> Result<Response<v1::CurrentLease>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_current(&metadata, Operation::ResizeHold(message)).await
    }

    async fn veto(&self, request: Request<v1::Veto>) -> Result<Response<v1::CurrentLease>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_current(&metadata, Operation::Veto(message)).await
    }

    async fn waive_quarantine(&self, request: Request<v1::WaiveQuarantine>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::WaiveQuarantine(message)).await
    }

    async fn set_max_ttl(&self, request: Request<v1::SetMaxTtl>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::SetMaxTtl(message)).await
    }

    async fn step_down(&self, request: Request<v1::StepDown>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::StepDown(message)).await
    }

    async fn approve(&self, request: Request<v1::Approve>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::Approve(message)).await
    }

    async fn cancel_proposal(&self, request: Request<v1::CancelProposal>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::CancelProposal(message)).await
    }

    async fn proposals(&self, _: Request<v1::ProposalsRequest>) -> Result<Response<v1::ProposalList>, Status> {
        respond_query(self.api.proposals().await)
    }

    async fn set_charter(&self, request: Request<v1::SetCharter>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::SetCharter(Box::new(message))).await
    }

    async fn remove_charter(&self, request: Request<v1::RemoveCharter>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::RemoveCharter(message)).await
    }

    async fn report_fences(&self, request: Request<v1::FenceReports>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::ReportFences(message)).await
    }

    async fn forget_target(&self, request: Request<v1::ForgetTarget>) -> Result<Response<v1::Done>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.execute_done(&metadata, Operation::ForgetTarget(message)).await
    }

    async fn cluster(&self, _: Request<v1::ClusterRequest>) -> Result<Response<v1::ClusterView>, Status> {
        respond_query(self.api.cluster().await)
    }

    async fn keys(&self, _: Request<v1::KeysRequest>) -> Result<Response<v1::SealKeySet>, Status> {
        respond_query(self.api.seal_keys().map_err(|problem| *problem))
    }

    async fn show(&self, request: Request<v1::ShowRequest>) -> Result<Response<v1::ResourceView>, Status> {
        respond_query(self.api.show(request.into_inner()).await)
    }

    async fn list_leases(&self, request: Request<v1::ListLeasesRequest>) -> Result<Response<v1::ListedLeases>, Status> {
        respond_query(self.api.list_leases(request.into_inner()).await)
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ResourceList>, Status> {
        respond_query(self.api.list(request.into_inner()).await)
    }

    async fn held_by(&self, request: Request<v1::HeldByRequest>) -> Result<Response<v1::LeaseList>, Status> {
        respond_query(self.api.held_by(request.into_inner()).await)
    }

    async fn waiters(&self, request: Request<v1::WaitersRequest>) -> Result<Response<v1::WaiterList>, Status> {
        respond_query(self.api.waiters(request.into_inner()).await)
    }

    async fn deadlocks(&self, request: Request<v1::DeadlocksRequest>) -> Result<Response<v1::DeadlockList>, Status> {
        respond_query(self.api.deadlocks(request.into_inner()).await)
    }

    async fn history(&self, request: Request<v1::HistoryRequest>) -> Result<Response<v1::EndedLeaseList>, Status> {
        respond_query(self.api.ended_leases(request.into_inner()).await)
    }

    async fn state(&self, request: Request<v1::StateRequest>) -> Result<Response<v1::StateList>, Status> {
        respond_query(self.api.state(request.into_inner()).await)
    }

    async fn queue(&self, request: Request<v1::QueueRequest>) -> Result<Response<v1::QueueView>, Status> {
        respond_query(self.api.queue(request.into_inner()).await)
    }

    async fn usage(&self, request: Request<v1::UsageRequest>) -> Result<Response<v1::UsageList>, Status> {
        respond_query(self.api.usage(request.into_inner()).await)
    }

    async fn charters(&self, request: Request<v1::ChartersRequest>) -> Result<Response<v1::Charters>, Status> {
        respond_query(self.api.charters(request.into_inner()).await)
    }

    async fn coverage(&self, request: Request<v1::CoverageRequest>) -> Result<Response<v1::Coverage>, Status> {
        respond_query(self.api.coverage(request.into_inner()).await)
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::Status>, Status> {
        respond_query(self.api.status(0).await)
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let prefix = request.into_inner().prefix;
        let events =
            self.api.watch(prefix).map_err(|problem| problem_to_status(*problem))?.map(|watched| match watched {
                Ok(watched) => Ok(watched.encode()),
                Err(problem) => Err(problem_to_status(problem)),
            });
        Ok(Response::new(Box::pin(events)))
    }

    async fn backup(&self, _: Request<v1::BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let (_, chunks) = self.api.backup().await.map_err(problem_to_status)?;
        let chunks = chunks
            .map(|chunk| chunk.map(|bytes| v1::BackupChunk { bytes }).map_err(|problem| problem_to_status(*problem)));
        Ok(Response::new(Box::pin(chunks)))
    }

    async fn audit(&self, request: Request<v1::AuditRequest>) -> Result<Response<v1::AuditPage>, Status> {
        let v1::AuditRequest { resource, after, before, oldest_first, limit } = request.into_inner();
        let resource = (!resource.is_empty()).then_some(resource);
        let limit = limit as usize;
        let query = AuditQuery { resource, after, before, oldest_first, limit, ..AuditQuery::default() };
        let (found, head) = self.api.audit(query).await.map_err(problem_to_status)?;
        let entries = found.entries.into_iter().map(|(text, hash)| audit_entry(text, hash)).collect();
        let AuditHead { entries: last, hash, position } = head;
        respond(v1::AuditPage { entries, last, hash: hash.to_vec(), position, next: found.next }, position)
    }

    async fn export_audit(
        &self,
        _: Request<v1::ExportAuditRequest>,
    ) -> Result<Response<Self::ExportAuditStream>, Status> {
        let chunks = self.api.export_audit().await.map_err(problem_to_status)?;
        let chunks = chunks.map(|chunk| {
            chunk.map(|bytes| v1::AuditExportChunk { bytes }).map_err(|problem| problem_to_status(*problem))
        });
        Ok(Response::new(Box::pin(chunks)))
    }

    async fn verify_audit(
        &self,
        _: Request<v1::VerifyAuditRequest>,
    ) -> Result<Response<v1::AuditVerification>, Status> {
        Ok(Response::new(match self.api.verify_audit().await.map_err(problem_to_status)? {
            Ok(proof) => v1::AuditVerification {
                intact: true,
                first: proof.first,
                last: proof.last,
                hash: proof.hash.to_vec(),
                gaps: proof.gaps,
                heads: proof.heads,
                ..Default::default()
            },
            Err(VerifyError::Damaged { file, offset, reason }) => {
                v1::AuditVerification { file, offset, problem: reason, ..Default::default() }
            }
            Err(VerifyError::Read(error)) => v1::AuditVerification { problem: error.to_string(), ..Default::default() },
        }))
    }

    async fn list_audit_heads(
        &self,
        _: Request<v1::ListAuditHeadsRequest>,
    ) -> Result<Response<v1::AuditHeads>, Status> {
        let heads = self.api.audit_heads().await.map_err(problem_to_status)?;
        Ok(Response::new(v1::AuditHeads { heads: heads.into_iter().map(Into::into).collect() }))
    }

    async fn list_denials(&self, _: Request<v1::ListDenialsRequest>) -> Result<Response<v1::Denials>, Status> {
        let (denials, total) = self.api.last_denials().map_err(|problem| problem_to_status(*problem))?;
        Ok(Response::new(v1::Denials { denials: denials.into_iter().map(Into::into).collect(), total }))
    }
}

/// An audit entry with the fields of its text, as far as the text can be parsed.
fn audit_entry(text: String, hash: Hash) -> v1::AuditEntry {
    let parsed = AuditEntry::parse(text.as_bytes()).unwrap_or_default();
    let owned = |value: Option<Cow<'_, str>>| value.unwrap_or_default().into_owned();
    let reason = EndReason::ALL.into_iter().find(|reason| parsed.reason.as_deref() == Some(reason.word()));
    v1::AuditEntry {
        entry: parsed.entry,
        position: parsed.position,
        time_ms: parsed.time_ms,
        wall_ms: parsed.wall_ms,
        kind: parsed.kind.into_owned(),
        resource: owned(parsed.resource),
        holder: owned(parsed.holder),
        lease: owned(parsed.lease),
        session: owned(parsed.session),
        token_number: parsed.token_number.and_then(|number| number.parse().ok()),
        state: reason.map_or(0, |reason| v1::LeaseState::from(reason.state()).into()),
        reason: reason.map_or(0, |reason| v1::EndReason::from(reason).into()),
        comment: owned(parsed.comment),
        by: owned(parsed.by),
        via: owned(parsed.via),
        credential: owned(parsed.credential),
        from: owned(parsed.from),
        proposal: parsed.proposal,
        hash: hash.to_vec(),
        text,
    }
}
