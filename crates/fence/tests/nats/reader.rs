//! Readers of a log to which somebody wrote past the fence: they drop what came too late, and so does who starts again.

use std::time::SystemTime;

use async_nats::HeaderMap;
use leasehold_core::name::Name;
use leasehold_core::token::{Incarnation, Token};
use leasehold_fence::conformance::{CLUSTER, INCARNATION, Subject, Writer, name, number, token, token_of};
use leasehold_fence::logs::{Sieve, Sifted};
use leasehold_fence::nats::{MARK, stamp};
use leasehold_fence::{Error, Lost, Refusal};

use crate::server::{Nats, SUBJECT};

/// Reads the stream through a sieve, and gives what passed.
async fn read(nats: &Nats, sieve: &mut Sieve) -> Vec<String> {
    let stream = nats.stream().await;
    let last = stream.get_info().await.expect("known").state.last_sequence;
    let mut passed = Vec::new();
    for sequence in sieve.next(SUBJECT)..=last {
        let Ok(message) = stream.get_raw_message(sequence).await else { continue };
        let stamp = stamp(&message.headers).unwrap_or_default();
        if let Sifted::Passed { .. } = sieve.sift(SUBJECT, sequence, SystemTime::from(message.time), &stamp) {
            passed.push(String::from_utf8(message.payload.to_vec()).expect("text"));
        }
    }
    passed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_drops_what_was_appended_past_the_fence_and_so_does_one_that_starts_again() {
    let nats = Nats::start().await;
    nats.fresh().await;
    let mut way = nats.writer().await;
    way.claim(&token(33)).await.expect("claimed");
    way.write(&token(33), "first").await.expect("written");
    let copied = nats.stream().await.get_last_raw_message_by_subject(SUBJECT).await.expect("there").headers;
    let mut sieve = Sieve::new(CLUSTER, name(), 0);
    assert_eq!(read(&nats, &mut sieve).await, ["first"]);
    let checkpoint = sieve.checkpoint();

    way.claim(&token(34)).await.expect("the successor");
    // The zombie publishes what it had ready, with its old record's headers and no expectation.
    let mut late = HeaderMap::new();
    for name in ["Leasehold-Kind", MARK] {
        late.insert(name, copied.get(name).expect("a fenced record").as_str());
    }
    let jetstream = nats.jetstream().await;
    let sent = jetstream.publish_with_headers(SUBJECT, late, "late".into()).await.expect("sent");
    sent.await.expect("no log refuses that");

    let mut again = Sieve::resume(CLUSTER, name(), 0, &checkpoint).expect("its own checkpoint");
    assert_eq!(read(&nats, &mut again).await, [""; 0], "34 claimed before it");
    assert_eq!((again.mark(SUBJECT), again.dropped()), (Some(number(34)), 1));
    assert_eq!(read(&nats, &mut Sieve::new(CLUSTER, name(), 0)).await, ["first"], "whoever reads, it is the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_hides_the_mark_stops_the_log_until_it_is_armed_above_what_was_seen() {
    let nats = Nats::start().await;
    nats.fresh().await;
    let mut way = nats.writer().await;
    way.claim(&token(33)).await.expect("claimed");
    let jetstream = nats.jetstream().await;
    let sent = jetstream.publish(SUBJECT, "past the fence".into()).await.expect("sent");
    sent.await.expect("no log refuses that");
    let refused = way.write(&token(34), "x").await.expect_err("nobody sees the mark");
    assert!(matches!(refused, Error::Refused(Refusal::Lost(Lost::Unreadable))), "{refused}");
    assert_eq!(way.log.rearm(number(32)).await.expect_err("33 was there").code(), "CONFLICT");
    way.log.rearm(number(34)).await.expect("armed");
    way.write(&token(34), "after").await.expect("it goes on");
    assert_eq!(nats.applied().await.len(), 1);
}

#[test]
fn a_sieve_drops_what_is_no_token_for_it_and_keeps_a_mark_for_each_partition() {
    let (mut sieve, now) = (Sieve::new(CLUSTER, name(), 0), SystemTime::now());
    let mut sift = |partition: &str, at, stamp: &str| sieve.sift(partition, at, now, stamp);
    let write = |n| format!("write {}", token(n));
    assert!(matches!(sift("a", 0, &write(10)), Sifted::Passed { .. }));
    assert!(matches!(sift("b", 0, &write(9)), Sifted::Passed { .. }), "a claim must go to every partition");
    assert!(matches!(sift("b", 1, &format!("claim {}", token(10))), Sifted::Claimed { .. }));
    assert!(matches!(sift("b", 2, &write(9)), Sifted::Dropped(Refusal::Stale { .. })));
    assert!(matches!(sift("a", 1, ""), Sifted::Dropped(Refusal::Token(_))));
    assert!(matches!(sift("a", 2, &token(11)), Sifted::Dropped(Refusal::Token(_))), "it does not say what it is");
    let other = Token::parse(&token(11)).map(|of| Token { resource: *b"another!", ..of }).expect("a token");
    assert!(matches!(sift("a", 3, &format!("write {other}")), Sifted::Dropped(Refusal::Token(_))));
    let far = format!("write {}", token((1 << 63) - 1));
    assert!(matches!(sift("a", 4, &far), Sifted::Dropped(Refusal::Implausible { .. })));
    let restored = token_of(12, Incarnation(INCARNATION.0 + 1));
    assert!(matches!(sift("a\nb", 0, &format!("write {restored}")), Sifted::Passed { .. }));
    assert!(matches!(sift("a", 4, &write(10)), Sifted::Seen));
    assert_eq!(sieve.dropped(), 5);

    let again = Sieve::resume(CLUSTER, name(), 0, &sieve.checkpoint()).expect("its own");
    assert_eq!((again.mark("a"), again.mark("b")), (Some(number(10)), Some(number(10))));
    assert_eq!((again.next("a"), again.next("b"), again.next("a\nb"), again.next("c")), (5, 3, 1, 0));
    let other = Name::parse("conformance/other").expect("a name");
    assert_eq!(Sieve::resume(CLUSTER, other, 0, &sieve.checkpoint()).expect_err("another's").code(), "CONFLICT");
    let torn = sieve.checkpoint().replace("5 10 a", "5 x a");
    assert_eq!(Sieve::resume(CLUSTER, name(), 0, &torn).expect_err("torn").code(), "STORAGE_FAILED");
}
