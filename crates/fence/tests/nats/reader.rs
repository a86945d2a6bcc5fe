//! Reader fence on a stream with records that bypassed the fence.

use std::time::SystemTime;

use async_nats::HeaderMap;
use leasehold_core::token::{Incarnation, Token};
use leasehold_fence::conformance::{CLUSTER, FenceWriter, INCARNATION, Subject, fence_id, number, token, token_of};
use leasehold_fence::nats::{MARK_HEADER, stamp};
use leasehold_fence::reader_fence::{ReaderFence, RecordVerdict};
use leasehold_fence::{Error, FenceId, FenceRefusal, MarkLoss};

use crate::server::{NatsServer, SUBJECT};

/// Reads the stream and returns the accepted records.
async fn read(nats: &NatsServer, fence: &mut ReaderFence) -> Vec<String> {
    let stream = nats.stream().await;
    let last = stream.get_info().await.expect("known").state.last_sequence;
    let mut accepted = Vec::new();
    for sequence in fence.next_position(SUBJECT)..=last {
        let Ok(message) = stream.get_raw_message(sequence).await else { continue };
        let stamp = stamp(&message.headers).unwrap_or_default();
        if let RecordVerdict::Accepted { .. } = fence.check(SUBJECT, sequence, SystemTime::from(message.time), &stamp) {
            accepted.push(String::from_utf8(message.payload.to_vec()).expect("text"));
        }
    }
    accepted
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_drops_stale_records_also_after_a_restart() {
    let nats = NatsServer::start().await;
    nats.fresh().await;
    let mut writer = nats.writer().await;
    writer.claim(&token(33)).await.expect("claimed");
    writer.write(&token(33), "first").await.expect("written");
    let copied = nats.stream().await.get_last_raw_message_by_subject(SUBJECT).await.expect("there").headers;
    let mut fence = ReaderFence::new(&fence_id());
    assert_eq!(read(&nats, &mut fence).await, ["first"]);
    let checkpoint = fence.checkpoint();

    writer.claim(&token(34)).await.expect("the successor");
    // The zombie publishes with the headers of its old record, and without an expected sequence.
    let mut late = HeaderMap::new();
    for name in ["Leasehold-Kind", MARK_HEADER] {
        late.insert(name, copied.get(name).expect("a fenced record").as_str());
    }
    let jetstream = nats.jetstream().await;
    let sent = jetstream.publish_with_headers(SUBJECT, late, "late".into()).await.expect("sent");
    sent.await.expect("the server accepts it");

    let mut resumed = ReaderFence::resume(&fence_id(), &checkpoint).expect("its own checkpoint");
    assert_eq!(read(&nats, &mut resumed).await, [""; 0], "34 claimed earlier");
    assert_eq!((resumed.mark(SUBJECT), resumed.dropped()), (Some(number(34)), 1));
    assert_eq!(read(&nats, &mut ReaderFence::new(&fence_id())).await, ["first"], "the same for every reader");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_a_mark_blocks_the_subject_until_re_armed_above_the_mark() {
    let nats = NatsServer::start().await;
    nats.fresh().await;
    let mut writer = nats.writer().await;
    writer.claim(&token(33)).await.expect("claimed");
    let jetstream = nats.jetstream().await;
    let sent = jetstream.publish(SUBJECT, "without the fence".into()).await.expect("sent");
    sent.await.expect("the server accepts it");
    let refused = writer.write(&token(34), "x").await.expect_err("the mark is hidden");
    assert!(matches!(refused, Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable))), "{refused}");
    assert_eq!(writer.fence.rearm(number(32)).await.expect_err("below the mark 33").code(), "CONFLICT");
    writer.fence.rearm(number(34)).await.expect("armed");
    writer.write(&token(34), "after").await.expect("a write after re-arming");
    assert_eq!(nats.applied().await.len(), 1);
}

