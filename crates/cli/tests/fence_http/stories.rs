//! What must hold when proxy, service and holders are processes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_fence::conformance::{
    DURABLE, LOST, MISSING, MISTAKES, RACE, RISING, SEQUENCES, STALE, STRICT, SURVEY, TOLD, check, race, token,
};
use leasehold_fence::file::Log;
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use crate::behind::GIVES_UP;
use crate::proxied::Proxied;
use crate::proxy::{Place, Service};
use crate::served;
use crate::shared::Process;
use crate::way::Way;

pub const ALL: [(&str, fn()); 16] = [
    ("the_proxy_conforms", conforms),
    ("ten_thousand_racing_operations_through_the_proxy_never_fall", races),
    ("the_same_race_without_the_fence_is_caught", races_unfenced),
    ("a_request_that_the_service_delays_past_the_takeover_is_never_applied_after_the_successors", delayed),
    ("without_the_fence_the_delayed_request_is_applied_after_the_successors", delayed_unfenced),
    ("a_holder_stopped_in_the_middle_of_a_request_holds_its_successor_up_for_the_stated_bound_only", stopped),
    ("kills_of_the_proxy_at_random_moments_let_no_stale_request_land_and_no_mark_fall", killed),
    ("a_proxy_killed_with_a_request_on_its_way_lets_nothing_higher_in_for_the_bound", killed_while_held),
    ("a_proxy_that_takes_no_outcome_for_unknown_lets_the_zombie_land_after_its_successor", killed_without_a_bound),
    ("bodies_stream_through_in_both_directions", served::streams),
    ("what_is_about_one_connection_is_not_passed_on_and_upgrades_are_refused", served::hop_by_hop),
    ("a_service_that_is_not_there_is_said_and_not_fatal", served::nobody_behind),
    ("asked_to_stop_it_answers_what_it_has_taken_in_and_the_next_one_need_not_wait", served::stops),
    ("what_it_cannot_start_with_is_told_with_its_code_and_the_next_step", served::misused),
    ("figures_health_and_marks_are_told_aside_and_no_token_is_ever_logged", served::figures),
    ("a_grpc_service_stands_behind_it_as_it_is", served::grpc),
];

/// Runs a story on this thread: children end with the thread that started them.
pub fn play<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(story)
}

fn conforms() {
    play(async {
        let held = check(&Proxied::new(true)).await.unwrap_or_else(|violation| panic!("{violation}"));
        let all = [RISING, STALE, TOLD, MISTAKES, MISSING, LOST, SURVEY, STRICT, DURABLE, SEQUENCES, RACE];
        assert_eq!(held, all);
    });
}

fn races() {
    play(async {
        let raced = race(&Proxied::new(true), 8, 10_000, 5).await.unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(raced.operations, 10_000);
        assert!(raced.refused > 0, "zombies were among them: {raced:?}");
    });
}

fn races_unfenced() {
    play(async {
        assert!(race(&Proxied::new(false), 8, 2_000, 5).await.is_err());
    });
}

fn delayed() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&["--patience", "300ms"]));
        let proxy = place.start(&service.address);
        assert_eq!(proxy.claims(33).await.code(), "OK");
        let way = proxy.way.clone();
        let zombie = tokio::spawn(async move { way.writes(&token(33), "/held", "zombie").await.expect("answered") });
        service.has(1).await;
        for _ in 0..3 {
            let blocked = proxy.claims_once(34).await;
            assert_eq!((blocked.status.as_u16(), blocked.code().as_str()), (503, "UNAVAILABLE"));
            let write = proxy.writes(34, "/now", "successor").await;
            assert_eq!(write.code(), "UNAVAILABLE", "a write of the successor's raises the mark too");
        }
        assert_eq!(service.numbers().await, Vec::<u64>::new(), "neither of them is applied yet");
        assert_eq!(proxy.mark().await, 33, "and nothing was changed");
        service.release().await;
        assert_eq!(zombie.await.expect("it ends").code(), "OK");
        assert_eq!(proxy.claims(34).await.code(), "OK");
        assert_eq!(proxy.writes(34, "/now", "successor").await.code(), "OK");
        assert_eq!(proxy.writes(33, "/now", "zombie").await.code(), "STALE_TOKEN");
        assert_eq!(service.numbers().await, [33, 34]);
    });
}

fn delayed_unfenced() {
    play(async {
        let service = Service::start();
        let way = service.way.clone();
        let zombie = tokio::spawn(async move { way.writes(&token(33), "/held", "zombie").await });
        service.has(1).await;
        service.way.writes(&token(34), "/now", "successor").await.expect("answered");
        service.release().await;
        zombie.await.expect("it ends").expect("answered");
        assert_eq!(service.numbers().await, [34, 33], "that is the failure");
    });
}

