//! A reader that verifies seals drops forged records, the same ones as every other reader (A8).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Token, TokenScope};
use leasehold_fence::conformance::{
    CLUSTER, INCARNATION, RESOURCE, fence_id, forged_tokens, number, seal_keys, sealed_token, token,
};
use leasehold_fence::reader_fence::{ReaderFence, RecordVerdict};
use leasehold_fence::{SealKeys, SealVerifier};
use leasehold_seal::SealKey;

fn now() -> SystemTime {
    SystemTime::now()
}

#[test]
fn forged_records_are_dropped_with_their_reason_and_do_not_raise_the_mark() {
    let mut fence = ReaderFence::new(&fence_id()).with_seal_verifier(&SealVerifier::new(seal_keys()));
    let claimed = fence.check("p", 0, now(), &format!("claim {}", sealed_token(40)));
    assert_eq!(claimed, RecordVerdict::Claimed { number: number(40) });
    let mut position = 0;
    for (what, text, reason) in forged_tokens(50) {
        for kind in ["claim", "write"] {
            position += 1;
            match fence.check("p", position, now(), &format!("{kind} {text}")) {
                RecordVerdict::Dropped(refusal) => assert_eq!(refusal.reason(), reason, "{what}"),
                verdict => panic!("{what}: {verdict:?}"),
            }
        }
    }
    let written = fence.check("p", position + 1, now(), &format!("write {}", sealed_token(40)));
    assert_eq!(written, RecordVerdict::Accepted { number: number(40) });
    assert_eq!((fence.mark("p"), fence.dropped()), (Some(number(40)), position));
}

#[test]
fn a_key_counts_if_it_had_not_ended_when_the_log_stored_the_record() {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    // In 2026, so that the numbers are plausible.
    let (before, end, after) = (1_790_000_000, 1_790_000_060, 1_790_000_061);
    let key = SealKey::generate(0).expect("a key").with_end(Some(end * 1_000)).expect("an end");
    let verifier = SealVerifier::new(SealKeys::new([key.public()]).expect("one key"));
    let (resource, scope) = (resource_hash(RESOURCE), TokenScope::Slot(0));
    let token = Token { cluster: CLUSTER, incarnation: INCARNATION, resource, scope, number: number(40) };
    let stamp = format!("write {}", key.seal(&token, RESOURCE));
    // Any number of times, also long after the end of the key.
    for _ in 0..2 {
        let mut fence = ReaderFence::new(&fence_id()).with_seal_verifier(&verifier);
        assert_eq!(fence.check("p", 0, at(before), &stamp), RecordVerdict::Accepted { number: number(40) });
        match fence.check("p", 1, at(after), &stamp) {
            RecordVerdict::Dropped(refusal) => assert_eq!(refusal.reason(), "ended_key"),
            verdict => panic!("{verdict:?}"),
        }
    }
}

#[test]
fn a_checkpoint_of_a_verifying_reader_is_refused_without_keys() {
    let verifier = SealVerifier::new(seal_keys());
    let mut fence = ReaderFence::new(&fence_id());
    fence.check("p", 0, now(), &format!("write {}", token(39)));
    let plain = fence.checkpoint();
    assert!(plain.starts_with("leasehold-sieve 1\n"), "the text of earlier releases is unchanged: {plain}");
    let mut sealed = ReaderFence::resume_sealed(&fence_id(), &plain, &verifier).expect("it verifies from now on");
    assert!(matches!(sealed.check("p", 1, now(), &format!("write {}", token(40))), RecordVerdict::Dropped(_)));
    sealed.check("p", 2, now(), &format!("write {}", sealed_token(41)));
    let checkpoint = sealed.checkpoint();
    let error = ReaderFence::resume(&fence_id(), &checkpoint).expect_err("no keys");
    assert_eq!((error.code(), error.refusal().expect("refused").reason()), ("CONFIG", "no_seal_keys"));
    let resumed = ReaderFence::resume_sealed(&fence_id(), &checkpoint, &verifier).expect("with keys");
    assert_eq!((resumed.next_position("p"), resumed.mark("p")), (3, Some(number(41))));
}
