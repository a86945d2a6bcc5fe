//! The etcd client: several endpoints, a timeout for every call, and authentication.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status};

use super::error::EtcdError;
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
use crate::credential_file::{self, CredentialFileError};

/// Timeout of one call. A member without a leader takes longer; then the next endpoint is tried.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Largest accepted response: several pages of the largest values.
const RESPONSE_BYTES: usize = 64 << 20;
/// Pause after a failed call.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Endpoints and credentials of an etcd cluster.
#[derive(Clone, Default)]
pub struct EtcdEndpoints {
    /// `HOST:PORT`, at least one.
    pub endpoints: Vec<String>,
    /// User name and password, if etcd requires authentication.
    pub login: Option<(String, String)>,
    /// TLS, if etcd requires it.
    pub tls: Option<EtcdTls>,
}

/// TLS files for connections to etcd.
#[derive(Clone, Debug, Default)]
pub struct EtcdTls {
    /// CA certificate, PEM.
    pub ca: PathBuf,
    /// Client certificate and its key, PEM, if etcd requires one.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Client of one etcd cluster. Calls go to the endpoint that responded last; after a failure, to the next.
pub struct EtcdClient {
    endpoints: Vec<(String, Channel)>,
    current: AtomicUsize,
    login: Option<(String, String)>,
    auth_token: Mutex<Option<MetadataValue<Ascii>>>,
    /// The highest revision in any response.
    revision: AtomicI64,
}

impl EtcdClient {
    /// Reads the TLS files. Connections are established on first use, in the current runtime.
    pub fn new(endpoints: &EtcdEndpoints) -> Result<Self, String> {
        let tls = endpoints.tls.as_ref().map(tls_config).transpose()?;
        let channel = |name: &String| {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let invalid = |error: tonic::transport::Error| format!("{name}: {error}");
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{name}"))
                .map_err(invalid)?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(CALL_TIMEOUT)
                .tcp_nodelay(true);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(invalid)?;
            }
            Ok::<_, String>((name.clone(), endpoint.connect_lazy()))
        };
        Ok(Self {
            endpoints: endpoints.endpoints.iter().map(channel).collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            login: endpoints.login.clone(),
            auth_token: Mutex::default(),
            revision: AtomicI64::new(0),
        })
    }

