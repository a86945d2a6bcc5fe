//! The check inside a target: what refuses the zombie.
//!
//! One directory and one cargo feature per target: `sqlite`, `file` (an append log) and `postgres`. They share the rule,
//! which the core decides, the way a token's text is checked before its number is compared, one refusal and one error.
//! There is no trait for them: a common `check()` would invite check-then-act, and the check must be one step with the
//! write. The rule can also be used by hand, in the same step as the write it admits:
//!
//! ```
//! use leasehold_core::token::Number;
//! use leasehold_fence::{Mark, Verdict, admit};
//!
//! let paused = Number::new(33).unwrap();
//! let successor = Number::new(34).unwrap();
//!
//! // The successor's first act is its claim: it raises the mark before it reads.
//! let Verdict::Admitted { mark } = admit(Mark::Armed(paused), successor) else { unreachable!() };
//!
//! // The paused holder wakes up and writes. It still believes that it holds; the target knows better.
//! assert_eq!(admit(Mark::Armed(mark), paused), Verdict::Stale { presented: paused, mark: successor });
//! ```

#![cfg_attr(
    not(any(feature = "file", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "what the targets share has no user without them; the rule has")
)]

#[cfg(any(feature = "file", feature = "sqlite"))]
mod blocker;
#[cfg(feature = "cell")]
pub mod cell;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "file")]
pub mod file;
#[cfg(any(feature = "etcd", feature = "nats", feature = "redis"))]
mod fixed;
#[cfg(feature = "http")]
pub mod http;
mod kept;
pub mod logs;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "dynamodb", feature = "objects"))]
mod nonce;
#[cfg(feature = "objects")]
pub mod objects;
mod observer;
mod place;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod refusal;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "cell", feature = "dynamodb", feature = "file", feature = "objects"))]
mod state;
#[cfg(any(feature = "file", feature = "objects"))]
mod text;

pub use error::Error;
pub use kept::{Kept, Once};
pub use leasehold_core::fence::{Mark, Verdict, admit};
pub use observer::{Act, Counted, Counters, Event, Observer};
pub use refusal::{Lost, Refusal};
