//! Protocol Buffers and JSON messages of Leasehold, and their conversion to and from the types of the core.
//!
//! # Start here
//!
//! | side | reads | writes |
//! |---|---|---|
//! | server | [`decode_hello`], [`DecodedCommand::decode`], [`decode_renewals`] | [`welcome`], [`encode_answer`], [`encode_event`], views such as [`resource_view`] |
//! | client | [`decode_answer`], [`decode_event`], [`problem_from_status`] | [`encode_command`] |
//!
//! The messages and the gRPC service are defined in `proto/leasehold/v1`; [`v1`] is the generated code. [`json`] holds the
//! bodies of the HTTP API. Each module converts one group of messages in both directions and makes no decisions. A decoded
//! command borrows its names from the message:
//!
//! ```
//! use leasehold_wire::{CommandContext, DecodedCommand, TokenIssuer, v1};
//! use leasehold_core::command::Command;
//! use leasehold_core::token::{Cluster, Incarnation};
//!
//! let caller = CommandContext { session: None, issuer: TokenIssuer { cluster: Cluster(*b"examples"), incarnation: Incarnation(1) } };
//! let acquire = v1::Acquire { resource: "jobs/settle".into(), holder: "worker-1".into(), ..Default::default() };
//! let operation = v1::request::Operation::Acquire(acquire);
//! let decoded = DecodedCommand::decode(&operation, &caller).unwrap();
//! assert!(matches!(decoded.command(), Command::Acquire(acquire) if acquire.resource == "jobs/settle"));
//! ```
//!
//! This crate does not define the formats of token text, journal records and snapshots: they belong to the core.
//!
//! # Errors
//!
//! - A message that is well-formed but not valid is a [`Refusal`](leasehold_core::refusal::Refusal) with the name of the field.
//! - [`v1::Problem`] is an error on the wire: a stable [`Code`], a message, the next step, and the fields of the code. [`problem`]
//!   makes one from a refusal.
//! - [`bounded_codec`] rejects a message that exceeds [`MAX_REQUEST_BYTES`] or [`MAX_REQUEST_FIELDS`] before it is decoded.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `openapi` | schemas of the [`json`] bodies for an OpenAPI document | no |

#![forbid(unsafe_code)]

/// The generated messages and gRPC service of `proto/leasehold/v1`.
pub mod v1 {
    #![allow(missing_docs, clippy::all, rustdoc::all)]
    tonic::include_proto!("leasehold.v1");
}

/// The encoded `FileDescriptorSet` of `proto/leasehold/v1` with its comments, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/leasehold.v1.bin"));

mod answer;
pub mod bounded_codec;
mod charter;
pub mod codes;
mod command;
mod command_context;
mod coverage;
pub mod duration;
mod enums;
mod event;
pub mod headers;
mod hello;
mod ids;
pub mod json;
mod lease;
mod payload;
mod payload_view;
mod problem;
mod view;

pub use answer::{RenewBatchReply, decode_answer, encode_answer};
pub use charter::{decode_charter, encode_charter, encode_handoff_terms};
pub use codes::Code;
pub use command::{DecodedCommand, core_request, encode_command, presented_lease, presented_token, request_digest};
pub use command_context::{CommandContext, TokenIssuer};
pub use coverage::encode_coverage;
pub use event::{decode_event, encode_event};
pub use hello::{FEATURES, HelloRequest, PROTOCOL, decode_hello, decode_highest_token, welcome};
pub use ids::{lease_bits, lease_id, session_bits, session_id};
pub use lease::{decode_current, decode_grant, decode_renewals, encode_current, encode_grant};
pub use payload::{delivery_resource, delivery_token};
pub use payload_view::{queue_page, queue_view, state_entries, state_list};
pub use problem::{METADATA_CODE, problem, problem_from_status, problem_to_status};
pub use view::{
    deadlock_view, ended_lease, lease_view, listed_lease, proposal_view, resource_view, session_view, status_view,
    usage, usage_list, waiter_view,
};

/// Maximum size of a request message, in bytes.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;
/// Maximum size of a request at the transport of a server. It exceeds [`MAX_REQUEST_BYTES`], so that a message that is
/// slightly too large gets a proper error instead of a closed connection.
pub const MAX_TRANSPORT_BYTES: usize = 4 * MAX_REQUEST_BYTES;
/// Name of the limit on the bytes of a message or body.
pub const MESSAGE_BYTES_LIMIT: &str = "message_bytes";
/// Maximum number of top-level fields of a request message, which bounds the requests of a batch.
pub const MAX_REQUEST_FIELDS: usize = 1 << 13;
/// Maximum number of leases of a batch of renewals.
pub const MAX_RENEWALS: usize = 1 << 13;
/// Maximum size of a response message, in bytes.
pub const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Maximum number of top-level fields of a response message.
pub const MAX_RESPONSE_FIELDS: usize = 1 << 16;
/// Maximum number of leases in the view of one resource. The view also has the number of all leases.
pub const MAX_LEASES_PER_VIEW: usize = 1_000;

const _: () = {
    use leasehold_core::limits::{
        CHARTER_BYTES, ITEM_BYTES, MULTI, NAME_BYTES, RECEIVE_BYTES, RECEIVE_MAX, STATE_BYTES,
    };
    assert!(MAX_RENEWALS * 16 + 1_024 <= MAX_REQUEST_BYTES, "a full batch of renewals fits");
    assert!(
        ITEM_BYTES + 4_096 <= MAX_REQUEST_BYTES && STATE_BYTES + 4_096 <= MAX_REQUEST_BYTES,
        "the largest value fits"
    );
    assert!(MULTI * (NAME_BYTES + 16) + 8_192 <= MAX_REQUEST_BYTES && CHARTER_BYTES * 4 <= MAX_REQUEST_BYTES);
    assert!(RECEIVE_BYTES + ITEM_BYTES + RECEIVE_MAX * 64 <= MAX_RESPONSE_BYTES, "the fullest receive fits");
};
