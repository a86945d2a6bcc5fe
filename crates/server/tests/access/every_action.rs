//! One attempt of every action over every transport that has it.

use leasehold_core::access::Action;
use leasehold_core::token::Cluster;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, session_id, v1};
use tonic::{Response, Status};

use crate::access_server::{hex, http_code};
use crate::transport_clients::{GrpcClient, HttpConnection, SessionStream, acquire, lease_ref};

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Unary,
    Stream,
    Http,
}

/// What exists under a name, made by the administrator: an ended and a held lease, a waiter, a target, a charter, a session.
pub struct Subject {
    pub cluster: Cluster,
    pub lease: v1::Grant,
    pub session: u64,
}

/// One request about a name.
pub struct Attempt<'a> {
    pub action: Action,
    pub name: &'a str,
    pub subject: &'a Subject,
    /// A lease and a session that the caller itself was given.
    pub own: Option<(&'a v1::Grant, Option<u64>)>,
}

/// The result of a query that contains the subject.
pub const SEEN: &str = "SEEN";
/// The result of a query that does not contain it.
pub const EMPTY: &str = "EMPTY";

/// The name of the holder of every subject.
pub const HOLDER: &str = "subject-holder";

impl Subject {
    pub async fn create(admin: &mut GrpcClient, name: &str, cluster: Cluster) -> Self {
        let grant = |grant: Response<v1::Grant>| v1::Grant { resource: name.into(), ..grant.into_inner() };
        let first = grant(admin.acquire(acquire(name, HOLDER)).await.expect("the name is free"));
        let mut release = tonic::Request::new(lease_ref(name, &first.token));
        release.metadata_mut().insert("lease-secret", hex(&first.secret).parse().expect("hexadecimal digits"));
        admin.release(release).await.expect("the holder releases");
        let lease = grant(admin.acquire(acquire(name, HOLDER)).await.expect("the name is free"));
        let report = v1::FenceReport {
            resource: name.into(),
            target: "target".into(),
            mode: v1::FenceMode::Forced.into(),
            ..Default::default()
        };
        let reports = v1::FenceReports { cluster: cluster.to_string(), reports: vec![report] };
        admin.report_fences(reports).await.expect("the report is valid");
        let open = v1::OpenSession { holder: HOLDER.into(), ttl_ms: 600_000, waits_only: false };
        let welcome = admin.open_session(open).await.expect("the session opens").into_inner();
        Self { cluster, lease, session: welcome.session }
    }
}

/// The code of a gRPC result.
pub fn grpc_code<T>(result: Result<Response<T>, Status>) -> String {
    match result {
        Ok(_) => "OK".to_owned(),
        Err(status) => problem_from_status(&status).code,
    }
}

/// The code of a query: whether its result contains the subject, or its problem.
fn query_code<T>(result: Result<Response<T>, Status>, contains: impl FnOnce(T) -> bool) -> String {
    match result {
        Ok(response) => if contains(response.into_inner()) { SEEN } else { EMPTY }.to_owned(),
        Err(status) => problem_from_status(&status).code,
    }
}

/// The code of a stream that is read to its end, so that it does not count as one in progress.
async fn stream_code<T>(result: Result<Response<tonic::Streaming<T>>, Status>) -> String {
    let read = async {
        let mut stream = result?.into_inner();
        while stream.message().await?.is_some() {}
        Ok::<_, Status>(())
    };
    read.await.map_or_else(|status| problem_from_status(&status).code, |()| SEEN.to_owned())
}

/// Whether an action is requested by an operation that only the session stream carries.
pub fn is_stream_action(action: Action) -> bool {
    let lease = v1::Grant::default();
    let subject = Subject { cluster: Cluster([0; 8]), lease, session: 0 };
    operation(&Attempt { action, name: "n", subject: &subject, own: None }).is_some()
}

