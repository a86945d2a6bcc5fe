//! What holders and servers say to each other, and how it becomes the core's words.
//!
//! The messages are described in `proto/leasehold/v1`; [`v1`] is what the descriptions say in Rust. Each file beside it
//! converts one theme, in both directions, and decides nothing. Names are borrowed from the message they came in. The
//! bytes of token text, record and snapshot are not spoken here: the core owns them.
//!
//! ```
//! use leasehold_wire::{Asked, Caller, Issuer, v1};
//! use leasehold_core::command::Command;
//! use leasehold_core::token::{Cluster, Incarnation};
//!
//! let caller = Caller { session: None, issuer: Issuer { cluster: Cluster(*b"examples"), incarnation: Incarnation(1) } };
//! let acquire = v1::Acquire { resource: "jobs/settle".into(), holder: "worker-1".into(), ..Default::default() };
//! let ask = v1::request::Ask::Acquire(acquire);
//! let asked = Asked::read(&ask, &caller).unwrap();
//! assert!(matches!(asked.command(), Command::Acquire(acquire) if acquire.resource == "jobs/settle"));
//! ```

#![forbid(unsafe_code)]

/// The messages and the service of version 1, as `proto/leasehold/v1` describes them.
pub mod v1 {
    #![allow(missing_docs, clippy::all, rustdoc::all)]
    tonic::include_proto!("leasehold.v1");
}

mod answer;
mod asked;
mod charter;
pub mod codec;
pub mod codes;
mod coverage;
pub mod duration;
mod event;
pub mod headers;
mod ids;
pub mod json;
mod kept;
mod lease;
mod payload;
mod problem;
mod session;
mod view;
mod words;

pub use answer::{Renewals, answer, heard};
pub use asked::{Asked, Caller, Issuer, ask, digest, request};
pub use charter::{charter, read_charter};
pub use codes::Code;
pub use coverage::fences;
pub use event::{event, read_event};
pub use ids::{lease_bits, lease_id, session_bits, session_id};
pub use kept::{queue_view, state_list};
pub use lease::{current, grant, read_current, read_grant, renewals};
pub use problem::{METADATA_CODE, from_status, problem, status};
pub use session::{Arrival, MUST_UNDERSTAND, PROTOCOL, arrival, read_shown, welcome};
pub use view::{
    deadlock_view, ended, lease_view, resource_view, session_view, status_view, usage, usage_list, waiter_view,
};

/// Most bytes of one message that asks.
pub const ASK_BYTES: usize = 256 << 10;
/// What a server's transport takes of a message that asks: more than [`ASK_BYTES`], so that one that is a little too large
/// is refused in words.
pub const MESSAGE_BYTES: usize = 4 * ASK_BYTES;
/// Most requests of one message that asks: fields at its top.
pub const ASK_FIELDS: usize = 1 << 13;
/// Most leases of one batch of renewals.
pub const RENEWALS: usize = 1 << 13;
/// Most bytes of one message that answers.
pub const ANSWER_BYTES: usize = 4 << 20;
/// Most entries of one message that answers: fields at its top.
pub const ANSWER_FIELDS: usize = 1 << 16;
/// Most leases that the view of one resource tells; it tells how many there are.
pub const LEASES_SHOWN: usize = 1_000;

const _: () = {
    use leasehold_core::limits::{
        CHARTER_BYTES, ITEM_BYTES, MULTI, NAME_BYTES, RECEIVE_BYTES, RECEIVE_MOST, STATE_BYTES,
    };
    assert!(RENEWALS * 16 + 1_024 <= ASK_BYTES, "a full batch of renewals fits");
    assert!(ITEM_BYTES + 4_096 <= ASK_BYTES && STATE_BYTES + 4_096 <= ASK_BYTES, "the largest value fits");
    assert!(MULTI * (NAME_BYTES + 16) + 8_192 <= ASK_BYTES && CHARTER_BYTES * 4 <= ASK_BYTES);
    assert!(RECEIVE_BYTES + ITEM_BYTES + RECEIVE_MOST * 64 <= ANSWER_BYTES, "the fullest receive fits");
};
