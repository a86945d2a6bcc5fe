//! Fences for Leasehold: a target checks a fencing token in the same step as the write and rejects stale holders.
//!
//! A lease can expire while its holder is paused. When the holder wakes up, it still believes that it holds the lease; such
//! a holder is a *zombie*. A fence stops its writes inside the target, without a call to the Leasehold server.
//!
//! # Where to start
//!
//! Choose the module of your target, create its `Fence` with a [`FenceId`] (cluster, resource and slot), and arm it once.
//! Each feature enables one module:
//!
//! | feature | target | entry point |
//! |---|---|---|
//! | `cell` | a value shared by the threads of one process | `cell::FencedCell` |
//! | `dynamodb` | DynamoDB items, written in one transaction | `dynamodb::Fence` |
//! | `etcd` | etcd keys, written in one transaction | `etcd::Fence` |
//! | `file` | an append-only log, or a file that is replaced as a whole | `file::FencedLog`, `file::FencedFile` |
//! | `http` | an HTTP or gRPC service, as a [tower](https://docs.rs/tower) layer | `http::Fence` |
//! | `nats` | one subject of a JetStream stream | `nats::Fence` |
//! | `objects` | objects in S3 and similar stores | `objects::Fence` |
//! | `postgres` | PostgreSQL tables | `postgres::Fence` |
//! | `proxy` | an HTTP or gRPC service behind a reverse proxy | `proxy::serve` |
//! | `redis` | Redis keys | `redis::Fence` |
//! | `sqlite` | SQLite tables | `sqlite::Fence` |
//! | `conformance` | your own target: a test suite for its fence | `conformance::check` |
//!
//! `file`, `http` and `proxy` need Linux; the others also build for macOS and Windows.
//! [`reader_fence`] needs no feature. It protects logs that cannot reject a write, such as Kafka topics.
//!
//! # Concepts
//!
//! - A **token** is the text that a holder receives with its lease. Its *number* grows with every grant.
//! - The **mark** of a target is its high-water mark: the highest token number that the target has admitted. A token at or
//!   above the mark is admitted and becomes the mark. A lower token is *stale* and changes nothing.
//! - **Claim, then read, then write.** A new holder first claims, which raises the mark and has no other effect. After the
//!   claim no predecessor can change what the new holder reads.
//! - **Arm** a fence once, before the first write. A fence that was never armed, or lost its mark, rejects every token.
//!   **Re-arm** it from a floor that no earlier holder exceeds.
//! - A **sealed** fence admits only tokens that a key of its cluster signed. Give each fence a [`SealVerifier`]; then seal the
//!   mark, which is permanent: from then on a process without keys admits nothing.
//! - A **strict** fence follows one *incarnation* of the cluster. After a restore, it rejects the new incarnation until an
//!   operator **adopts** it.
//!
//! There is no common `Fence` trait: a common `check()` method would invite check-then-act, and the check must be one step
//! with the write.
//!
//! # Example
//!
//! ```
//! # #[cfg(feature = "cell")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_fence::cell::FencedCell;
//! use leasehold_fence::{Cluster, FenceId};
//! # use leasehold_fence::{Incarnation, Number, Token, TokenScope, resource_hash};
//! # let resource = resource_hash("jobs/settle");
//! # let token = |number| {
//! #     let (scope, number) = (TokenScope::Slot(0), Number::new(number).unwrap());
//! #     Token { cluster: Cluster(*b"examples"), incarnation: Incarnation(1), resource, scope, number }.to_string()
//! # };
//! # let (paused, successor) = (token(33), token(34)); // as printed by `leasehold acquire`
//!
//! let paid = FencedCell::new(&FenceId::new(Cluster(*b"examples"), "jobs/settle")?, Vec::new());
//! paid.claim(&paused)?;
//! paid.write(&paused, |paid| paid.push(7))?;
//!
//! paid.claim(&successor)?; // first claim, then read
//! assert_eq!(paid.read(|paid| paid.len())?, 1);
//!
//! // The paused holder wakes up. It still believes that it holds the lease; the fence rejects its write.
//! let error = paid.write(&paused, |paid| paid.push(8)).unwrap_err();
//! assert_eq!(error.code(), "STALE_TOKEN");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "cell"))]
//! # fn main() {}
//! ```
//!
//! # The rule
//!
//! [`admit`] is the rule that all fences share. To write a fence of your own, call it in the same step as the write:
//!
//! ```
//! use leasehold_fence::{Mark, Number, Verdict, admit};
//!
//! let paused = Number::new(33).unwrap();
//! let successor = Number::new(34).unwrap();
//! let Verdict::Admitted { mark } = admit(Mark::Armed(paused), successor) else { unreachable!() };
//! assert_eq!(admit(Mark::Armed(mark), paused), Verdict::Stale { presented: paused, mark: successor });
//! ```
//!
//! # Errors
//!
//! Every call returns [`Error`]. [`Error::Refused`] is the decision of the fence: nothing changed, and for a stale token the
//! decision is final. All other errors are faults of the target or of the call. Each has a stable [`code`](Error::code), and
//! its text ends with the next step.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(any(feature = "file", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "the code that targets share has no user without a target")
)]

#[cfg(all(feature = "file", not(target_os = "linux")))]
compile_error!(
    "the features `file`, `http` and `proxy` of leasehold-fence need Linux: its file locks and extended attributes"
);

mod admission;
#[cfg(feature = "cell")]
pub mod cell;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod fence_id;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod lock_holders;
#[cfg(any(feature = "etcd", feature = "nats", feature = "redis"))]
mod mark_fixed_text;
mod mark_info;
#[cfg(any(feature = "cell", feature = "dynamodb", feature = "file", feature = "objects"))]
mod mark_state;
#[cfg(any(feature = "file", feature = "objects"))]
mod mark_text;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "dynamodb", feature = "objects"))]
mod nonce;
#[cfg(feature = "objects")]
pub mod objects;
mod observer;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod reader_fence;
#[cfg(feature = "redis")]
pub mod redis;
mod refusal;
#[cfg(any(feature = "http", feature = "postgres", feature = "redis"))]
mod refusal_text;
mod seal_verifier;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use admission::ApplyOnce;
pub use error::Error;
pub use fence_id::FenceId;
pub use leasehold_core::fence::{Mark, Verdict, admit};
pub use leasehold_core::name::{Name, NameError, NameProblem, resource_hash};
pub use leasehold_core::token::{Cluster, Incarnation, Number, ParseHexError, Token, TokenError, TokenScope};
pub use leasehold_seal::{Kid, SealError, SealKeyError, SealKeys};
pub use mark_info::MarkInfo;
pub use observer::{CounterSnapshot, Counters, FenceEvent, Observer, Operation};
pub use refusal::{FenceRefusal, MarkLoss};
pub use seal_verifier::SealVerifier;
