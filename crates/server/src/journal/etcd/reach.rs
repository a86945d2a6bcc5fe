//! The way to etcd: several endpoints, a deadline for every call, and who we are.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status};

use super::pb::auth_client::AuthClient;
use super::pb::kv_client::KvClient;
use super::pb::lease_client::LeaseClient;
use super::pb::maintenance_client::MaintenanceClient;
use super::pb::watch_client::WatchClient;
use super::pb::{
    AlarmRequest, AlarmResponse, AuthenticateRequest, CompactionRequest, LeaseGrantRequest, LeaseGrantResponse,
    LeaseKeepAliveRequest, LeaseRevokeRequest, RangeRequest, RangeResponse, ResponseHeader, StatusRequest,
    StatusResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use super::trouble::Trouble;

/// How long one call may take. A member without a leader answers later than this; then the next one is asked.
pub const CALL: Duration = Duration::from_secs(3);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// A connection shows that it lives this often.
const PULSE: Duration = Duration::from_secs(2);
/// The largest answer that is taken: several pages of the largest values.
const ANSWER_BYTES: usize = 64 << 20;
/// How long nothing is asked after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// How a server gets into etcd.
#[derive(Clone, Default)]
pub struct Entry {
    /// `HOST:PORT`, at least one.
    pub endpoints: Vec<String>,
    /// Who we are, if etcd asks.
    pub login: Option<(String, String)>,
    /// How the connection is guarded, if it is.
    pub tls: Option<Tls>,
}

/// What a guarded connection to etcd needs.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Whom we trust, PEM.
    pub ca: PathBuf,
    /// Our own certificate and its key, PEM, if etcd asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// The way to one etcd. Calls go to the endpoint that answered last; after a failure, to the next.
pub struct Reach {
    endpoints: Vec<(String, Channel)>,
    at: AtomicUsize,
    login: Option<(String, String)>,
    pass: Mutex<Option<MetadataValue<Ascii>>>,
    /// The highest revision that any answer named.
    revision: AtomicI64,
}

impl Reach {
    /// Reads what is needed; connections are made when they are first used, in the runtime that this is called in.
    pub fn new(entry: &Entry) -> Result<Self, String> {
        let tls = entry.tls.as_ref().map(guarded).transpose()?;
        let channel = |name: &String| {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let bad = |error: tonic::transport::Error| format!("{name}: {error}");
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{name}"))
                .map_err(bad)?
                .connect_timeout(CONNECT)
                .http2_keep_alive_interval(PULSE)
                .keep_alive_timeout(CALL)
                .tcp_nodelay(true);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(bad)?;
            }
            Ok::<_, String>((name.clone(), endpoint.connect_lazy()))
        };
        Ok(Self {
            endpoints: entry.endpoints.iter().map(channel).collect::<Result<_, _>>()?,
            at: AtomicUsize::new(0),
            login: entry.login.clone(),
            pass: Mutex::default(),
            revision: AtomicI64::new(0),
        })
    }

    /// The endpoints by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.endpoints.iter().map(|(name, _)| name.as_str())
    }

    /// The highest revision seen.
    pub fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// A revision that somebody has seen.
    pub fn saw(&self, revision: i64) {
        self.revision.fetch_max(revision, Ordering::Relaxed);
    }

    pub async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Trouble> {
        let send = |channel, message| async move { kv(channel).range(message).await };
        let told = self.call(range, send).await?;
        self.heard(told.header.as_ref());
        Ok(told)
    }

    pub async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Trouble> {
        let send = |channel, message| async move { kv(channel).txn(message).await };
        let told = self.call(txn, send).await?;
        self.heard(told.header.as_ref());
        Ok(told)
    }

    pub async fn compact(&self, revision: i64) -> Result<(), Trouble> {
        let send = |channel, message| async move { kv(channel).compact(message).await };
        self.call(CompactionRequest { revision }, send).await.map(drop)
    }

    pub async fn grant(&self, ttl: i64) -> Result<LeaseGrantResponse, Trouble> {
        let send = |channel, message| async move { LeaseClient::new(channel).lease_grant(message).await };
        self.call(LeaseGrantRequest { ttl, id: 0 }, send).await
    }

    pub async fn revoke(&self, id: i64) -> Result<(), Trouble> {
        let send = |channel, message| async move { LeaseClient::new(channel).lease_revoke(message).await };
        self.call(LeaseRevokeRequest { id }, send).await.map(drop)
    }

    /// Keeps a lease alive once. Returns its ttl; zero if it is over.
    pub async fn keep_alive(&self, id: i64) -> Result<i64, Trouble> {
        let send = |channel, message: Request<LeaseKeepAliveRequest>| async move {
            let message = message.map(|message| futures::stream::once(std::future::ready(message)));
            let mut told = LeaseClient::new(channel).lease_keep_alive(message).await?.into_inner();
            let told = told.message().await?;
            told.map(Response::new).ok_or_else(|| Status::unavailable("etcd said nothing about the lease"))
        };
        self.call(LeaseKeepAliveRequest { id }, send).await.map(|told| told.ttl)
    }

    /// Watches; whoever has lost the leader of etcd says so and ends it.
    pub async fn watch(&self, create: WatchRequest) -> Result<tonic::Streaming<WatchResponse>, Trouble> {
        let send = |channel, message: Request<WatchRequest>| async move {
            let mut message = message.map(|message| {
                futures::StreamExt::chain(
                    futures::stream::once(std::future::ready(message)),
                    futures::stream::pending(),
                )
            });
            message.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            WatchClient::new(channel).max_decoding_message_size(ANSWER_BYTES).watch(message).await
        };
        self.call(create, send).await
    }

    /// What etcd warns everybody of.
    pub async fn alarms(&self) -> Result<AlarmResponse, Trouble> {
        let send = |channel, message| async move { MaintenanceClient::new(channel).alarm(message).await };
        self.call(AlarmRequest::default(), send).await
    }

    /// Asks until it is answered, or until everybody was asked a few times.
    pub async fn range_tried(&self, range: RangeRequest) -> Result<RangeResponse, Trouble> {
        let mut tries = self.tries();
        loop {
            tries -= 1;
            match self.range(range.clone()).await {
                Err(Trouble::Unknown(_) | Trouble::Behind) if tries > 0 => {}
                told => return told,
            }
        }
    }

    /// How often something is asked that may not be asked for ever.
    pub fn tries(&self) -> usize {
        2 * self.endpoints.len() + 1
    }

    /// What each endpoint says about itself, or why it says nothing.
    pub async fn each_status(&self) -> Vec<(&str, Result<StatusResponse, Trouble>)> {
        let asked = self.endpoints.iter().map(|(name, channel)| async move {
            let send = |channel, message| async move { MaintenanceClient::new(channel).status(message).await };
            (name.as_str(), self.call_at(name, channel, StatusRequest {}, &send).await)
        });
        futures::future::join_all(asked).await
    }

    fn heard(&self, header: Option<&ResponseHeader>) {
        if let Some(header) = header {
            self.saw(header.revision);
        }
    }

    /// One attempt at the endpoint that answered last. A failure turns to the next.
    async fn call<M, A, W>(&self, message: M, send: impl Fn(Channel, Request<M>) -> W) -> Result<A, Trouble>
    where
        M: Clone,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let at = self.at.load(Ordering::Relaxed);
        let (name, channel) = &self.endpoints[at % self.endpoints.len()];
        let told = self.call_at(name, channel, message, &send).await;
        if matches!(told, Err(Trouble::Unknown(_) | Trouble::Behind)) {
            // Whoever comes second has the next one already.
            let next = at.wrapping_add(1);
            let _ = self.at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
        told
    }

    /// The next endpoint is asked from now on.
    pub fn turn(&self) {
        self.at.fetch_add(1, Ordering::Relaxed);
    }

    async fn call_at<M, A, W>(
        &self,
        name: &str,
        channel: &Channel,
        message: M,
        send: &impl Fn(Channel, Request<M>) -> W,
    ) -> Result<A, Trouble>
    where
        M: Clone,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        // Whoever shows a certificate and no pass is taken for the one that the certificate names.
        if self.login.is_some() && self.pass.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.log_in(name, channel).await?;
        }
        let told = self.send(name, channel, message.clone(), send).await;
        match told {
            // A pass is good for some minutes; then there is a new one.
            Err(Trouble::Login(_)) if self.login.is_some() => {
                self.log_in(name, channel).await?;
                self.send(name, channel, message, send).await
            }
            told => told,
        }
    }

    async fn send<M, A, W>(
        &self,
        name: &str,
        channel: &Channel,
        message: M,
        send: &impl Fn(Channel, Request<M>) -> W,
    ) -> Result<A, Trouble>
    where
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let mut request = Request::new(message);
        if let Some(pass) = self.pass.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            request.metadata_mut().insert("token", pass);
        }
        match tokio::time::timeout(CALL, send(channel.clone(), request)).await {
            Ok(Ok(told)) => Ok(told.into_inner()),
            Ok(Err(status)) => Err(Trouble::of(name, &status)),
            Err(_) => Err(Trouble::Unknown(format!("{name}: no answer within {} s", CALL.as_secs()))),
        }
    }

    async fn log_in(&self, at: &str, channel: &Channel) -> Result<(), Trouble> {
        let Some((name, password)) = self.login.clone() else { return Ok(()) };
        let request = Request::new(AuthenticateRequest { name, password });
        let told = tokio::time::timeout(CALL, AuthClient::new(channel.clone()).authenticate(request)).await;
        let told = told.map_err(|_| Trouble::Unknown(format!("{at}: no answer within {} s", CALL.as_secs())))?;
        let told = told.map_err(|status| Trouble::of(at, &status))?.into_inner();
        let pass = told.token.parse().map_err(|_| Trouble::Login(format!("{at}: a pass that cannot be shown")))?;
        *self.pass.lock().unwrap_or_else(PoisonError::into_inner) = Some(pass);
        Ok(())
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(ANSWER_BYTES)
}

fn guarded(tls: &Tls) -> Result<ClientTlsConfig, String> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
    match &tls.own {
        None => Ok(config),
        Some((certificate, key)) => Ok(config.identity(Identity::from_pem(read(certificate)?, read(key)?))),
    }
}
