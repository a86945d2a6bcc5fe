//! Golden files: the encoding of messages never changes.

use std::fmt::Debug;
use std::fmt::Write;
use std::path::Path;

use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use leasehold_wire::v1::{self, request::Operation, response::Answer};
use leasehold_wire::{problem, request_digest};
use prost::Message;

use crate::generators::token;

/// Compares a message with its golden file. `LEASEHOLD_BLESS=1` writes a file that does not exist yet; it never overwrites one.
fn assert_golden<M: Message + Default + PartialEq + Debug>(name: &str, message: &M) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/golden/{name}.hex"));
    if !file.exists() && std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&file, hex(&message.encode_to_vec())).expect("the file can be written");
    }
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let bytes = unhex(&text);
    assert_eq!(&M::decode(&*bytes).expect("a valid golden file"), message, "{name} decodes to another message");
    assert_eq!(hex(&message.encode_to_vec()), text, "{name} has another encoding");
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").expect("writing to a string does not fail");
        }
        text.push('\n');
    }
    text
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    pairs.map(byte).collect()
}

fn acquire() -> v1::Acquire {
    v1::Acquire {
        resource: "jobs/settle".into(),
        holder: "worker-1".into(),
        session: None,
        access: v1::Access::Units.into(),
        units: 3,
        slots: Some(8),
        ttl_ms: Some(10_000),
        options: Some(v1::AcquireOptions {
            wait_ms: 5_000,
            priority: Some(7),
            reentrant: true,
            max_hold_ms: Some(60_000),
            progress_ms: Some(30_000),
            metadata: b"blue".to_vec(),
        }),
    }
}

fn held() -> v1::LeaseRef {
    v1::LeaseRef {
        selector: Some(v1::lease_ref::Selector::Lease(17 << 32 | 2)),
        token_number: 9,
        token: token("jobs/settle", 9).to_string(),
        holder: Some("worker-1".into()),
    }
}

#[test]
fn the_encoding_of_a_hello_never_changes() {
    let open = v1::OpenSession { holder: "worker-1".into(), ttl_ms: 10_000, waits_only: true };
    let hello = v1::Hello {
        protocol: 1,
        session: Some(v1::hello::Session::Open(open)),
        client: "test 1".into(),
        wall_ms: 1_763_000_000_000,
        highest_token: token("jobs/settle", 9).to_string(),
        required_features: vec!["something".into()],
        highest_token_resource: String::new(),
    };
    assert_golden("hello", &v1::ClientBatch { hello: Some(hello), ..Default::default() });
}

#[test]
fn the_encoding_of_requests_never_changes() {
    let operations = [
        Operation::Acquire(acquire()),
        Operation::AcquireAll(v1::AcquireAll {
            resources: vec![v1::ResourceAccess { resource: "a".into(), access: v1::Access::Shared.into(), units: 0 }],
            holder: "worker-1".into(),
            session: Some(3 << 32),
            ttl_ms: None,
            options: None,
        }),
        Operation::Renew(v1::Renew { lease: Some(held()), ttl_ms: Some(5_000), progress: Some(42) }),
        Operation::Release(held()),
        Operation::Handoff(v1::Handoff {
            selector: Some(v1::handoff::Selector::Resource("jobs/settle".into())),
            token_number: Some(9),
            token: String::new(),
            to: Some("worker-2".into()),
            mode: v1::HandoffMode::Overlap.into(),
            drain_ms: Some(2_000),
        }),
        Operation::Put(v1::Put {
            lease: Some(held()),
            key: "at".into(),
            value: Some(vec![1, 2]),
            expected_revision: Some(4),
        }),
        Operation::RenewSession(v1::RenewSession {
            held: Some(v1::HeldDigest { count: 2, digest: 11 }),
            session: None,
        }),
    ];
    let requests = operations
        .into_iter()
        .zip(1..)
        .map(|(operation, sequence)| v1::Request {
            sequence,
            operation: Some(operation),
            alone: None,
            traceparent: None,
        })
        .collect();
    assert_golden("requests", &v1::ClientBatch { lowest_pending: 1, requests, ..Default::default() });
}

#[test]
fn the_encoding_of_renewals_never_changes() {
    let renewals =
        vec![v1::RenewBatch { sequence: 8, leases: vec![17 << 32 | 2, 18 << 32], token_numbers: vec![9, 12] }];
    assert_golden(
        "renewals",
        &v1::ClientBatch { highest_token: token("a", 12).to_string(), renewals, ..Default::default() },
    );
}

#[test]
fn the_encoding_of_answers_never_changes() {
    let grant = v1::Grant {
        resource: "jobs/settle".into(),
        lease: 17 << 32 | 2,
        holder: "worker-1".into(),
        token: token("jobs/settle", 9).to_string(),
        token_number: 9,
        scope: v1::TokenScope::Slot.into(),
        slot: 3,
        ttl_ms: 10_000,
        remaining_ms: 9_000,
        validity: v1::Validity::Quorum.into(),
        state: v1::LeaseState::Held.into(),
        reason: v1::EndReason::Unspecified.into(),
        drain_ms: 2_000,
        overlaps_ms: Some(1_000),
        depth: 1,
        rotates: false,
        secret: Vec::new(),
        secret_required: false,
        stamped_tokens: Vec::new(),
    };
    let lost = problem(&Refusal::Lost(EndReason::MaxHold));
    let responses = vec![
        v1::Response { sequence: 1, answer: Some(Answer::Granted(grant)) },
        v1::Response { sequence: 2, answer: Some(Answer::Waiting(v1::WaitPosition { position: 4 })) },
        v1::Response {
            sequence: 3,
            answer: Some(Answer::Refused(Box::new(v1::Problem {
                message: "over".into(),
                next_step: "stop".into(),
                ..lost
            }))),
        },
    ];
    let refused =
        v1::RenewRefusal { code: "LEASE_LOST".into(), reason: "ttl".into(), state: v1::LeaseState::Expired.into() };
    let other = v1::RenewDetail { index: 1, outcome: Some(v1::renew_detail::Outcome::Refused(refused)) };
    let ended = v1::EndedEvent { lease: 18 << 32, token_number: 12, reason: v1::EndReason::Session.into() };
    let batch = v1::ServerBatch {
        welcome: Some(v1::Welcome {
            protocol: 1,
            session: 3 << 32,
            secret: vec![7; 32],
            cluster: "6578616d706c6573".into(),
            incarnation: "00000007".into(),
            validity: v1::Validity::Session.into(),
            max_ttl_ms: 600_000,
            ttl_ms: 10_000,
            remaining_ms: 10_000,
        }),
        responses,
        renewals: vec![v1::RenewBatchResult { sequence: 8, remaining_ms: vec![10_000, 0], details: vec![other] }],
        events: vec![v1::Event {
            position: 77,
            wall_ms: 0,
            resource: "jobs/settle".into(),
            holder: "worker-1".into(),
            event: Some(v1::event::Event::Ended(ended)),
        }],
        position: 77,
        close: None,
    };
    assert_golden("answers", &batch);
}

/// Servers store answers under the digest of the request and keep them across updates.
#[test]
fn the_digest_of_a_request_never_changes() {
    let digests = [request_digest(&Operation::Acquire(acquire())), request_digest(&Operation::Release(held()))];
    assert_eq!(digests, [17_634_747_485_922_770_524, 12_648_314_493_378_661_929]);
}