/// The operation of a command.
pub fn operation(attempt: &Attempt<'_>) -> Option<Operation> {
    use v1::cache_command::Command as Cache;
    use v1::delivery_command::Command as Delivery;
    let (name, lease) = (attempt.name, attempt.own.map_or(&attempt.subject.lease, |(lease, _)| lease));
    // A stream speaks only for its own session, and need not name it.
    let session = attempt.own.map_or(Some(attempt.subject.session), |(_, session)| session);
    let held = || Some(lease_ref(name, &lease.token));
    let delivery = |command| Operation::Delivery(v1::DeliveryCommand { queue: name.into(), command: Some(command) });
    let cache = |command| Operation::Cache(v1::CacheCommand { key: name.into(), command: Some(command) });
    let receipt = v1::Receipt { item: 1, receipt: 1 };
    let actor = || v1::CacheActor { holder: "w".into(), session: None, ttl_ms: 60_000 };
    let comment = || "for the test".to_owned();
    Some(match attempt.action {
        Action::RenewSession => Operation::RenewSession(v1::RenewSession { session, held: None }),
        Action::Reconcile => Operation::Reconcile(v1::Reconcile { session, ..Default::default() }),
        Action::CloseSession => Operation::CloseSession(v1::CloseSession { session }),
        Action::Cancel => Operation::Cancel(v1::Cancel { sequence: 1, session }),
        Action::Acquire => Operation::Acquire(acquire(&free(name), "w")),
        Action::AcquireAll => {
            let wanted = |resource: String| v1::ResourceAccess { resource, ..Default::default() };
            let resources = vec![wanted(free(name)), wanted(format!("{}/2", free(name)))];
            Operation::AcquireAll(v1::AcquireAll {
                resources,
                holder: "w".into(),
                ttl_ms: Some(60_000),
                ..Default::default()
            })
        }
        Action::Renew => Operation::Renew(v1::Renew { lease: held(), ttl_ms: None, progress: None }),
        Action::Release => Operation::Release(held()?),
        Action::Check => Operation::Check(held()?),
        Action::Rotate => Operation::Rotate(held()?),
        Action::Progress => Operation::Progress(v1::Progress { lease: held(), progress: 1 }),
        Action::FinishDrain => Operation::FinishDrain(held()?),
        Action::ConfirmHold => Operation::ConfirmHold(held()?),
        Action::ResizeHold => Operation::ResizeHold(v1::ResizeHold { lease: held(), units: 1 }),
        Action::Veto => Operation::Veto(v1::Veto { lease: held(), duration_ms: 1_000 }),
        Action::Pin => Operation::Pin(v1::Pin { lease: held(), position: 7 }),
        Action::Put => {
            Operation::Put(v1::Put { lease: held(), key: "key".into(), value: Some(vec![1]), expected_revision: None })
        }
        Action::Revoke => Operation::Revoke(v1::Revoke {
            selector: Some(v1::revoke::Selector::Resource(name.into())),
            reason: v1::EndReason::Operator.into(),
            comment: comment(),
            grace_ms: 0,
        }),
        Action::Handoff => {
            let (token, number) = (lease.token.clone(), None);
            Operation::Handoff(v1::Handoff {
                selector: Some(v1::handoff::Selector::Resource(name.into())),
                token: if attempt.own.is_some() { token } else { String::new() },
                token_number: number,
                ..Default::default()
            })
        }
        Action::Free => Operation::Free(v1::Free { resource: name.into(), comment: comment() }),
        Action::SetCapacity => Operation::SetCapacity(v1::SetCapacity { resource: name.into(), units: 2 }),
        Action::Collect => Operation::Collect(v1::Collect { resource: name.into(), below: 1 }),
        Action::Enqueue => delivery(Delivery::Enqueue(v1::Enqueue { body: vec![1], ..Default::default() })),
        Action::Receive => delivery(Delivery::Receive(v1::Receive {
            holder: "w".into(),
            session: None,
            visibility_ms: 60_000,
            limit: 1,
            wait_ms: 0,
        })),
        Action::ExtendMessage => {
            delivery(Delivery::Extend(v1::Extend { delivery: Some(receipt), visibility_ms: 60_000 }))
        }
        Action::AckMessage => delivery(Delivery::Ack(receipt)),
        Action::NackMessage => delivery(Delivery::Nack(v1::Nack { delivery: Some(receipt), delay_ms: 0 })),
        Action::RedriveMessage => delivery(Delivery::Redrive(1)),
        Action::DropMessage => delivery(Delivery::Drop(1)),
        Action::CacheRead => cache(Cache::Read(actor())),
        Action::CacheRenewRead => cache(Cache::RenewRead(1)),
        Action::CacheInvalidated => cache(Cache::Invalidated(1)),
        Action::CacheIntend => cache(Cache::Intend(actor())),
        Action::CacheCommit => cache(Cache::Commit(1)),
        Action::CacheAbort => cache(Cache::Abort(1)),
        Action::CacheGetOrFill => {
            cache(Cache::GetOrFill(v1::GetOrFill { actor: Some(actor()), missing_version: None }))
        }
        Action::CacheFilled => cache(Cache::Filled(1)),
        Action::SetCharter => Operation::SetCharter(Box::new(v1::SetCharter {
            prefix: name.into(),
            charter: Some(v1::Charter::default()),
            comment: comment(),
        })),
        Action::RemoveCharter => {
            Operation::RemoveCharter(v1::RemoveCharter { prefix: name.into(), comment: comment() })
        }
        Action::ReportFences => {
            let report = v1::FenceReport {
                resource: name.into(),
                target: "other".into(),
                mode: v1::FenceMode::Forced.into(),
                ..Default::default()
            };
            let cluster = attempt.subject.cluster.to_string();
            Operation::ReportFences(v1::FenceReports { cluster, reports: vec![report] })
        }
        Action::ForgetTarget => Operation::ForgetTarget(v1::ForgetTarget {
            resource: name.into(),
            target: "target".into(),
            comment: comment(),
        }),
        Action::WaiveQuarantine => Operation::WaiveQuarantine(v1::WaiveQuarantine { comment: comment() }),
        Action::SetMaxTtl => Operation::SetMaxTtl(v1::SetMaxTtl { max_ttl_ms: 600_000, comment: comment() }),
        Action::StepDown => Operation::StepDown(v1::StepDown {}),
        // There is no proposal; `approvals` tries those that exist.
        Action::Approve => Operation::Approve(v1::Approve { proposal: 1, digest: vec![0; 32] }),
        Action::CancelProposal => Operation::CancelProposal(v1::CancelProposal { proposal: 1 }),
        Action::ObserveToken => {
            Operation::ObserveToken(v1::ObserveToken { token: lease.token.clone(), resource: String::new() })
        }
        _ => return None,
    })
}

