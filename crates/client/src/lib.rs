//! What a program holds a lease with.
//!
//! A [`Client`] reaches several servers. [`Client::lock`] asks for a lease and gives a [`Guard`], which is renewed from a
//! thread of its own, knows by its own clock until when it may act, and gives the lease back when it is dropped. When to
//! renew and until when to believe is decided in [`leasehold_core::holder`]. Single calls, without a guard, are there too.
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold::{Client, Endpoints};
//!
//! # async fn write(_token: &str) {}
//! # async fn example() -> Result<(), leasehold::Error> {
//! let client = Client::connect(Endpoints::parse("127.0.0.1:7421")?);
//! let guard = client.lock("jobs/settle").wait(Duration::from_secs(60)).acquire().await?;
//! // Every write shows the token; the work is dropped if the lease cannot be kept.
//! guard.run(|hold| async move { write(&hold.token()).await }).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod address;
mod backup;
pub mod blocking;
mod charter;
mod client;
mod clock;
mod error;
mod failure;
mod fences;
mod guard;
mod hold;
mod holder;
mod lease;
mod lock;
mod look;
mod meter;
mod operate;
pub mod recipes;
#[cfg(feature = "report")]
pub mod report;
mod route;
mod session;
mod state;
pub mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trail;
mod watch;

pub use address::{Address, Endpoints};
pub use backup::Copying;
pub use client::{Client, Options};
pub use error::Error;
pub use failure::{Failure, Unresolved};
pub use guard::{Guard, Stopped};
pub use hold::{HandOver, Hold, Sight, State, Watching};
pub use lease::{Granted, Held, Renewed};
pub use lock::Lock;
pub use look::Listing;
pub use meter::Meter;
pub use session::Opened;
pub use state::Stored;
pub use trail::{Exporting, Trail, Wanted};
pub use watch::{Happened, Watch, Watched};

/// Until when a holder may act, what ends its lease, what follows, and the order in which a successor begins.
pub use leasehold_core::holder::{Claim, Deadline, Loss, MayWrite, MustRead, NextStep, RateError};
/// The code of an error.
pub use leasehold_wire::Code;
/// The stable codes, what each means, and what a command line ends with.
pub use leasehold_wire::codes;
/// Durations as people write them: `10s`, `1500ms`.
pub use leasehold_wire::duration;
/// The key under which a retry is recognised.
pub use leasehold_wire::headers::Key;
/// Answers as JSON, with the field names of the HTTP interface.
pub use leasehold_wire::json;
