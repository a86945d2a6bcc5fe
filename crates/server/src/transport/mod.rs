//! The network side of a server: listener, TLS, unix socket, HTTP/1 and HTTP/2 connections, limits, and middlewares that every
//! request passes.
//!
//! One port serves gRPC, HTTP, health checks and metrics. This module knows no endpoint: it serves any router.

pub mod body_limit;
mod connection_activity;
mod connection_counts;
mod connection_deadlines;
mod connection_limit;
mod cross_site_check;
pub mod error_layer;
mod grpc_detection;
mod http_problem;
mod http_server;
mod identity_traffic;
mod limits;
mod listener;
mod message_meter;
mod peer_network;
mod peer_stream;
pub mod rate_limit;
mod request_identity;
mod served_connection;
mod shutdown_phase;
pub mod tls;
mod token_bucket;
pub mod unix_socket;

pub use connection_limit::{ConnectionLimit, ConnectionPermit};
pub use cross_site_check::AllowedHosts;
pub use grpc_detection::{OPEN_METHODS, SERVICE_PATH, is_grpc, problem_of_status, problem_response};
pub use http_problem::{HttpProblem, ProblemExt};
pub use identity_traffic::{IdentityTraffic, TrafficLimiter, TrafficLimits, TrafficRules, WatchPermit, share};
pub use limits::{BODY_BYTES, MAX_STREAMS, TransportLimits};
pub use listener::{ListenConfig, ListenError, Listener, ServeTask, ShutdownPhase};
pub use rate_limit::{RateLimit, RequestCharge, RequestRate};
