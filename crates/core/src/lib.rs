//! The Leasehold lease protocol as one deterministic state machine, without I/O.
//!
//! The entry point is [`Grantor::step`](grantor::Grantor::step). It takes the current time and one input, and changes the
//! state; [`Grantor::take_output`](grantor::Grantor::take_output) returns what the caller must make durable and the replies to
//! send afterwards. There is no clock, no async and no randomness inside: time, random bytes and the order of requests are
//! inputs. The server, the client library and the simulator drive the same code.
//!
//! # Concepts
//!
//! - **Turn**: a driver steps all pending [inputs](command::Input) with one [`Now`](time::Now), then a
//!   [`Tick`](command::Input::Tick), then takes the output. It appends the batch to its journal, and sends replies and notices
//!   only after the batch is durable.
//! - **[Record](record)**: a fact in the journal. Applying a record is the only way the state changes, both in service and in
//!   [recovery](grantor::recover), so equal records give an equal state.
//! - **[Command](command), [answer](command::Answer), [refusal]**: the typed request, its reply, and a reply that says
//!   no, with a stable code and a next step.
//! - **[Token](token)**: the position of a grant in one order of all grants. A [fence] at a target compares it with its
//!   mark (the high-water mark) and rejects a lower one.
//! - **Tenure and grantor time**: one tenure is the service of one grantor from opening to end.
//!   [Grantor time](time::GrantorTime) runs only while a grantor serves, so an outage expires no lease.
//! - **[Holder](holder)**: the client side as pure logic: how long a holder may act on its own clock, and when it renews.
//! - **[Charter](charter)**: the declared terms of leases under a prefix. **[Payloads](payload)**: queues, small state and cache
//!   invalidation under leases. **[Coverage](coverage)**: which targets check tokens.
//!
//! # Example
//!
//! ```
//! use leasehold_core::command::{Acquire, Answer, Command, Input, Request};
//! use leasehold_core::grantor::{Output, RecoveredGrantor, TenureOptions};
//! use leasehold_core::lease::Validity;
//! use leasehold_core::time::{Instant, Now, WallClock};
//! use leasehold_core::token::{Cluster, Incarnation};
//!
//! let now = Now { instant: Instant::from_millis(0), wall: WallClock::after_era(1_000) };
//! let options = TenureOptions {
//!     cluster: Cluster(*b"examples"),
//!     incarnation: Incarnation(1),
//!     generation: 1,
//!     validity: Validity::Session,
//!     max_ttl: 600_000,
//!     restore: None,
//! };
//! let mut grantor = RecoveredGrantor::empty(7).open(now, &options).unwrap();
//! let mut out = Output::default();
//! grantor.take_output(&mut out); // make out.batch durable, then:
//! grantor.serve(now);
//!
//! let acquire = Command::Acquire(Acquire::exclusive("jobs/settle", "worker-1", 10_000));
//! grantor.step(now, &Input::Request(Request::tagged(1), acquire));
//! grantor.step(now, &Input::Tick);
//! grantor.take_output(&mut out); // make out.batch durable, then send out.replies:
//! assert!(matches!(out.replies[0].answer, Answer::Granted(_)));
//! ```
//!
//! # Features
//!
//! - `mutants`: compiles in the [faults](mutants) that the tests must detect. It is off by default and must stay off in
//!   production.

#![forbid(unsafe_code)]

pub mod access;
pub mod charter;
pub mod codec;
pub mod command;
pub mod coverage;
pub mod fence;
pub mod grantor;
pub mod holder;
pub mod ids;
pub mod journal_lineage;
pub mod lease;
pub mod limits;
pub mod mutants;
pub mod name;
pub mod payload;
pub mod record;
pub mod refusal;
pub mod secret;
pub mod time;
pub mod token;
pub mod trace_context;
pub mod unicode;

pub(crate) mod store;