    /// The endpoints, as `HOST:PORT`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.endpoints.iter().map(|(name, _)| name.as_str())
    }

    /// The highest revision seen.
    pub fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Records a revision that was seen outside of a response.
    pub fn observe_revision(&self, revision: i64) {
        self.revision.fetch_max(revision, Ordering::Relaxed);
    }

    pub async fn range(&self, range: RangeRequest) -> Result<RangeResponse, EtcdError> {
        let send = |channel, message| async move { kv(channel).range(message).await };
        let response = self.call(range, send).await?;
        self.observe_header(response.header.as_ref());
        Ok(response)
    }

    pub async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, EtcdError> {
        let send = |channel, message| async move { kv(channel).txn(message).await };
        let response = self.call(txn, send).await?;
        self.observe_header(response.header.as_ref());
        Ok(response)
    }

    pub async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let send = |channel, message| async move { kv(channel).compact(message).await };
        self.call(CompactionRequest { revision }, send).await.map(drop)
    }

    pub async fn grant(&self, ttl: i64) -> Result<LeaseGrantResponse, EtcdError> {
        let send = |channel, message| async move { LeaseClient::new(channel).lease_grant(message).await };
        self.call(LeaseGrantRequest { ttl, id: 0 }, send).await
    }

    pub async fn revoke(&self, id: i64) -> Result<(), EtcdError> {
        let send = |channel, message| async move { LeaseClient::new(channel).lease_revoke(message).await };
        self.call(LeaseRevokeRequest { id }, send).await.map(drop)
    }

    /// Renews a lease once. Returns its ttl; zero if it has expired.
    pub async fn keep_alive(&self, id: i64) -> Result<i64, EtcdError> {
        let send = |channel, message: Request<LeaseKeepAliveRequest>| async move {
            let message = message.map(|message| futures::stream::once(std::future::ready(message)));
            let mut response = LeaseClient::new(channel).lease_keep_alive(message).await?.into_inner();
            let response = response.message().await?;
            response.map(Response::new).ok_or_else(|| Status::unavailable("no response to the lease keep-alive"))
        };
        self.call(LeaseKeepAliveRequest { id }, send).await.map(|response| response.ttl)
    }

    /// Watches keys. A member that loses its leader ends the watch.
    pub async fn watch(&self, create: WatchRequest) -> Result<tonic::Streaming<WatchResponse>, EtcdError> {
        let send = |channel, message: Request<WatchRequest>| async move {
            let mut message = message.map(|message| {
                futures::StreamExt::chain(
                    futures::stream::once(std::future::ready(message)),
                    futures::stream::pending(),
                )
            });
            message.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            WatchClient::new(channel).max_decoding_message_size(RESPONSE_BYTES).watch(message).await
        };
        self.call(create, send).await
    }

    /// Active alarms.
    pub async fn alarms(&self) -> Result<AlarmResponse, EtcdError> {
        let send = |channel, message| async move { MaintenanceClient::new(channel).alarm(message).await };
        self.call(AlarmRequest::default(), send).await
    }

    /// Reads a range and retries on every endpoint a few times.
    pub async fn range_with_retry(&self, range: RangeRequest) -> Result<RangeResponse, EtcdError> {
        let mut attempts = self.max_attempts();
        loop {
            attempts -= 1;
            match self.range(range.clone()).await {
                Err(EtcdError::Unknown(_) | EtcdError::Behind) if attempts > 0 => {}
                response => return response,
            }
        }
    }

    /// Number of attempts of a call that must not be retried forever.
    pub fn max_attempts(&self) -> usize {
        2 * self.endpoints.len() + 1
    }

    /// Status of each endpoint.
    pub async fn each_status(&self) -> Vec<(&str, Result<StatusResponse, EtcdError>)> {
        let calls = self.endpoints.iter().map(|(name, channel)| async move {
            let send = |channel, message| async move { MaintenanceClient::new(channel).status(message).await };
            (name.as_str(), self.call_at(name, channel, StatusRequest {}, &send).await)
        });
        futures::future::join_all(calls).await
    }

    fn observe_header(&self, header: Option<&ResponseHeader>) {
        if let Some(header) = header {
            self.observe_revision(header.revision);
        }
    }

    /// One attempt at the current endpoint. A failure selects the next one.
    async fn call<M, A, W>(&self, message: M, send: impl Fn(Channel, Request<M>) -> W) -> Result<A, EtcdError>
    where
        M: Clone,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let at = self.current.load(Ordering::Relaxed);
        let (name, channel) = &self.endpoints[at % self.endpoints.len()];
        let response = self.call_at(name, channel, message, &send).await;
        if matches!(response, Err(EtcdError::Unknown(_) | EtcdError::Behind)) {
            // A concurrent call may have selected the next one already.
            let next = at.wrapping_add(1);
            let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        response
    }

    /// Selects the next endpoint.
    pub fn next_endpoint(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    async fn call_at<M, A, W>(
        &self,
        name: &str,
        channel: &Channel,
        message: M,
        send: &impl Fn(Channel, Request<M>) -> W,
    ) -> Result<A, EtcdError>
    where
        M: Clone,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        // Without a token etcd would use the common name of the client certificate as the user.
        if self.login.is_some() && self.auth_token.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.authenticate(name, channel).await?;
        }
        let response = self.send(name, channel, message.clone(), send).await;
        match response {
            // A token expires after some minutes.
            Err(EtcdError::Login(_)) if self.login.is_some() => {
                self.authenticate(name, channel).await?;
                self.send(name, channel, message, send).await
            }
            response => response,
        }
    }

    async fn send<M, A, W>(
        &self,
        name: &str,
        channel: &Channel,
        message: M,
        send: &impl Fn(Channel, Request<M>) -> W,
    ) -> Result<A, EtcdError>
    where
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let mut request = Request::new(message);
        if let Some(token) = self.auth_token.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            request.metadata_mut().insert("token", token);
        }
        match tokio::time::timeout(CALL_TIMEOUT, send(channel.clone(), request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(EtcdError::of(name, &status)),
            Err(_) => Err(EtcdError::Unknown(format!("{name}: no response within {} s", CALL_TIMEOUT.as_secs()))),
        }
    }

    async fn authenticate(&self, endpoint: &str, channel: &Channel) -> Result<(), EtcdError> {
        let Some((name, password)) = self.login.clone() else { return Ok(()) };
        let request = Request::new(AuthenticateRequest { name, password });
        let response = tokio::time::timeout(CALL_TIMEOUT, AuthClient::new(channel.clone()).authenticate(request)).await;
        let response = response
            .map_err(|_| EtcdError::Unknown(format!("{endpoint}: no response within {} s", CALL_TIMEOUT.as_secs())))?;
        let response = response.map_err(|status| EtcdError::of(endpoint, &status))?.into_inner();
        let token = response.token.parse().map_err(|_| EtcdError::Login(format!("{endpoint}: invalid token")))?;
        *self.auth_token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(())
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(RESPONSE_BYTES)
}

fn tls_config(tls: &EtcdTls) -> Result<ClientTlsConfig, String> {
    let text = |error: CredentialFileError| error.to_string();
    let read = |path: &PathBuf| credential_file::read(path).map_err(text);
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
    match &tls.client {
        None => Ok(config),
        Some((certificate, key)) => {
            let key = credential_file::read_private(key).map_err(text)?;
            Ok(config.identity(Identity::from_pem(read(certificate)?, key)))
        }
    }
}
