//! `grpc.health.v1`: whether this server serves. The decision is that of `/readyz`, except that a standby is ready and does not serve.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use leasehold_wire::v1::leasehold_server::SERVICE_NAME;
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, SERVICE_NAME as HEALTH_NAME};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_server::SERVICE_NAME as REFLECTION_NAME;
use tonic_reflection::pb::v1alpha::server_reflection_server::SERVICE_NAME as REFLECTION_ALPHA_NAME;

use super::Api;

/// Time between two checks of a watch. All watches of a server share a check.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Largest request, in bytes.
pub const MAX_HEALTH_BYTES: usize = 4 << 10;

/// A service that reports its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckedService {
    /// The server as a whole, or its leases: it serves while it leads.
    Leases,
    /// A service that answers as long as the process does.
    Always,
}

impl CheckedService {
    fn named(name: &str) -> Option<Self> {
        match name {
            "" | SERVICE_NAME => Some(Self::Leases),
            HEALTH_NAME | REFLECTION_NAME | REFLECTION_ALPHA_NAME => Some(Self::Always),
            _ => None,
        }
    }
}

/// The health service. Cheap to clone.
#[derive(Clone)]
pub struct GrpcHealth {
    api: Api,
    /// The last check for a watch.
    last: Arc<Mutex<Option<(Instant, bool)>>>,
}

impl GrpcHealth {
    pub fn new(api: Api) -> Self {
        Self { api, last: Arc::default() }
    }

    /// Whether a server that leads can answer now.
    async fn serves(&self) -> bool {
        self.api.standby.is_none() && self.api.is_ready().await
    }

    /// The same as of a moment ago, so that many watches cost one check.
    async fn served_recently(&self) -> bool {
        let mut last = self.last.lock().await;
        match *last {
            Some((at, serves)) if at.elapsed() < WATCH_EVERY / 2 => serves,
            _ => {
                let serves = self.serves().await;
                *last = Some((Instant::now(), serves));
                serves
            }
        }
    }

    async fn watched_status(&self, service: Option<CheckedService>) -> ServingStatus {
        match service {
            None => ServingStatus::ServiceUnknown,
            Some(CheckedService::Always) => ServingStatus::Serving,
            Some(CheckedService::Leases) => status(self.served_recently().await),
        }
    }

    /// Whether this server has stopped deciding, or standing by, for good; another one may take over at this address, or this process
    /// with another role.
    fn has_ended(&self) -> bool {
        let has_stopped = || self.api.queue.is_stopping() || self.api.queue.close_reason().is_some();
        self.api.watchers.is_closed() || (self.api.standby.is_none() && has_stopped())
    }
}

const fn status(serves: bool) -> ServingStatus {
    if serves { ServingStatus::Serving } else { ServingStatus::NotServing }
}

const fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

#[tonic::async_trait]
impl Health for GrpcHealth {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let status = match CheckedService::named(&request.get_ref().service) {
            Some(CheckedService::Always) => ServingStatus::Serving,
            Some(CheckedService::Leases) => status(self.serves().await),
            None => return Err(Status::not_found("unknown service; the services are listed by reflection")),
        };
        Ok(Response::new(response(status)))
    }

    /// Sends the status, then every change. The stream ends with the server, after its last status.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let service = CheckedService::named(&request.get_ref().service);
        let state = (self.clone(), None, false);
        let statuses = futures::stream::unfold(state, move |(health, last, ended)| async move {
            if ended {
                return None;
            }
            loop {
                if last.is_some() {
                    let _ = tokio::time::timeout(WATCH_EVERY, health.api.watchers.closed()).await;
                }
                // Before the check, which fails from then on.
                let ended = health.has_ended();
                let status = if ended { ServingStatus::NotServing } else { health.watched_status(service).await };
                if last != Some(status) {
                    return Some((Ok(response(status)), (health, Some(status), ended)));
                }
                if ended {
                    return None;
                }
            }
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}
