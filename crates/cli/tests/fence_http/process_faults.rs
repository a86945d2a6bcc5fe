//! The list of tests of the HTTP fence proxy, and those that race holders, delay requests, stop holders and kill the proxy.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_fence::conformance::{
    DURABLE, INVALID_TOKENS, LIST_MARKS, LOST_MARK, RACE, RISING, SEALED_TEXTS, SEQUENCES, STALE, STALE_DETAIL, STRICT,
    UNARMED, check, race, token,
};
use leasehold_fence::file::FencedLog;

use crate::child::start_printing;
use crate::conformance::ProxySubject;
use crate::http_client::HttpClient;
use crate::proxy::{ProxySetup, Service};
use crate::proxying;
use crate::upstream::MAX_DELAY;
use crate::{clients, sealed, spellings};

pub const ALL: [(&str, fn()); 24] = [
    ("the_proxy_passes_the_conformance_suite", conforms),
    ("in_a_race_of_ten_thousand_operations_through_the_proxy_tokens_never_decrease", races),
    ("the_same_race_without_the_fence_is_detected", races_unfenced),
    ("a_delayed_request_is_never_applied_after_its_successors", delayed),
    ("without_the_fence_a_delayed_request_is_applied_after_its_successors", delayed_unfenced),
    ("a_holder_stopped_inside_a_request_delays_its_successor_only_for_the_documented_time", stopped),
    ("when_the_proxy_is_killed_at_random_no_stale_request_is_applied_and_no_mark_decreases", killed),
    ("a_proxy_killed_with_an_open_request_blocks_higher_tokens_for_the_settle_time", killed_while_held),
    ("with_a_settle_time_that_is_too_short_a_zombie_is_applied_after_its_successor", killed_without_settle_time),
    ("bodies_stream_in_both_directions", proxying::streams),
    ("hop_by_hop_headers_are_removed_and_upgrades_are_rejected", proxying::hop_by_hop),
    ("the_body_of_a_read_reaches_the_service", proxying::bodies_of_reads),
    ("a_malformed_body_and_a_connection_header_that_hides_the_host_are_rejected", proxying::malformed_requests),
    ("an_unreachable_upstream_is_logged_and_not_fatal", proxying::unreachable_upstream),
    ("on_sigterm_open_requests_complete_and_the_next_start_does_not_wait", proxying::stops),
    ("invalid_arguments_are_rejected_with_a_code_and_the_next_step", proxying::usage_errors),
    ("metrics_health_and_marks_have_their_own_listener_and_no_token_is_logged", proxying::metrics),
    ("a_grpc_service_works_behind_the_proxy", proxying::grpc),
    ("every_spelling_of_a_request_is_refused_or_read_by_the_service_as_it_was_judged", spellings::corpus),
    ("forged_tokens_do_not_reach_the_service_and_changed_keys_count_without_a_restart", sealed::forged),
    ("a_file_without_keys_is_refused_before_anything_is_armed", sealed::invalid_keys),
    ("silent_clients_are_disconnected_and_the_metrics_listener_has_a_connection_limit", clients::silent),
    ("without_free_file_descriptors_the_proxy_pauses_and_recovers", clients::no_descriptors),
    ("requests_of_other_web_pages_and_unknown_host_names_are_refused", clients::web_pages),
];

/// Runs a test on this thread: child processes end with the thread that started them.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

fn conforms() {
    run(async {
        let held = check(&ProxySubject::new(true)).await.unwrap_or_else(|violation| panic!("{violation}"));
        let all = [
            RISING,
            STALE,
            STALE_DETAIL,
            INVALID_TOKENS,
            SEALED_TEXTS,
            UNARMED,
            LOST_MARK,
            LIST_MARKS,
            STRICT,
            DURABLE,
            SEQUENCES,
            RACE,
        ];
        assert_eq!(held, all);
    });
}

fn races() {
    run(async {
        let raced =
            race(&ProxySubject::new(true), 8, 10_000, 5).await.unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(raced.operations, 10_000);
        assert!(raced.refused > 0, "zombies were among them: {raced:?}");
    });
}

fn races_unfenced() {
    run(async {
        assert!(race(&ProxySubject::new(false), 8, 2_000, 5).await.is_err());
    });
}

fn delayed() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&["--claim-timeout", "300ms"]));
        let proxy = setup.start(&service.address);
        assert_eq!(proxy.claim(33).await.code(), "OK");
        let client = proxy.client.clone();
        let zombie = tokio::spawn(async move { client.write(&token(33), "/held", "zombie").await.expect("answered") });
        service.wait_arrived(1).await;
        for _ in 0..3 {
            let blocked = proxy.claim_once(34).await;
            assert_eq!((blocked.status.as_u16(), blocked.code().as_str()), (503, "UNAVAILABLE"));
            let write = proxy.write(34, "/now", "successor").await;
            assert_eq!(write.code(), "UNAVAILABLE", "a write of the successor raises the mark too");
        }
        assert_eq!(service.numbers().await, Vec::<u64>::new(), "neither of them is applied yet");
        assert_eq!(proxy.mark().await, 33, "and nothing was changed");
        service.release().await;
        assert_eq!(zombie.await.expect("it ends").code(), "OK");
        assert_eq!(proxy.claim(34).await.code(), "OK");
        assert_eq!(proxy.write(34, "/now", "successor").await.code(), "OK");
        assert_eq!(proxy.write(33, "/now", "zombie").await.code(), "STALE_TOKEN");
        assert_eq!(service.numbers().await, [33, 34]);
    });
}

