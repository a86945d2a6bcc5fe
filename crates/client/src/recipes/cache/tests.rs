//! No copy is used while its key is written, whatever happens to the reader, the writer or the network.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Cache, CacheWrite, FillError};
use crate::blocking::block_on;
use crate::testing::TestServer;
use crate::{Client, Error};

const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);

/// The source of the cached value: one number, and how often it was loaded.
#[derive(Clone, Default)]
struct Source {
    value: Arc<AtomicU64>,
    loads: Arc<AtomicUsize>,
}

impl Source {
    fn get(&self, cache: &Cache<u64>) -> u64 {
        let load = || {
            self.loads.fetch_add(1, Ordering::SeqCst);
            ready(Ok::<_, Infallible>(self.value.load(Ordering::SeqCst)))
        };
        *block_on(cache.get("page", load)).unwrap_or_else(|never| match never {})
    }

    fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }

    /// Writes on a thread of its own. Calls `at_work` when the work starts.
    fn write(
        &self,
        cache: &Cache<u64>,
        value: u64,
        at_work: impl FnOnce() + Send + 'static,
    ) -> JoinHandle<Result<CacheWrite<()>, Error>> {
        let (cache, source) = (cache.clone(), self.clone());
        std::thread::spawn(move || {
            block_on(cache.write("page", LONG, |_| async move {
                at_work();
                source.value.store(value, Ordering::SeqCst);
            }))
        })
    }
}

fn open(client: &Client) -> Cache<u64> {
    client.cache().ttl(TTL).timeout(LONG).build().expect("the settings are valid")
}

/// Waits for other threads, with a generous bound. The clock does not advance meanwhile.
#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let timeout = std::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < timeout, "the condition did not become true in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Joins a thread without advancing the clock.
#[track_caller]
fn join<T>(thread: JoinHandle<T>) -> T {
    wait_until(|| thread.is_finished());
    thread.join().expect("the thread did not panic")
}

/// Joins a thread that sleeps, advancing the clock slowly.
#[track_caller]
fn join_advancing<T>(server: &TestServer, thread: JoinHandle<T>) -> T {
    wait_until(|| {
        server.advance(Duration::from_millis(10));
        thread.is_finished()
    });
    thread.join().expect("the thread did not panic")
}

#[test]
fn a_copy_is_read_without_a_request_and_dropped_before_the_write_starts() {
    let server = TestServer::new();
    let (reader, writer) = (open(&server.client("r")), open(&server.client("w")));
    let source = Source::default();
    assert_eq!((source.get(&reader), source.get(&reader), source.loads()), (0, 0, 1));
    let other = reader.clone();
    let at_work = move || assert_eq!(other.peek("page"), None, "a copy was valid while its key was written");
    let written = join(source.write(&writer, 7, at_work)).expect("there is no reader");
    assert!(written.version.expect("the intent did not expire") > 0);
    assert_eq!((source.get(&reader), source.loads()), (7, 2));
}

#[test]
fn a_reader_that_missed_its_invalidation_drops_its_copy_by_its_own_clock() {
    let server = TestServer::new();
    let (behind, ahead) = (server.client("r"), server.client("w"));
    let (reader, writer) = (open(&behind), open(&ahead));
    let source = Source::default();
    source.get(&reader);
    server.partition(&behind);
    assert_eq!(reader.peek("page").as_deref(), Some(&0), "a partition alone removes nothing");
    let other = reader.clone();
    let at_work = move || assert_eq!(other.peek("page"), None, "a copy was valid while its key was written");
    let write = source.write(&writer, 7, at_work);
    server.advance(TTL + TTL / 10);
    join(write).expect("the write waits at most for the ttl of the reader").version.expect("the intent did not expire");
    assert_eq!(source.value.load(Ordering::SeqCst), 7);
}

#[test]
fn a_write_waits_for_a_paused_reader_until_its_lease_expires() {
    let server = TestServer::new();
    let (stopped, ahead) = (server.client("r"), server.client("w"));
    let (reader, writer) = (open(&stopped), open(&ahead));
    let source = Source::default();
    source.get(&reader);
    server.pause(&stopped);
    let write = source.write(&writer, 7, || {});
    server.advance(TTL / 2);
    assert!(!write.is_finished() && source.value.load(Ordering::SeqCst) == 0, "the copy may still be in use");
    server.advance(TTL / 2 + TTL / 10);
    join(write).expect("the write waits at most for the ttl of the reader").version.expect("the intent did not expire");
    server.resume(&stopped);
    server.advance(TTL);
    assert_eq!((reader.peek("page"), source.get(&reader)), (None, 7));
}

