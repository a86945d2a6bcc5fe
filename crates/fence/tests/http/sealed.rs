//! A sealed service: forged tokens are refused over HTTP and gRPC, and a running process learns that its marks were sealed (A8).

use http::Request;
use leasehold_fence::conformance::{CLUSTER, fence_id, forged_tokens, seal_keys, sealed_token, token};
use leasehold_fence::file::FencedLog;
use leasehold_fence::http::Rules;
use leasehold_fence::{FenceId, SealVerifier};

use crate::service::TestService;

fn rules() -> Rules {
    Rules::new(&fence_id())
}

fn sealed_service() -> TestService {
    TestService::prepared(rules(), |fence| {
        fence.with_seal_verifier(&SealVerifier::new(seal_keys())).expect("not in use")
    })
}

#[tokio::test]
async fn forged_tokens_are_refused_with_their_reason_over_http_and_grpc() {
    let service = sealed_service();
    let sent = service.send(Request::post("/now").header("lease-token", sealed_token(40)), "first").await;
    assert_eq!(sent.code(), None);
    for (what, text, reason) in forged_tokens(50) {
        for path in ["/now", "/-/claim"] {
            let response = service.send(Request::post(path).header("lease-token", &text), "forged").await;
            let problem = response.json();
            assert_eq!(
                (&problem["code"], &problem["reason"]),
                (&"TOKEN_INVALID".into(), &reason.into()),
                "{what} {path}"
            );
            let has_kid = matches!(reason, "unknown_key" | "ended_key" | "signature");
            assert_eq!(problem["kid"].as_str().is_some_and(|kid| kid.len() == 8), has_kid, "{what}: {problem}");
        }
        let grpc = Request::post("/paid.Ledger/Settle").header("content-type", "application/grpc");
        let response = service.send(grpc.header("lease-token", &text), "forged").await;
        assert_eq!(response.headers["grpc-status"], "3", "{what}");
        assert_eq!(response.headers["leasehold-reason"], reason, "{what}");
    }
    let again = service.send(Request::post("/now").header("lease-token", sealed_token(40)), "second").await;
    assert_eq!(again.code(), None, "the mark is unchanged");
    assert_eq!(service.applied(), ["first", "second"]);
    assert!(service.fence.counters().snapshot().unverified > 0);
}

#[tokio::test]
async fn a_process_without_keys_refuses_everything_once_its_mark_file_is_sealed() {
    let service = TestService::prepared(rules(), |fence| fence);
    let send = async |token: &str| service.send(Request::post("/now").header("lease-token", token), "x").await;
    assert_eq!(send(&token(40)).await.code(), None);
    assert_eq!(send(&sealed_token(40)).await.code(), None, "nothing verifies yet");
    // Another process seals the marks, as `leasehold fence seal` does.
    FencedLog::open(&service.file(), &fence_id()).expect("opened").seal().expect("sealed");
    for number in [40, 41] {
        assert_eq!(send(&token(number)).await.json()["reason"], "unsealed");
        let refused = send(&sealed_token(number)).await;
        assert_eq!((&refused.json()["code"], &refused.json()["reason"]), (&"CONFIG".into(), &"no_seal_keys".into()));
    }
    assert_eq!(service.applied(), ["x", "x"]);
}

#[tokio::test]
async fn sealing_the_fence_seals_the_mark_files_of_all_resources() {
    let other = FenceId::new(CLUSTER, "conformance/other").expect("a name");
    let rules = rules().route("/other", &[], &other).expect("a rule");
    let service = TestService::prepared(rules, |fence| {
        fence.with_seal_verifier(&SealVerifier::new(seal_keys())).expect("not in use")
    });
    service.fence.seal().expect("sealed");
    let marks = service.fence.list_marks().expect("listed");
    assert_eq!(marks.len(), 2);
    assert!(marks.iter().all(|mark| mark.sealed), "{marks:?}");
    let sent = service.send(Request::post("/now").header("lease-token", sealed_token(40)), "first").await;
    assert_eq!(sent.code(), None);
    let claimed = service.send(Request::post("/-/claim").header("lease-token", &token(41)), "").await;
    assert_eq!(claimed.json()["reason"], "unsealed", "the reason of the gate that the token is for");
}