fn stopped() {
    play(async {
        let bounds = ["--patience", "300ms", "--longest", "1s", "--settle", "1s"];
        let (service, place) = (Service::start(), Place::new(&bounds));
        let proxy = place.start(&service.address);
        let own = std::env::current_exe().expect("this program").display().to_string();
        let words = [crate::holder::PART, &proxy.address, "33"].map(str::to_owned);
        let mut old = Process::start(&own, &words, true);
        assert_eq!((old.tells("claimed "), old.tells("wrote ")), ("200".to_owned(), "200".to_owned()));
        old.tells("half");
        old.signal(Signal::STOP);
        waitid(WaitId::Pid(old.pid()), WaitIdOptions::STOPPED).expect("it is our child");
        // It may not have come as far as the proxy yet: then it comes too late, and is refused.
        assert_eq!(proxy.claims(34).await.code(), "OK", "within the bound, although the old holder stands still");
        assert_eq!(proxy.writes(34, "/now", "successor").await.code(), "OK");
        old.signal(Signal::CONT);
        old.order("go on");
        assert_eq!(old.tells("rest "), "cut off");
        assert_eq!(old.tells("again "), "412");
        let applied = service.ghost().await;
        assert_eq!(applied, [(33, "first".to_owned()), (34, "successor".to_owned())]);
    });
}

/// How often the proxy is killed.
fn kills() -> u64 {
    if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 10 }
}

fn killed() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&["--settle", "2s", "--patience", "1s"]));
        assert!(GIVES_UP * 4 <= Duration::from_secs(2), "what the service promises is what the bound says");
        let mut proxy = place.start(&service.address);
        let mut mark = 0;
        let done = Arc::new(AtomicU64::new(0));
        for round in 1..=kills() {
            assert_eq!(proxy.claims(round).await.code(), "OK");
            let over = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    let (way, over, done) = (Way::to(&proxy.address), over.clone(), done.clone());
                    tokio::spawn(async move {
                        while !over.load(Ordering::SeqCst) {
                            let written = way.writes(&token(round), "/now?ms=7", "under way").await;
                            done.fetch_add(
                                u64::from(written.is_some_and(|heard| heard.code() == "OK")),
                                Ordering::SeqCst,
                            );
                        }
                    })
                })
                .collect();
            // No chosen moment of a write: the rounds differ, and so does the machine.
            tokio::time::sleep(Duration::from_millis(5 + round * 17 % 61)).await;
            proxy.process.kill();
            over.store(true, Ordering::SeqCst);
            for writer in writers {
                writer.await.expect("it ends");
            }
            proxy = place.start(&service.address);
            let kept = Log::survey(&place.marks()).expect("whole");
            let leasehold_fence::Mark::Armed(stands) = kept[0].mark else { panic!("{kept:?}") };
            assert!(stands.get() >= mark && stands.get() == round, "{kept:?}");
            mark = stands.get();
            assert_eq!(proxy.claims(round + 1).await.code(), "OK", "after the bound");
            assert_eq!(proxy.writes(round, "/now", "zombie").await.code(), "STALE_TOKEN");
            assert_eq!(proxy.writes(round + 1, "/now", "successor").await.code(), "OK");
        }
        let numbers = service.numbers().await;
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert!(numbers.len() as u64 >= done.load(Ordering::SeqCst) + kills(), "what was told was applied");
        assert!(!service.ghost().await.iter().any(|(_, value)| value == "zombie"));
    });
}

fn killed_while_held() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&["--settle", "10s", "--patience", "100ms"]));
        let mut proxy = place.start(&service.address);
        let way = proxy.way.clone();
        let zombie = tokio::spawn(async move { way.writes(&token(33), "/held", "zombie").await });
        service.has(1).await;
        proxy.process.kill();
        assert!(zombie.await.expect("it ends").is_none(), "its outcome is unknown");
        let proxy = place.start(&service.address);
        let blocked = proxy.claims_once(34).await;
        assert_eq!(blocked.code(), "UNAVAILABLE");
        assert!(blocked.json()["retry_after_ms"].as_u64().is_some_and(|after| after <= 10_000), "{blocked:?}");
        assert_eq!(proxy.writes(33, "/now", "the same hold").await.code(), "OK", "equal passes");
        service.release().await;
        while service.numbers().await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(proxy.claims(34).await.code(), "OK");
        assert_eq!(proxy.writes(34, "/now", "successor").await.code(), "OK");
        assert_eq!(service.numbers().await, [33, 33, 34]);
    });
}

fn killed_without_a_bound() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&["--settle", "1ms", "--patience", "1s"]));
        let mut proxy = place.start(&service.address);
        let way = proxy.way.clone();
        let zombie = tokio::spawn(async move { way.writes(&token(33), "/held", "zombie").await });
        service.has(1).await;
        proxy.process.kill();
        assert!(zombie.await.expect("it ends").is_none());
        let proxy = place.start(&service.address);
        assert_eq!(proxy.claims(34).await.code(), "OK");
        assert_eq!(proxy.writes(34, "/now", "successor").await.code(), "OK");
        service.release().await;
        while service.numbers().await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(service.numbers().await, [34, 33], "a bound below what the service needs proves nothing");
    });
}
