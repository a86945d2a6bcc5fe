//! Bytes that were once sent are read for ever, and mean what they meant.

use std::fmt::Debug;
use std::fmt::Write;
use std::path::Path;

use leasehold_core::lease::Reason;
use leasehold_core::refusal::Refusal;
use leasehold_wire::v1::{self, request::Ask, response::Answer};
use leasehold_wire::{digest, problem};
use prost::Message;

use crate::support::token;

/// Compares a message with the bytes kept under a name. A file that is not there yet is written when asked for.
fn kept<M: Message + Default + PartialEq + Debug>(name: &str, message: &M) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/golden/{name}.hex"));
    if !file.exists() && std::env::var_os("LEASEHOLD_WRITE").is_some() {
        std::fs::write(&file, hex(&message.encode_to_vec())).expect("the file can be written");
    }
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let bytes = unhex(&text);
    assert_eq!(&M::decode(&*bytes).expect("once written by this crate"), message, "{name} means something else now");
    assert_eq!(hex(&message.encode_to_vec()), text, "{name} is written differently now");
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").expect("a string takes all");
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
        terms: Some(v1::Terms {
            wait_ms: 5_000,
            priority: Some(7),
            reentrant: true,
            max_hold_ms: Some(60_000),
            progress_ms: Some(30_000),
            metadata: b"blue".to_vec(),
        }),
    }
}

fn held() -> v1::Held {
    v1::Held {
        which: Some(v1::held::Which::Lease(17 << 32 | 2)),
        number: 9,
        token: token("jobs/settle", 9).to_string(),
        holder: Some("worker-1".into()),
    }
}

#[test]
fn a_hello() {
    let open = v1::OpenSession { holder: "worker-1".into(), ttl_ms: 10_000, waits_only: true };
    let hello = v1::Hello {
        protocol: 1,
        how: Some(v1::hello::How::Open(open)),
        client: "test 1".into(),
        wall_ms: 1_763_000_000_000,
        shown: token("jobs/settle", 9).to_string(),
        must_understand: vec!["something".into()],
    };
    kept("hello", &v1::ClientBatch { hello: Some(hello), ..Default::default() });
}

#[test]
fn requests() {
    let asks = [
        Ask::Acquire(acquire()),
        Ask::AcquireAll(v1::AcquireAll {
            wanted: vec![v1::Wanted { resource: "a".into(), access: v1::Access::Shared.into(), units: 0 }],
            holder: "worker-1".into(),
            session: Some(3 << 32),
            ttl_ms: None,
            terms: None,
        }),
        Ask::Renew(v1::Renew { held: Some(held()), ttl_ms: Some(5_000), progress: Some(42) }),
        Ask::Release(held()),
        Ask::HandOff(v1::HandOff {
            which: Some(v1::hand_off::Which::Resource("jobs/settle".into())),
            number: Some(9),
            token: String::new(),
            to: Some("worker-2".into()),
            style: v1::Style::Overlap.into(),
            drain_ms: Some(2_000),
        }),
        Ask::Put(v1::Put { held: Some(held()), key: "at".into(), value: Some(vec![1, 2]), expect: Some(4) }),
        Ask::RenewSession(v1::RenewSession { known: Some(v1::Known { count: 2, digest: 11 }), session: None }),
    ];
    let requests = asks.into_iter().zip(1..).map(|(ask, sequence)| v1::Request { sequence, ask: Some(ask) }).collect();
    kept("requests", &v1::ClientBatch { lowest: 1, requests, ..Default::default() });
}

#[test]
fn renewals() {
    let renewals = vec![v1::RenewBatch { sequence: 8, leases: vec![17 << 32 | 2, 18 << 32], numbers: vec![9, 12] }];
    kept("renewals", &v1::ClientBatch { shown: token("a", 12).to_string(), renewals, ..Default::default() });
}

#[test]
fn answers() {
    let grant = v1::Grant {
        resource: "jobs/settle".into(),
        lease: 17 << 32 | 2,
        holder: "worker-1".into(),
        token: token("jobs/settle", 9).to_string(),
        token_number: 9,
        reach: v1::Reach::Slot.into(),
        slot: 3,
        ttl_ms: 10_000,
        remaining_ms: 9_000,
        rung: v1::Rung::Quorum.into(),
        state: v1::State::Held.into(),
        reason: v1::Reason::Unspecified.into(),
        drain_ms: 2_000,
        overlaps_ms: Some(1_000),
        depth: 1,
        rotates: false,
    };
    let lost = problem(&Refusal::Lost(Reason::MaxHold));
    let responses = vec![
        v1::Response { sequence: 1, answer: Some(Answer::Granted(grant)) },
        v1::Response { sequence: 2, answer: Some(Answer::Waiting(v1::Waiting { position: 4 })) },
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
        v1::RenewRefused { code: "LEASE_LOST".into(), reason: "ttl".into(), state: v1::State::Expired.into() };
    let other = v1::RenewedOther { index: 1, outcome: Some(v1::renewed_other::Outcome::Refused(refused)) };
    let ended = v1::EndedEvent { lease: 18 << 32, token_number: 12, reason: v1::Reason::Session.into() };
    let batch = v1::ServerBatch {
        welcome: Some(v1::Welcome {
            protocol: 1,
            session: 3 << 32,
            secret: vec![7; 32],
            cluster: "6578616d706c6573".into(),
            incarnation: "00000007".into(),
            rung: v1::Rung::Session.into(),
            max_ttl_ms: 600_000,
            ttl_ms: 10_000,
            remaining_ms: 10_000,
        }),
        responses,
        renewed: vec![v1::Renewed { sequence: 8, remaining_ms: vec![10_000, 0], others: vec![other] }],
        events: vec![v1::Event {
            position: 77,
            resource: "jobs/settle".into(),
            holder: "worker-1".into(),
            event: Some(v1::event::Event::Ended(ended)),
        }],
        position: 77,
        goodbye: None,
    };
    kept("answers", &batch);
}

/// Answers are kept under the digest of their request over updates: it must never change.
#[test]
fn a_request_keeps_its_digest_for_ever() {
    let digests = [digest(&Ask::Acquire(acquire())), digest(&Ask::Release(held()))];
    assert_eq!(digests, [17_634_747_485_922_770_524, 12_648_314_493_378_661_929]);
}