fn delayed_unfenced() {
    run(async {
        let service = Service::start();
        let client = service.client.clone();
        let zombie = tokio::spawn(async move { client.write(&token(33), "/held", "zombie").await });
        service.wait_arrived(1).await;
        service.client.write(&token(34), "/now", "successor").await.expect("answered");
        service.release().await;
        zombie.await.expect("it ends").expect("answered");
        assert_eq!(service.numbers().await, [34, 33], "this is the failure");
    });
}

fn stopped() {
    run(async {
        let bounds = ["--claim-timeout", "300ms", "--max-request-time", "1s", "--settle-time", "1s"];
        let (service, setup) = (Service::start(), ProxySetup::new(&bounds));
        let proxy = setup.start(&service.address);
        let own = std::env::current_exe().expect("this program").display().to_string();
        let args = [crate::holder::ROLE, &proxy.address, "33"].map(str::to_owned);
        let mut old = start_printing(&own, &args);
        assert_eq!(
            (old.stdout().wait_for_rest("claimed "), old.stdout().wait_for_rest("wrote ")),
            ("200".to_owned(), "200".to_owned())
        );
        old.stdout().wait_for_rest("half");
        old.stop();
        // The half request may not have reached the proxy yet: then it is late, and rejected.
        assert_eq!(proxy.claim(34).await.code(), "OK", "within the timeout, although the old holder is stopped");
        assert_eq!(proxy.write(34, "/now", "successor").await.code(), "OK");
        old.resume();
        old.send_line("continue");
        assert_eq!(old.stdout().wait_for_rest("rest "), "aborted");
        assert_eq!(old.stdout().wait_for_rest("again "), "412");
        let applied = service.applied().await;
        assert_eq!(applied, [(33, "first".to_owned()), (34, "successor".to_owned())]);
    });
}

/// Number of kills of the proxy.
fn kills() -> u64 {
    if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 10 }
}

fn killed() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&["--settle-time", "2s", "--claim-timeout", "1s"]));
        assert!(MAX_DELAY * 4 <= Duration::from_secs(2), "the settle time covers the service's maximum delay");
        let mut proxy = setup.start(&service.address);
        let mut mark = 0;
        let done = Arc::new(AtomicU64::new(0));
        for round in 1..=kills() {
            assert_eq!(proxy.claim(round).await.code(), "OK");
            let over = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    let (client, over, done) = (HttpClient::new(&proxy.address), over.clone(), done.clone());
                    tokio::spawn(async move {
                        while !over.load(Ordering::SeqCst) {
                            let written = client.write(&token(round), "/now?ms=7", "under client").await;
                            done.fetch_add(
                                u64::from(written.is_some_and(|response| response.code() == "OK")),
                                Ordering::SeqCst,
                            );
                        }
                    })
                })
                .collect();
            // A different moment in each round.
            tokio::time::sleep(Duration::from_millis(5 + round * 17 % 61)).await;
            proxy.process.kill();
            over.store(true, Ordering::SeqCst);
            for writer in writers {
                writer.await.expect("it ends");
            }
            proxy = setup.start(&service.address);
            let marks = FencedLog::list_marks(&setup.marks()).expect("whole");
            let leasehold_fence::Mark::Armed(stored) = marks[0].mark else { panic!("{marks:?}") };
            assert!(stored.get() >= mark && stored.get() == round, "{marks:?}");
            mark = stored.get();
            assert_eq!(proxy.claim(round + 1).await.code(), "OK", "after the settle time");
            assert_eq!(proxy.write(round, "/now", "zombie").await.code(), "STALE_TOKEN");
            assert_eq!(proxy.write(round + 1, "/now", "successor").await.code(), "OK");
        }
        let numbers = service.numbers().await;
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert!(numbers.len() as u64 >= done.load(Ordering::SeqCst) + kills(), "every acknowledged write was applied");
        assert!(!service.applied().await.iter().any(|(_, value)| value == "zombie"));
    });
}

fn killed_while_held() {
    run(async {
        let (service, setup) =
            (Service::start(), ProxySetup::new(&["--settle-time", "10s", "--claim-timeout", "100ms"]));
        let mut proxy = setup.start(&service.address);
        let client = proxy.client.clone();
        let zombie = tokio::spawn(async move { client.write(&token(33), "/held", "zombie").await });
        service.wait_arrived(1).await;
        proxy.process.kill();
        assert!(zombie.await.expect("it ends").is_none(), "its outcome is unknown");
        let proxy = setup.start(&service.address);
        let blocked = proxy.claim_once(34).await;
        assert_eq!(blocked.code(), "UNAVAILABLE");
        assert!(blocked.json()["retry_after_ms"].as_u64().is_some_and(|after| after <= 10_000), "{blocked:?}");
        assert_eq!(proxy.write(33, "/now", "the same hold").await.code(), "OK", "equal passes");
        service.release().await;
        while service.numbers().await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(proxy.claim(34).await.code(), "OK");
        assert_eq!(proxy.write(34, "/now", "successor").await.code(), "OK");
        assert_eq!(service.numbers().await, [33, 33, 34]);
    });
}

fn killed_without_settle_time() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&["--settle-time", "1ms", "--claim-timeout", "1s"]));
        let mut proxy = setup.start(&service.address);
        let client = proxy.client.clone();
        let zombie = tokio::spawn(async move { client.write(&token(33), "/held", "zombie").await });
        service.wait_arrived(1).await;
        proxy.process.kill();
        assert!(zombie.await.expect("it ends").is_none());
        let proxy = setup.start(&service.address);
        assert_eq!(proxy.claim(34).await.code(), "OK");
        assert_eq!(proxy.write(34, "/now", "successor").await.code(), "OK");
        service.release().await;
        while service.numbers().await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            service.numbers().await,
            [34, 33],
            "a settle time below the service's maximum delay protects nothing"
        );
    });
}
