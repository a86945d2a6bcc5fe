//! No copy is used while its key is written, whatever becomes of the reader, the writer or the way between them.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Cache, Unfilled, Written};
use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Client, Error, Options};

const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);

/// What lies elsewhere: one number, and how often it was looked at.
#[derive(Clone, Default)]
struct Source {
    value: Arc<AtomicU64>,
    looks: Arc<AtomicUsize>,
}

impl Source {
    fn get(&self, cache: &Cache<u64>) -> u64 {
        let load = || {
            self.looks.fetch_add(1, Ordering::SeqCst);
            ready(Ok::<_, Infallible>(self.value.load(Ordering::SeqCst)))
        };
        *block_on(cache.get("page", load)).unwrap_or_else(|never| match never {})
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    /// Writes from a thread of its own; when the work begins, `at_work` is asked first.
    fn write(
        &self,
        cache: &Cache<u64>,
        value: u64,
        at_work: impl FnOnce() + Send + 'static,
    ) -> JoinHandle<Result<Written<()>, Error>> {
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
    client.cache().ttl(TTL).patience(LONG).open().expect("the timing is possible")
}

/// Waits for what other threads do, with a generous bound. Time stands still meanwhile.
#[track_caller]
fn until(mut happened: impl FnMut() -> bool) {
    let over = std::time::Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(std::time::Instant::now() < over, "it never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a thread comes to while time stands still.
#[track_caller]
fn join<T>(thread: JoinHandle<T>) -> T {
    until(|| thread.is_finished());
    thread.join().expect("it did not panic")
}

/// What a thread comes to that must sleep. However slowly it runs, time runs slower than that.
#[track_caller]
fn join_passing<T>(grantor: &Grantor, thread: JoinHandle<T>) -> T {
    until(|| {
        grantor.advance(Duration::from_millis(10));
        thread.is_finished()
    });
    thread.join().expect("it did not panic")
}

#[test]
fn a_copy_is_read_without_asking_and_dropped_before_the_write_begins() {
    let grantor = Grantor::new();
    let (reader, writer) = (open(&grantor.client("r")), open(&grantor.client("w")));
    let source = Source::default();
    assert_eq!((source.get(&reader), source.get(&reader), source.looks()), (0, 0, 1));
    let other = reader.clone();
    let at_work = move || assert_eq!(other.peek("page"), None, "a copy was there while its key was written");
    let written = join(source.write(&writer, 7, at_work)).expect("nobody holds it up");
    assert!(written.version.expect("it was in time") > 0);
    assert_eq!((source.get(&reader), source.looks()), (7, 2));
}

#[test]
fn a_reader_that_missed_its_invalidation_has_dropped_its_copy_by_its_own_clock() {
    let grantor = Grantor::new();
    let (behind, ahead) = (grantor.client("r"), grantor.client("w"));
    let (reader, writer) = (open(&behind), open(&ahead));
    let source = Source::default();
    source.get(&reader);
    grantor.partition(&behind);
    assert_eq!(reader.peek("page").as_deref(), Some(&0), "a silence alone takes nothing away");
    let other = reader.clone();
    let at_work = move || assert_eq!(other.peek("page"), None, "a copy was there while its key was written");
    let write = source.write(&writer, 7, at_work);
    grantor.advance(TTL + TTL / 10);
    join(write).expect("it waits no longer than the reader's time").version.expect("in time");
    assert_eq!(source.value.load(Ordering::SeqCst), 7);
}

#[test]
fn a_reader_that_is_stopped_is_waited_for_until_its_time_is_over() {
    let grantor = Grantor::new();
    let (stopped, ahead) = (grantor.client("r"), grantor.client("w"));
    let (reader, writer) = (open(&stopped), open(&ahead));
    let source = Source::default();
    source.get(&reader);
    grantor.pause(&stopped);
    let write = source.write(&writer, 7, || {});
    grantor.advance(TTL / 2);
    assert!(!write.is_finished() && source.value.load(Ordering::SeqCst) == 0, "the copy may still be in use");
    grantor.advance(TTL / 2 + TTL / 10);
    join(write).expect("it waits no longer than the reader's time").version.expect("in time");
    grantor.resume(&stopped);
    grantor.advance(TTL);
    assert_eq!((reader.peek("page"), source.get(&reader)), (None, 7));
}

#[test]
fn while_a_key_is_written_it_is_read_and_not_kept() {
    let grantor = Grantor::new();
    let (reader, writer) = (open(&grantor.client("r")), open(&grantor.client("w")));
    let source = Source::default();
    let (other, looked) = (reader.clone(), source.clone());
    let at_work = move || {
        assert_eq!((looked.get(&other), looked.get(&other)), (0, 0), "reading goes on");
        assert_eq!(other.peek("page"), None, "and nothing is kept");
    };
    join(source.write(&writer, 7, at_work)).expect("nobody holds it up");
    assert_eq!((source.get(&reader), source.get(&reader), source.looks()), (7, 7, 3));
}

#[test]
fn a_copy_that_ran_out_is_good_again_if_nobody_wrote() {
    let grantor = Grantor::new();
    let (reader, writer) = (open(&grantor.client("r")), open(&grantor.client("w")));
    let source = Source::default();
    source.get(&reader);
    grantor.advance(2 * TTL);
    assert_eq!(reader.peek("page"), None);
    assert_eq!((source.get(&reader), source.looks()), (0, 1), "the version is the same, so the source is not asked");
    grantor.advance(2 * TTL);
    join(source.write(&writer, 7, || {})).expect("nobody reads");
    assert_eq!((source.get(&reader), source.looks()), (7, 2));
}

#[test]
fn copies_end_with_their_session() {
    let grantor = Grantor::new();
    let options = Options { holder: Some("r".into()), session: TTL, ..Options::default() };
    let client = grantor.client_with(options);
    let reader: Cache<u64> = client.cache().ttl(10 * TTL).patience(LONG).open().expect("the timing is possible");
    let source = Source::default();
    source.get(&reader);
    grantor.partition(&client);
    grantor.advance(TTL);
    assert_eq!(reader.peek("page"), None, "its session may be over, and a writer waits for it no longer");
}

#[test]
fn a_write_that_fails_leaves_no_copy_that_is_believed() {
    let grantor = Grantor::new();
    let (reader, writer) = (open(&grantor.client("r")), open(&grantor.client("w")));
    let source = Source::default();
    source.get(&reader);
    let failing = {
        let (writer, value) = (writer.clone(), source.value.clone());
        std::thread::spawn(move || {
            block_on(writer.write("page", LONG, |_| async move {
                value.store(7, Ordering::SeqCst);
                Err::<(), _>("the target did not say whether it arrived")
            }))
        })
    };
    let written = join(failing).expect("the work was done");
    assert!(written.done.is_err() && written.version.is_ok());
    assert_eq!(source.get(&reader), 7);
}

#[test]
fn work_that_outlasts_its_intent_is_dropped_and_its_copies_are_not_believed() {
    let grantor = Grantor::new();
    let (reader, writer) = (open(&grantor.client("r")), open(&grantor.client("w")));
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
    until(|| source.value.load(Ordering::SeqCst) == 7);
    grantor.advance(2 * TTL);
    let over = join(hanging).expect_err("its time is over");
    assert!(over.lost().is_some(), "{over}");
    grantor.advance(TTL);
    assert_eq!(source.get(&reader), 7);
}

#[test]
fn a_dropped_write_takes_its_intent_back() {
    let grantor = Grantor::new();
    let (stopped, ahead) = (grantor.client("r"), grantor.client("w"));
    let (reader, writer) = (open(&stopped), open(&ahead));
    let source = Source::default();
    source.get(&reader);
    grantor.pause(&stopped);
    {
        let mut write = pin!(writer.write("page", LONG, |_| async { unreachable!("somebody reads") }));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            assert!(write.as_mut().poll(&mut context).is_pending());
            grantor.settle();
        }
    }
    let third = open(&grantor.client("r2"));
    until(|| {
        source.get(&third);
        third.peek("page").is_some()
    });
}

#[test]
fn a_cold_key_is_filled_once_however_many_want_it() {
    let grantor = Grantor::new();
    let shared: Arc<AtomicU64> = Arc::default();
    let fills: Arc<AtomicUsize> = Arc::default();
    let wanted: Vec<_> = (0..8)
        .map(|at| {
            // So long that nobody is too slow to fill it.
            let client = grantor.client(&format!("r{at}"));
            let cache: Cache<u64> = client.cache().ttl(10 * LONG).patience(LONG).open().expect("it is possible");
            let (shared, fills) = (shared.clone(), fills.clone());
            std::thread::spawn(move || {
                let find = |version| ready(Some(version).filter(|version| *version == shared.load(Ordering::SeqCst)));
                let fill = |version| {
                    fills.fetch_add(1, Ordering::SeqCst);
                    shared.store(version, Ordering::SeqCst);
                    ready(Ok::<_, Infallible>(version))
                };
                (block_on(cache.get_or_fill("page", find, fill)).expect("one of them fills it"), cache)
            })
        })
        .collect();
    let got: Vec<_> = wanted.into_iter().map(|thread| join_passing(&grantor, thread)).collect();
    assert_eq!(fills.load(Ordering::SeqCst), 1, "everybody else waited");
    let version = shared.load(Ordering::SeqCst);
    assert!(got.iter().all(|(value, cache)| **value == version && cache.peek("page").is_some()));
}

#[test]
fn a_filler_that_fails_is_replaced_at_once_and_one_that_vanished_when_its_time_is_over() {
    let grantor = Grantor::new();
    let (first, second) = (grantor.client("r1"), grantor.client("r2"));
    let (failing, vanishing, patient) = (open(&first), open(&first), open(&second));
    let nothing = |_| ready(None);
    let failed = block_on(failing.get_or_fill("page", nothing, |_| ready(Err("no source"))));
    assert_eq!(failed, Err(Unfilled::Failed("no source")));
    let begun = Arc::new(AtomicUsize::new(0));
    let fillers = begun.clone();
    std::thread::spawn(move || {
        let hang = |_| {
            fillers.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<u64, Infallible>>()
        };
        block_on(vanishing.get_or_fill("page", nothing, hang))
    });
    until(|| begun.load(Ordering::SeqCst) == 1);
    let waiting = std::thread::spawn(move || {
        block_on(patient.get_or_fill("page", nothing, |version| ready(Ok::<_, Infallible>(version))))
    });
    grantor.advance(TTL / 2);
    assert!(!waiting.is_finished(), "one fills at a time");
    let version = join_passing(&grantor, waiting).expect("the other's time is over");
    assert!(*version > 0);
}

#[test]
fn a_shared_copy_that_cannot_be_found_is_filled_again() {
    let grantor = Grantor::new();
    let (first, second) = (open(&grantor.client("r1")), open(&grantor.client("r2")));
    let fill = |version| ready(Ok::<_, Infallible>(version));
    let lost = block_on(first.get_or_fill("page", |_| ready(None), fill)).expect("it is cold");
    let again = block_on(second.get_or_fill("page", |_| ready(None), fill)).expect("it is missing");
    assert!(*again > *lost, "under a version of its own");
}

#[test]
fn only_so_many_copies_are_kept() {
    let grantor = Grantor::new();
    let cache: Cache<u64> =
        grantor.client("r").cache().ttl(TTL).patience(LONG).most(3).open().expect("the timing is possible");
    let keys: Vec<_> = (0..10).map(|at| format!("page-{at}")).collect();
    for key in &keys {
        block_on(cache.get(key, || ready(Ok::<_, Infallible>(1)))).unwrap_or_else(|never| match never {});
    }
    let kept: Vec<_> = keys.iter().filter(|key| cache.peek(key).is_some()).collect();
    assert_eq!(kept, [&keys[7], &keys[8], &keys[9]]);
}

#[test]
fn a_reader_that_is_kept_from_taking_its_copy_holds_no_writer_up_and_keeps_nothing() {
    let grantor = Grantor::new();
    let (reads, writes) = (grantor.client("r1"), grantor.client("w1"));
    let (reader, writer) = (open(&reads), open(&writes));
    let source = Source::default();
    assert_eq!(source.get(&reader), 0);
    reader.forget("page");
    grantor.settle();
    // It asks, and is not polled again: the answer lies there, and the word to drop the copy comes before it is taken.
    let load = || ready(Ok::<_, Infallible>(source.value.load(Ordering::SeqCst)));
    let mut get = pin!(reader.get("page", load));
    let mut context = Context::from_waker(Waker::noop());
    grantor.pause(&reads);
    assert!(get.as_mut().poll(&mut context).is_pending(), "nobody answers yet");
    grantor.resume(&reads);
    grantor.settle();
    let writing = source.write(&writer, 5, || {});
    let written = writing.join().expect("it ran").expect("nobody reads any more");
    assert!(written.version.is_ok());
    let seen = loop {
        if let std::task::Poll::Ready(seen) = get.as_mut().poll(&mut context) {
            break seen;
        }
    };
    assert_eq!(seen.as_deref(), Ok(&5));
    assert_eq!(reader.peek("page"), None, "what was to be dropped before it was there is not kept");
}

#[test]
fn the_work_of_a_write_is_not_gone_on_with_after_its_time_whatever_wakes_it() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
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
        grantor.settle();
    }
    let begun = polls.get();
    grantor.pause(&client);
    grantor.advance(2 * TTL);
    assert!(matches!(write.as_mut().poll(&mut context), std::task::Poll::Ready(Err(_))));
    assert_eq!(polls.get(), begun, "nothing was done after the intent's time");
    grantor.resume(&client);
}
