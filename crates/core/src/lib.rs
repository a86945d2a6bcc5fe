//! DECIDES: the whole lease protocol as one deterministic state machine.
//!
//! No I/O, no clock, no async, no randomness: time, chance and order come in by the front door, and what must happen comes
//! out as a value. The server, the SDK and the simulator only drive it.
//!
//! ```
//! use leasehold_core::command::{Acquire, Answer, Command, Input, Request};
//! use leasehold_core::grantor::{Opening, Output, Recovered};
//! use leasehold_core::lease::Rung;
//! use leasehold_core::time::{Instant, Now, Wall};
//! use leasehold_core::token::{Cluster, Incarnation};
//!
//! let now = Now { instant: Instant::from_millis(0), wall: Wall::after_era(1_000) };
//! let opening = Opening {
//!     cluster: Cluster(*b"examples"),
//!     incarnation: Incarnation(1),
//!     generation: 1,
//!     rung: Rung::Session,
//!     max_ttl: 600_000,
//!     restore: None,
//! };
//! let mut grantor = Recovered::empty(7).open(now, &opening).unwrap();
//! let mut out = Output::default();
//! grantor.take_output(&mut out); // make out.batch durable, then:
//! grantor.serve(now);
//!
//! let acquire = Command::Acquire(Acquire::exclusive("jobs/settle", "worker-1", 10_000));
//! grantor.step(now, &Input::Asked(Request::tagged(1), acquire));
//! grantor.step(now, &Input::Tick);
//! grantor.take_output(&mut out); // make out.batch durable, and only then tell:
//! assert!(matches!(out.replies[0].answer, Answer::Granted(_)));
//! ```

#![forbid(unsafe_code)]

pub mod charter;
pub mod codec;
pub mod command;
pub mod coverage;
pub mod fence;
pub mod grantor;
pub mod holder;
pub mod ids;
pub mod lease;
pub mod limits;
pub mod mutants;
pub mod name;
pub mod payload;
pub mod record;
pub mod refusal;
pub mod time;
pub mod token;

pub(crate) mod store;