#[test]
fn a_key_that_is_being_written_is_read_and_not_cached() {
    let server = TestServer::new();
    let (reader, writer) = (open(&server.client("r")), open(&server.client("w")));
    let source = Source::default();
    let (other, loading) = (reader.clone(), source.clone());
    let at_work = move || {
        assert_eq!((loading.get(&other), loading.get(&other)), (0, 0), "reads continue");
        assert_eq!(other.peek("page"), None, "nothing is cached");
    };
    join(source.write(&writer, 7, at_work)).expect("there is no reader");
    assert_eq!((source.get(&reader), source.get(&reader), source.loads()), (7, 7, 3));
}

#[test]
fn an_expired_copy_is_valid_again_if_there_was_no_write() {
    let server = TestServer::new();
    let (reader, writer) = (open(&server.client("r")), open(&server.client("w")));
    let source = Source::default();
    source.get(&reader);
    server.advance(2 * TTL);
    assert_eq!(reader.peek("page"), None);
    assert_eq!((source.get(&reader), source.loads()), (0, 1), "the version is unchanged, so nothing is loaded");
    server.advance(2 * TTL);
    join(source.write(&writer, 7, || {})).expect("there is no reader");
    assert_eq!((source.get(&reader), source.loads()), (7, 2));
}

#[test]
fn copies_expire_with_their_session() {
    let server = TestServer::new();
    let client = server.client_with(|client| client.holder("r").session_ttl(TTL));
    let reader: Cache<u64> = client.cache().ttl(10 * TTL).timeout(LONG).build().expect("the settings are valid");
    let source = Source::default();
    source.get(&reader);
    server.partition(&client);
    server.advance(TTL);
    assert_eq!(reader.peek("page"), None, "the session may have ended, and a writer no longer waits");
}

#[test]
fn a_failed_write_leaves_no_valid_copy() {
    let server = TestServer::new();
    let (reader, writer) = (open(&server.client("r")), open(&server.client("w")));
    let source = Source::default();
    source.get(&reader);
    let failing = {
        let (writer, value) = (writer.clone(), source.value.clone());
        std::thread::spawn(move || {
            block_on(writer.write("page", LONG, |_| async move {
                value.store(7, Ordering::SeqCst);
                Err::<(), _>("the target did not reply")
            }))
        })
    };
    let written = join(failing).expect("the work finished");
    assert!(written.output.is_err() && written.version.is_ok());
    assert_eq!(source.get(&reader), 7);
}

#[test]
fn work_that_outlasts_its_intent_is_dropped_and_copies_are_invalid() {
    let server = TestServer::new();
    let (reader, writer) = (open(&server.client("r")), open(&server.client("w")));
    let source = Source::default();
    source.get(&reader);
    let hanging = {
        let (writer, value) = (writer.clone(), source.value.clone());
        std::thread::spawn(move || {
            block_on(writer.write("page", LONG, |_| async move {
                value.store(7, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }))
        })
    };
    wait_until(|| source.value.load(Ordering::SeqCst) == 7);
    server.advance(2 * TTL);
    let over = join(hanging).expect_err("the intent expired");
    assert!(over.end_reason().is_some(), "{over}");
    server.advance(TTL);
    assert_eq!(source.get(&reader), 7);
}

#[test]
fn a_dropped_write_aborts_its_intent() {
    let server = TestServer::new();
    let (stopped, ahead) = (server.client("r"), server.client("w"));
    let (reader, writer) = (open(&stopped), open(&ahead));
    let source = Source::default();
    source.get(&reader);
    server.pause(&stopped);
    {
        let mut write = pin!(writer.write("page", LONG, |_| async { unreachable!("there is a reader") }));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            assert!(write.as_mut().poll(&mut context).is_pending());
            server.settle();
        }
    }
    let third = open(&server.client("r2"));
    wait_until(|| {
        source.get(&third);
        third.peek("page").is_some()
    });
}

#[test]
fn a_cold_key_is_filled_once_for_many_readers() {
    let server = TestServer::new();
    let shared: Arc<AtomicU64> = Arc::default();
    let fills: Arc<AtomicUsize> = Arc::default();
    let wanted: Vec<_> = (0..8)
        .map(|at| {
            // Long enough that no filler expires.
            let client = server.client(&format!("r{at}"));
            let cache: Cache<u64> = client.cache().ttl(10 * LONG).timeout(LONG).build().expect("the charter is valid");
            let (shared, fills) = (shared.clone(), fills.clone());
            std::thread::spawn(move || {
                let find = |version| ready(Some(version).filter(|version| *version == shared.load(Ordering::SeqCst)));
                let fill = |version| {
                    fills.fetch_add(1, Ordering::SeqCst);
                    shared.store(version, Ordering::SeqCst);
                    ready(Ok::<_, Infallible>(version))
                };
                (block_on(cache.get_or_fill("page", find, fill)).expect("one client fills it"), cache)
            })
        })
        .collect();
    let got: Vec<_> = wanted.into_iter().map(|thread| join_advancing(&server, thread)).collect();
    assert_eq!(fills.load(Ordering::SeqCst), 1, "the other clients waited");
    let version = shared.load(Ordering::SeqCst);
    assert!(got.iter().all(|(value, cache)| **value == version && cache.peek("page").is_some()));
}