/// A name below a subject that no lease is on.
fn free(name: &str) -> String {
    format!("{name}/free")
}

/// The HTTP request of an action and its body.
pub fn http_request(attempt: &Attempt<'_>) -> Option<(String, String)> {
    let (name, lease) = (attempt.name, attempt.own.map_or(&attempt.subject.lease, |(lease, _)| lease));
    let session = attempt.own.and_then(|(_, session)| session).unwrap_or(attempt.subject.session);
    let session = session_id(session);
    let token = format!(r#"{{"token":"{}"}}"#, lease.token);
    let with_token = |fields: &str| format!(r#"{{"token":"{}",{fields}}}"#, lease.token);
    let comment = r#"{"comment":"for the test"}"#.to_owned();
    let post = |path: String, body: &str| Some((format!("POST {path}"), body.to_owned()));
    let lease_verb = |verb: &str, body: &str| post(format!("/v1/leases/{name}:{verb}"), body);
    let queue = |verb: &str, body: &str| post(format!("/v1/queues/{name}:{verb}"), body);
    let cache = |verb: &str, body: &str| post(format!("/v1/cache/{name}:{verb}"), body);
    let get = |path: String| Some((format!("GET {path}"), String::new()));
    match attempt.action {
        Action::OpenSession => post("/v1/sessions".into(), r#"{"holder":"w","ttl":"60s"}"#),
        Action::RenewSession => post(format!("/v1/sessions/{session}:renew"), "{}"),
        Action::Reconcile => post(format!("/v1/sessions/{session}:reconcile"), r#"{"leases":[]}"#),
        Action::CloseSession => post(format!("/v1/sessions/{session}:close"), "{}"),
        Action::Cancel => post(format!("/v1/sessions/{session}:cancel"), r#"{"sequence":"1"}"#),
        Action::ListSession => get(format!("/v1/sessions/{session}/leases")),
        Action::ResumeSession => get(format!("/v1/sessions/{session}/events")),
        Action::Acquire => post(format!("/v1/leases/{}:acquire", free(name)), r#"{"holder":"w","ttl":"60s"}"#),
        Action::AcquireAll => {
            let resources = format!(r#"[{{"resource":"{0}"}},{{"resource":"{0}/2"}}]"#, free(name));
            post("/v1/leases:acquire_all".into(), &format!(r#"{{"holder":"w","ttl":"60s","resources":{resources}}}"#))
        }
        Action::Renew => lease_verb("renew", &token),
        Action::Progress => lease_verb("progress", &with_token(r#""progress":"1""#)),
        Action::Rotate => lease_verb("rotate", &token),
        Action::FinishDrain => lease_verb("drained", &token),
        Action::ConfirmHold => lease_verb("confirm", &token),
        Action::ResizeHold => lease_verb("resize", &with_token(r#""units":1"#)),
        Action::Veto => lease_verb("veto", &with_token(r#""duration":"1s""#)),
        Action::Put => lease_verb("put", &with_token(r#""key":"key","value":"1""#)),
        Action::Pin => lease_verb("pin", &with_token(r#""position":"7""#)),
        Action::Collect => lease_verb("collect", r#"{"below":"1"}"#),
        Action::Release => lease_verb("release", &token),
        Action::Check => lease_verb("check", &token),
        Action::Handoff => lease_verb("handoff", if attempt.own.is_some() { &token } else { "{}" }),
        Action::Revoke => lease_verb("revoke", &comment),
        Action::Free => lease_verb("free", &comment),
        Action::SetCapacity => lease_verb("capacity", r#"{"units":2}"#),
        Action::Enqueue => queue("send", r#"{"body":"1"}"#),
        Action::Receive => queue("receive", r#"{"holder":"w","visibility":"60s"}"#),
        Action::ExtendMessage => queue("extend", r#"{"item":"1","receipt":"1","visibility":"60s"}"#),
        Action::AckMessage => queue("ack", r#"{"item":"1","receipt":"1"}"#),
        Action::NackMessage => queue("nack", r#"{"item":"1","receipt":"1"}"#),
        Action::RedriveMessage => queue("redrive", r#"{"item":"1"}"#),
        Action::DropMessage => queue("drop", r#"{"item":"1"}"#),
        Action::CacheRead => cache("read", r#"{"holder":"w","ttl":"60s"}"#),
        Action::CacheRenewRead => cache("renew", r#"{"lease":"1"}"#),
        Action::CacheInvalidated => cache("invalidated", r#"{"lease":"1"}"#),
        Action::CacheIntend => cache("intend", r#"{"holder":"w","ttl":"60s"}"#),
        Action::CacheCommit => cache("commit", r#"{"intent":"1"}"#),
        Action::CacheAbort => cache("abort", r#"{"number":"1"}"#),
        Action::CacheGetOrFill => cache("get_or_fill", r#"{"holder":"w","ttl":"60s"}"#),
        Action::CacheFilled => cache("filled", r#"{"fill":"1"}"#),
        Action::State => get(format!("/v1/state/{name}")),
        Action::Queue => get(format!("/v1/queues/{name}")),
        Action::SetCharter => {
            Some((format!("PUT /v1/charters/{name}"), r#"{"comment":"for the test","charter":{}}"#.to_owned()))
        }
        Action::RemoveCharter => Some((format!("DELETE /v1/charters/{name}?comment=c"), String::new())),
        Action::ReportFences => {
            let report = format!(r#"{{"resource":"{name}","target":"other","mode":"forced","checks":0,"refusals":0}}"#);
            post("/v1/coverage".into(), &format!(r#"{{"cluster":"{}","reports":[{report}]}}"#, attempt.subject.cluster))
        }
        Action::ForgetTarget => Some((format!("DELETE /v1/coverage/{name}?target=target&comment=c"), String::new())),
        Action::WaiveQuarantine => post("/v1/quarantine:waive".into(), &comment),
        Action::SetMaxTtl => post("/v1/cluster:set_max_ttl".into(), r#"{"max_ttl":"10m","comment":"for the test"}"#),
        Action::StepDown => post("/v1/cluster:step_down".into(), "{}"),
        Action::Approve => post("/v1/proposals/1:approve".into(), &format!(r#"{{"digest":"{}"}}"#, "00".repeat(32))),
        Action::CancelProposal => post("/v1/proposals/1:cancel".into(), "{}"),
        Action::Proposals => get("/v1/proposals".into()),
        Action::Show => get(format!("/v1/leases/{name}")),
        Action::List => get(format!("/v1/leases?prefix={name}")),
        Action::HeldBy => get(format!("/v1/holders/{HOLDER}?after={}", attempt.subject.lease.token_number - 1)),
        Action::Waiters => get(format!("/v1/waiters/{name}")),
        Action::Deadlocks => get("/v1/deadlocks".into()),
        Action::EndedLeases => get(format!("/v1/ended-leases/{name}")),
        Action::Usage => get("/v1/usage".into()),
        Action::Status => get("/v1/status".into()),
        Action::Cluster => get("/v1/cluster".into()),
        Action::Keys => get("/v1/keys".into()),
        Action::Watch => get(format!("/v1/events?prefix={name}")),
        Action::Charters => get("/v1/charters".into()),
        Action::Coverage => get(format!("/v1/coverage/{name}")),
        Action::Audit => get(format!("/v1/history/{name}")),
        Action::ExportAudit => get("/v1/audit".into()),
        Action::VerifyAudit => get("/v1/audit:verify".into()),
        Action::Backup => get("/v1/backup".into()),
        Action::Metrics => get("/metrics".into()),
        _ => None,
    }
}

impl Attempt<'_> {
    /// Sends the request and returns its code; `None` if the transport has no such request.
    pub async fn code(
        &self,
        client: &mut GrpcClient,
        stream: Option<&mut SessionStream>,
        http: Option<&mut HttpConnection>,
        transport: Transport,
    ) -> Option<String> {
        match transport {
            Transport::Unary => self.unary(client).await,
            Transport::Stream => {
                let answer = stream?.request(operation(self)?).await;
                Some(match answer {
                    Answer::Refused(problem) => problem.code,
                    _ => "OK".to_owned(),
                })
            }
            Transport::Http => {
                let (request, body) = http_request(self)?;
                let response = http?.request(&request, "", &body).await;
                let code = http_code(&response);
                if code != "OK" || !is_query(self.action) {
                    return Some(code);
                }
                let quoted = match self.action {
                    // The name of the request is in every reply.
                    Action::Coverage => "\"name\":\"target\"".to_owned(),
                    _ => format!("\"{}\"", self.name),
                };
                Some(if !is_about_name(self.action) || response.1.contains(&quoted) { SEEN } else { EMPTY }.to_owned())
            }
        }
    }

    async fn unary(&self, client: &mut GrpcClient) -> Option<String> {
        let (name, resource) = (self.name, || self.name.to_owned());
        Some(match self.action {
            Action::OpenSession => {
                let open = v1::OpenSession { holder: "w".into(), ttl_ms: 60_000, waits_only: false };
                grpc_code(client.open_session(open).await)
            }
            Action::Show => {
                let request = v1::ShowRequest { resource: resource(), min_position: 0 };
                query_code(client.show(request).await, |view| view.resource == name)
            }
            Action::List => {
                let request = v1::ListRequest { prefix: resource(), ..Default::default() };
                let all = client.list(request).await;
                let resources = query_code(all, |list| list.resources.iter().any(|one| one.resource == name));
                let is_listed = |one: &v1::ListedLease| one.lease.as_ref().is_some_and(|lease| lease.resource == name);
                let sort = [v1::LeaseSort::Unspecified, v1::LeaseSort::Age];
                for sort in sort.map(i32::from) {
                    let request = v1::ListLeasesRequest { prefix: resource(), sort, ..Default::default() };
                    let leases =
                        query_code(client.list_leases(request).await, |list| list.leases.iter().any(is_listed));
                    if leases != resources {
                        return Some(format!("{resources} of resources, {leases} of leases"));
                    }
                }
                resources
            }
            Action::HeldBy => {
                // The lease may be on a later page.
                let after = self.subject.lease.token_number - 1;
                let request = v1::HeldByRequest { holder: HOLDER.into(), after, ..Default::default() };
                query_code(client.held_by(request).await, |list| list.leases.iter().any(|one| one.resource == name))
            }
            Action::Waiters => {
                let request = v1::WaitersRequest { resource: resource(), ..Default::default() };
                query_code(client.waiters(request).await, |_| true)
            }
            Action::ListSession => {
                let session = self.own.and_then(|(_, session)| session).unwrap_or(self.subject.session);
                grpc_code(client.session_leases(v1::SessionLeasesRequest { session, ..Default::default() }).await)
            }
            Action::Deadlocks => query_code(client.deadlocks(v1::DeadlocksRequest::default()).await, |_| true),
            Action::EndedLeases => {
                let request = v1::HistoryRequest { resource: resource(), limit: 0 };
                query_code(client.history(request).await, |list| list.leases.iter().any(|one| one.resource == name))
            }
            Action::State => {
                let request = v1::StateRequest { resource: resource(), ..Default::default() };
                query_code(client.state(request).await, |_| true)
            }
            Action::Queue => {
                let request = v1::QueueRequest { queue: resource(), ..Default::default() };
                query_code(client.queue(request).await, |_| true)
            }
            Action::Usage => query_code(client.usage(v1::UsageRequest::default()).await, |_| true),
            Action::Status => query_code(client.status(v1::StatusRequest {}).await, |_| true),
            Action::Cluster => query_code(client.cluster(v1::ClusterRequest {}).await, |_| true),
            Action::Keys => query_code(client.keys(v1::KeysRequest {}).await, |_| true),
            Action::Watch => query_code(client.watch(v1::WatchRequest { prefix: resource() }).await, |_| true),
            Action::Proposals => query_code(client.proposals(v1::ProposalsRequest {}).await, |_| true),
            Action::Charters => query_code(client.charters(v1::ChartersRequest::default()).await, |_| true),
            Action::Coverage => {
                let request = v1::CoverageRequest { resource: resource(), min_position: 0 };
                query_code(client.coverage(request).await, |coverage| !coverage.targets.is_empty())
            }
            Action::Audit => {
                let request = v1::AuditRequest { resource: resource(), ..Default::default() };
                query_code(client.audit(request).await, |page| page.entries.iter().any(|one| one.resource == name))
            }
            Action::ExportAudit => stream_code(client.export_audit(v1::ExportAuditRequest {}).await).await,
            Action::VerifyAudit => query_code(client.verify_audit(v1::VerifyAuditRequest {}).await, |_| true),
            Action::Backup => stream_code(client.backup(v1::BackupRequest {}).await).await,
            _ => match operation(self)? {
                Operation::RenewSession(request) => grpc_code(client.renew_session(request).await),
                Operation::CloseSession(request) => grpc_code(client.close_session(request).await),
                Operation::FinishDrain(request) => grpc_code(client.finish_drain(request).await),
                Operation::ConfirmHold(request) => grpc_code(client.confirm_hold(request).await),
                Operation::ResizeHold(request) => grpc_code(client.resize_hold(request).await),
                Operation::Veto(request) => grpc_code(client.veto(request).await),
                Operation::Approve(request) => grpc_code(client.approve(request).await),
                Operation::CancelProposal(request) => grpc_code(client.cancel_proposal(request).await),
                Operation::RemoveCharter(request) => grpc_code(client.remove_charter(request).await),
                other => match crate::transport_clients::unary_call(client, other).await? {
                    Ok(()) => "OK".to_owned(),
                    Err(status) => problem_from_status(&status).code,
                },
            },
        })
    }
}

/// Whether an action only reads.
pub fn is_query(action: Action) -> bool {
    action >= Action::Show
}

/// Whether the result of a query names the subject that it is about.
pub fn is_about_name(action: Action) -> bool {
    use Action::{Audit, Coverage, EndedLeases, HeldBy, List, Show};
    matches!(action, Show | List | HeldBy | EndedLeases | Audit | Coverage)
}
