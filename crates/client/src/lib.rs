//! What a program holds a lease with.
//!
//! Today this is the connection: one [`Client`] over several servers, every single call of the service, and one [`Error`]
//! for everything that goes wrong. The guard, its renewals and the recipes will stand on it. When to renew and until when
//! a holder may think it holds is decided in [`leasehold_core`] already, so that the simulator will run the very rules
//! that programs run.
//!
//! ```no_run
//! use leasehold::{Client, Endpoints, Held};
//! use leasehold_core::command::Acquire;
//!
//! # async fn example() -> Result<(), leasehold::Error> {
//! let client = Client::connect(Endpoints::parse("127.0.0.1:7421")?);
//! let granted = client.acquire(&Acquire::exclusive("jobs/settle", "worker-1", 30_000)).await?;
//! let held = Held::of("jobs/settle", granted.token());
//! client.renew(&held, None, None).await?;
//! client.release(&held).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod address;
mod backup;
mod charter;
mod client;
mod error;
mod lease;
mod look;
mod operate;
mod route;
mod session;
pub mod stream;
mod trail;
mod watch;

pub use address::{Address, Endpoints};
pub use backup::Copying;
pub use client::{Client, Options};
pub use error::Error;
pub use lease::{Granted, Held, Renewed};
pub use look::Listing;
pub use session::Opened;
pub use trail::{Exporting, Trail, Wanted};
pub use watch::{Happened, Watch, Watched};

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
