//! Async client for [Leasehold](https://github.com/leasehold/leasehold): acquire, renew and release leases with fencing tokens.
//!
//! A lease makes one process the holder of a resource for a limited time. The holder presents its *fencing token* with every
//! write, and the target rejects a token that is older than one it has seen. So a holder that was paused, partitioned or
//! suspended cannot damage what its successor writes.
//!
//! # Start here
//!
//! [`Client::new`] or [`Client::builder`] makes a client, [`Client::lock`] describes a lease, [`Lock::acquire`] returns a
//! [`Guard`], and [`Guard::run`] runs work that stops when the lease does:
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold::Client;
//!
//! # async fn write(_token: &str) -> Result<(), leasehold::Error> { Ok(()) }
//! # async fn example() -> Result<(), leasehold::Error> {
//! let client = Client::builder("127.0.0.1:7421")?.holder("worker-1").build();
//! let guard = client.lock("jobs/settle").wait(Duration::from_secs(60)).acquire().await?;
//! // Every write presents the token. The work is dropped at the deadline of the lease.
//! guard.run_try(|lease| async move { write(&lease.token()).await }).await?;
//! client.close().await
//! # }
//! ```
//!
//! The futures run on any async runtime; gRPC and timers of queries need [tokio]. [`blocking`] has the same API without async.
//!
//! # Concepts
//!
//! - **Session.** A client has one session, kept alive by a thread of its own, so that a blocked async runtime loses no lease.
//!   All leases end with the session.
//! - **Guard and handle.** A [`Guard`] owns a lease; dropping it releases the lease. A [`LeaseHandle`] can be cloned; it has the
//!   token, the state and the deadline.
//! - **Local deadline.** The holder stops by its own clock, before the grantor grants the lease to another holder
//!   ([`GuardState::Suspended`]).
//! - **Token.** [`LeaseHandle::token`] is a [`FencingToken`]; present its text to a fence, for example one of `leasehold-fence`.
//! - **Handoff.** [`LeaseHandle::handoff`] transfers a lease without waiting for its expiry. A successor calls
//!   [`LeaseHandle::wait_claimable`] first, then claims, reads and writes, in this order: [`Claim`], [`MustRead`], [`MayWrite`].
//! - **Recipes.** [`recipes`] has elections, service discovery, sharding, queues, caches, reservations and more.
//!
//! # Errors
//!
//! [`Error`] has a stable [`code`](Error::code), a [`message`](Error::message) and a [`next_step`](Error::next_step).
//! [`Error::is_retryable`] says that nothing happened and the request can be repeated; [`Error::outcome_unknown`] says that the
//! reply was lost.
//!
//! Requests about leases fail with [`RequestError`]: either `Rejected` with an [`Error`], or `Indeterminate` with a
//! [`PendingOutcome`], which the caller can [resolve](PendingOutcome::resolve). Work under a lease is stopped with [`RunError`].
//!
//! # Cancel safety
//!
//! All futures of this crate may be dropped at any time. Dropping [`Lock::acquire`] cancels the wait, and a lease that was
//! granted meanwhile is released. Methods named `wait_…` and all streams lose nothing when a pending `next` is dropped. A write
//! ([`LeaseHandle::put`]) whose future is dropped may or may not be executed.
//!
//! # Platforms
//!
//! The client runs on Linux, macOS and Windows. There its clock continues while the machine is suspended, so that a lease that
//! expired meanwhile is suspended at the first check after the wake-up. On other systems the clock may stop during a suspend: a
//! holder may then believe for up to one ttl that it still holds its lease, and only a fence rejects its writes.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `credential` | `recipes::credential`: signed credentials that prove a lease offline | no |
//! | `report` | `report`: reports zombies that fences refused to the grantor | no |
//! | `testing` | [`testing`]: an in-memory server with a manual clock, for tests of programs that hold leases | no |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admin;
mod audit;
mod backup;
mod bearer_token_file;
pub mod blocking;
mod client;
mod clock;
mod cluster_names;
mod connector;
mod endpoints;
mod error;
mod failover;
mod fence_coverage;
mod guard;
#[cfg(any(test, feature = "testing"))]
mod in_memory;
mod lease_handle;
mod lease_pages;
mod lock_builder;
mod metrics_hook;
mod metrics_query;
mod opened_session;
mod page_fetch;
mod queries;
pub mod recipes;
#[cfg(feature = "report")]
#[cfg_attr(docsrs, doc(cfg(feature = "report")))]
pub mod report;
mod server_pool;
pub mod session_stream;
mod session_worker;
mod stamped_token;
mod stored_value;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
mod tls_options;
mod token;
mod traceparent;
mod transport;
pub mod types;
mod unary_leases;
mod unary_sessions;
mod unary_waits;
mod watch;

pub use audit::{AuditExportStream, AuditFilter, AuditPage, AuditPages};
pub use backup::BackupStream;
pub use bearer_token_file::BearerTokenFile;
pub use client::{Client, ClientBuilder};
pub use endpoints::{Address, Endpoints};
pub use error::Error;
pub use guard::{Guard, RunError};
pub use lease_handle::{GuardState, HandoffOptions, LeaseHandle, LeaseStatus, LeaseUpdates};
pub use lease_pages::{LeasePage, LeasePages};
pub use lock_builder::{AcquireError, Lock};
pub use metrics_hook::MetricsHook;
pub use opened_session::OpenedSession;
pub use queries::{ResourcePage, ResourcePages};
pub use session_worker::{PendingOutcome, RequestError};
pub use stamped_token::StampedToken;
pub use stored_value::StoredValue;
pub use tls_options::TlsOptions;
pub use token::FencingToken;
pub use traceparent::traceparent_from_env;
pub use types::{Claim, ClockDrift, Deadline, HandoffMode, Loss, MayWrite, MustRead, NextStep};
pub use unary_leases::{GrantedLease, HeldLease, RenewedLease};
pub use watch::{LeaseEvent, Watch, WatchItem};

/// Secrets of leases and sessions, for [`Client::with_lease_secret`] and [`Client::with_session_secret`].
pub use leasehold_core::secret::{LeaseSecret, SessionSecret};
/// An operation of a distributed trace, for [`ClientBuilder::traceparent`] and [`Lock::traceparent`].
pub use leasehold_core::trace_context::TraceContext;
/// Stable error codes.
pub use leasehold_wire::Code;
/// Table of the stable error codes.
#[doc(hidden)]
pub use leasehold_wire::codes;
/// Durations as text: `10s`, `1500ms`.
#[doc(hidden)]
pub use leasehold_wire::duration;
/// Idempotency key of a request, for [`Client::with_idempotency_key`].
pub use leasehold_wire::headers::IdempotencyKey;
/// Query results as JSON bodies, with the field names of the HTTP API.
pub use leasehold_wire::json;