#[test]
fn a_reader_fence_drops_invalid_tokens_and_has_a_mark_for_each_partition() {
    let (mut fence, now) = (ReaderFence::new(&fence_id()), SystemTime::now());
    let mut check = |partition: &str, at, stamp: &str| fence.check(partition, at, now, stamp);
    let write = |n| format!("write {}", token(n));
    assert!(matches!(check("a", 0, &write(10)), RecordVerdict::Accepted { .. }));
    assert!(matches!(check("b", 0, &write(9)), RecordVerdict::Accepted { .. }), "each partition needs a claim");
    assert!(matches!(check("b", 1, &format!("claim {}", token(10))), RecordVerdict::Claimed { .. }));
    assert!(matches!(check("b", 2, &write(9)), RecordVerdict::Dropped(FenceRefusal::Stale { .. })));
    assert!(matches!(check("a", 1, ""), RecordVerdict::Dropped(FenceRefusal::Token(_))));
    assert!(
        matches!(check("a", 2, &token(11)), RecordVerdict::Dropped(FenceRefusal::Token(_))),
        "the stamp has no kind"
    );
    let other = Token::parse(&token(11)).map(|token| Token { resource: *b"another!", ..token }).expect("a token");
    assert!(matches!(check("a", 3, &format!("write {other}")), RecordVerdict::Dropped(FenceRefusal::Token(_))));
    let far = format!("write {}", token((1 << 63) - 1));
    assert!(matches!(check("a", 4, &far), RecordVerdict::Dropped(FenceRefusal::Implausible { .. })));
    let restored = token_of(12, Incarnation(INCARNATION.0 + 1));
    assert!(matches!(check("a\nb", 0, &format!("write {restored}")), RecordVerdict::Accepted { .. }));
    assert!(matches!(check("a", 4, &write(10)), RecordVerdict::AlreadyRead));
    assert_eq!(fence.dropped(), 5);

    let resumed = ReaderFence::resume(&fence_id(), &fence.checkpoint()).expect("its own");
    assert_eq!((resumed.mark("a"), resumed.mark("b")), (Some(number(10)), Some(number(10))));
    assert_eq!(
        (
            resumed.next_position("a"),
            resumed.next_position("b"),
            resumed.next_position("a\nb"),
            resumed.next_position("c")
        ),
        (5, 3, 1, 0)
    );
    let other = FenceId::new(CLUSTER, "conformance/other").expect("a name");
    assert_eq!(ReaderFence::resume(&other, &fence.checkpoint()).expect_err("another resource").code(), "CONFLICT");
    for torn in ["5 x a", "5 9223372036854775808 a", "5 10a", "-5 10 a", "5 10"] {
        let torn = fence.checkpoint().replace("5 10 a", torn);
        assert_eq!(ReaderFence::resume(&fence_id(), &torn).expect_err("torn").code(), "STORAGE_FAILED", "{torn}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_published_again_does_not_lower_the_mark() {
    let nats = NatsServer::start().await;
    nats.fresh().await;
    let mut writer = nats.writer().await;
    writer.write(&token(33), "first").await.expect("written");
    let old = nats.stream().await.get_last_raw_message_by_subject(SUBJECT).await.expect("there").headers;
    writer.claim(&token(34)).await.expect("the successor");
    let mut copied = HeaderMap::new();
    for name in ["Leasehold-Kind", MARK_HEADER] {
        copied.insert(name, old.get(name).expect("a fenced record").as_str());
    }
    let jetstream = nats.jetstream().await;
    let sent = jetstream.publish_with_headers(SUBJECT, copied, "first".into()).await.expect("sent");
    sent.await.expect("the server accepts it");

    let lost = Some(FenceRefusal::MarkLost(MarkLoss::Unreadable));
    for late in [33, 34, 35] {
        let refused = nats.writer().await.write(&token(late), "late").await.expect_err("the mark is hidden");
        assert_eq!(refused.refusal(), lost.as_ref(), "{late}: {refused}");
    }
    assert_eq!(nats.fence().await.rearm(number(33)).await.expect_err("below the mark").code(), "CONFLICT");
    nats.fence().await.rearm(number(35)).await.expect("re-armed");
    assert_eq!(nats.writer().await.write(&token(34), "late").await.expect_err("stale").code(), "STALE_TOKEN");
    // With all its headers, the server refuses it.
    let sent = jetstream.publish_with_headers(SUBJECT, old, "first".into()).await.expect("sent");
    sent.await.expect_err("it expects another record before it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_a_stream_that_was_created_again_does_not_append_after_another_record() {
    let nats = NatsServer::start().await;
    nats.fresh().await;
    let zombie = nats.fence().await;
    zombie.append(token(33), "first").await.expect("written");
    let stream = nats.stream().await;
    let (config, last) =
        (stream.cached_info().config.clone(), stream.get_info().await.expect("known").state.last_sequence);
    let jetstream = nats.jetstream().await;
    jetstream.delete_stream(&config.name).await.expect("deleted");
    jetstream.create_stream(config).await.expect("created again");
    let fence = nats.fence().await;
    fence.arm().await.expect("armed");
    for sequence in 2..=last {
        fence.append(token(40), format!("{sequence}")).await.expect("a later holder");
    }
    // The last record has the sequence that the zombie expects, and the zombie was paused.
    assert_eq!(nats.stream().await.get_info().await.expect("known").state.last_sequence, last);
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let refused = zombie.append(token(33), "late").await.expect_err("another stream");
    assert_eq!(refused.code(), "STALE_TOKEN", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_of_another_stream_is_not_written() {
    let nats = NatsServer::start().await;
    nats.fresh().await;
    nats.fence().await.append(token(33), "first").await.expect("written");
    let jetstream = nats.jetstream().await;
    let config = async_nats::jetstream::stream::Config {
        name: "OTHER".to_owned(),
        subjects: vec!["other.*".to_owned()],
        ..Default::default()
    };
    jetstream.create_stream(config).await.expect("a stream");
    let fence = leasehold_fence::nats::Fence::open(&jetstream, "OTHER", SUBJECT, &fence_id()).await.expect("opened");
    fence.arm().await.expect_err("the subject belongs to another stream");
    assert_eq!(nats.fence().await.mark().await.expect("unchanged"), Some(number(33)));
}