#[test]
fn a_failed_filler_is_replaced_immediately_and_a_lost_one_after_its_ttl() {
    let server = TestServer::new();
    let (first, second) = (server.client("r1"), server.client("r2"));
    let (failing, hanging, waiting_cache) = (open(&first), open(&first), open(&second));
    let nothing = |_| ready(None);
    let failed = block_on(failing.get_or_fill("page", nothing, |_| ready(Err("no source"))));
    assert_eq!(failed, Err(FillError::Failed("no source")));
    let begun = Arc::new(AtomicUsize::new(0));
    let fillers = begun.clone();
    std::thread::spawn(move || {
        let hang = |_| {
            fillers.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<u64, Infallible>>()
        };
        block_on(hanging.get_or_fill("page", nothing, hang))
    });
    wait_until(|| begun.load(Ordering::SeqCst) == 1);
    let waiting = std::thread::spawn(move || {
        block_on(waiting_cache.get_or_fill("page", nothing, |version| ready(Ok::<_, Infallible>(version))))
    });
    server.advance(TTL / 2);
    assert!(!waiting.is_finished(), "one client fills at a time");
    let version = join_advancing(&server, waiting).expect("the hanging filler expired");
    assert!(*version > 0);
}

#[test]
fn a_missing_shared_copy_is_filled_again() {
    let server = TestServer::new();
    let (first, second) = (open(&server.client("r1")), open(&server.client("r2")));
    let fill = |version| ready(Ok::<_, Infallible>(version));
    let lost = block_on(first.get_or_fill("page", |_| ready(None), fill)).expect("the key is cold");
    let again = block_on(second.get_or_fill("page", |_| ready(None), fill)).expect("the shared copy is missing");
    assert!(*again > *lost, "the new copy has its own version");
}

#[test]
fn the_number_of_entries_is_limited() {
    let server = TestServer::new();
    let cache: Cache<u64> =
        server.client("r").cache().ttl(TTL).timeout(LONG).capacity(3).build().expect("the settings are valid");
    let keys: Vec<_> = (0..10).map(|at| format!("page-{at}")).collect();
    for key in &keys {
        block_on(cache.get(key, || ready(Ok::<_, Infallible>(1)))).unwrap_or_else(|never| match never {});
    }
    let cached: Vec<_> = keys.iter().filter(|key| cache.peek(key).is_some()).collect();
    assert_eq!(cached, [&keys[7], &keys[8], &keys[9]]);
}

#[test]
fn a_reader_that_is_not_polled_delays_no_writer_and_caches_nothing() {
    let server = TestServer::new();
    let (reads, writes) = (server.client("r1"), server.client("w1"));
    let (reader, writer) = (open(&reads), open(&writes));
    let source = Source::default();
    assert_eq!(source.get(&reader), 0);
    reader.remove("page");
    server.settle();
    // Sends the request and is not polled again: the invalidation arrives before the reply is read.
    let load = || ready(Ok::<_, Infallible>(source.value.load(Ordering::SeqCst)));
    let mut get = pin!(reader.get("page", load));
    let mut context = Context::from_waker(Waker::noop());
    server.pause(&reads);
    assert!(get.as_mut().poll(&mut context).is_pending(), "there is no reply yet");
    server.resume(&reads);
    server.settle();
    let writing = source.write(&writer, 5, || {});
    let written = writing.join().expect("the thread did not panic").expect("there is no reader left");
    assert!(written.version.is_ok());
    let seen = loop {
        if let std::task::Poll::Ready(seen) = get.as_mut().poll(&mut context) {
            break seen;
        }
    };
    assert_eq!(seen.as_deref(), Ok(&5));
    assert_eq!(reader.peek("page"), None, "an entry that was invalidated before it existed is not cached");
}

#[test]
fn the_work_of_a_write_is_not_polled_after_its_deadline() {
    let server = TestServer::new();
    let client = server.client("w1");
    let writer = open(&client);
    let polls = std::cell::Cell::new(0);
    let work = |_| {
        std::future::poll_fn(|_| {
            polls.set(polls.get() + 1);
            std::task::Poll::<()>::Pending
        })
    };
    let mut write = pin!(writer.write("page", TTL, work));
    let mut context = Context::from_waker(Waker::noop());
    while polls.get() == 0 {
        assert!(write.as_mut().poll(&mut context).is_pending());
        server.settle();
    }
    let begun = polls.get();
    server.pause(&client);
    server.advance(2 * TTL);
    assert!(matches!(write.as_mut().poll(&mut context), std::task::Poll::Ready(Err(_))));
    assert_eq!(polls.get(), begun, "the work was not polled after the deadline");
    server.resume(&client);
}
