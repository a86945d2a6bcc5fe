//! Rejected requests get an error code and do not reach the service.

use http::{Method, Request};
use leasehold_core::token::{Token, TokenScope};
use leasehold_fence::http::Rules;

use crate::invalid_tokens::mistakes;
use crate::service::{TestService, with_token};
use crate::support::{CLUSTER, fence_id, id_of, parts, token};

#[tokio::test]
async fn invalid_tokens_are_rejected_with_their_code_and_not_forwarded() {
    let service = TestService::new();
    assert_eq!(service.write(40, "first").await.code(), None);
    for (text, code, reason) in mistakes() {
        for path in ["/now", "/-/claim"] {
            let response = service.send(Request::post(path).header("lease-token", &text), "invalid").await;
            let problem = response.json();
            assert_eq!((&problem["code"], &problem["reason"]), (&code.into(), &reason.into()), "{path} {text}");
            assert_eq!(problem["field"], "lease-token");
            assert!(problem["next_step"].as_str().is_some_and(|next| !next.is_empty()));
            assert_eq!(response.headers["content-type"], "application/problem+json");
        }
    }
    let bare = service.send(Request::delete("/now"), "bare").await;
    assert_eq!((bare.status.as_u16(), bare.json()["reason"].as_str()), (400, Some("absent")));
    assert_eq!(service.applied(), ["first"]);
    assert_eq!(service.write(40, "still the mark").await.code(), None, "the mark is unchanged");
}

#[tokio::test]
async fn a_stale_token_gets_both_numbers_and_an_equal_one_is_admitted() {
    let service = TestService::new();
    assert_eq!(service.claim(34).await.json()["mark"], "34");
    let stale = service.write(33, "late").await;
    assert_eq!(stale.status, 412);
    let problem = stale.json();
    assert_eq!((&problem["presented"], &problem["mark"]), (&"33".into(), &"34".into()));
    assert_eq!(problem["type"], "urn:leasehold:error:STALE_TOKEN");
    assert_eq!(service.claim(33).await.json()["code"], "STALE_TOKEN");
    assert_eq!(service.write(34, "again").await.code(), None);
    assert_eq!(service.claim(34).await.code(), None);
    assert_eq!(service.applied(), ["again"]);
    let counters = service.fence.counters().snapshot();
    assert_eq!((counters.claims, counters.admitted, counters.stale), (2, 1, 2));
}

#[tokio::test]
async fn reads_need_no_token_and_writes_do() {
    let service = TestService::new();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        assert_eq!(service.send(Request::builder().method(&method).uri("/now"), "").await.code(), None, "{method}");
    }
    let custom = Method::from_bytes(b"SETTLE").expect("a method");
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, custom] {
        let response = service.send(Request::builder().method(&method).uri("/now"), "").await;
        assert_eq!(response.code().as_deref(), Some("TOKEN_INVALID"), "{method}");
    }
    let disguised = Request::get("/now").header("x-http-method-override", "DELETE");
    assert_eq!(service.send(disguised, "").await.code().as_deref(), Some("TOKEN_INVALID"));
    assert_eq!(service.fence.metrics().exempt, 3);
}

#[tokio::test]
async fn two_tokens_or_an_invalid_sequence_are_rejected() {
    let service = TestService::new();
    let two = with_token(5, "/now").header("lease-token", token(6));
    let response = service.send(two, "").await;
    assert_eq!((response.status.as_u16(), response.json()["field"].as_str()), (400, Some("lease-token")));
    for invalid in ["", "-1", "1e3", "18446744073709551616", "7 "] {
        let response = service.send(with_token(5, "/now").header("lease-sequence", invalid), "").await;
        if invalid == "7 " {
            assert_eq!(response.code().as_deref(), Some("INVALID_ARGUMENT"), "no trimming either");
        }
        assert_eq!(response.json()["field"], "lease-sequence", "{invalid:?}");
    }
    let not_text = Request::post("/now").header("lease-token", &b"\xff\xfe"[..]);
    assert_eq!(service.send(not_text, "").await.json()["reason"], "shape");
    assert_eq!(service.applied(), Vec::<String>::new());
    assert_eq!(service.fence.metrics().malformed, 6);
}

#[tokio::test]
async fn grpc_requests_get_a_grpc_status() {
    let service = TestService::new();
    let claim = with_token(34, "/leasehold.Fence/Claim").header("content-type", "application/grpc+proto");
    let claimed = service.send(claim, "\0\0\0\0\0").await;
    assert_eq!((claimed.status.as_u16(), claimed.body.as_deref()), (200, Ok(&[0_u8; 5][..])));
    let stale = service.send(with_token(33, "/shop.Orders/Pay").header("content-type", "application/grpc"), "").await;
    assert_eq!((stale.status.as_u16(), stale.body.as_deref()), (200, Ok(&[][..])));
    let header = |name: &str| stale.headers[name].to_str().expect("text").to_owned();
    assert_eq!((header("grpc-status"), header("leasehold-code")), ("9".to_owned(), "STALE_TOKEN".to_owned()));
    assert_eq!((header("leasehold-presented"), header("leasehold-mark")), ("33".to_owned(), "34".to_owned()));
    assert!(header("grpc-message").starts_with("token 33 is below the mark 34"), "{}", header("grpc-message"));
    assert_eq!(service.applied(), Vec::<String>::new());
}

/// Some gRPC servers, such as tonic, run a call whatever its method.
#[tokio::test]
async fn a_grpc_call_that_is_no_post_is_refused() {
    let rules = Rules::new(&fence_id()).exempt("/shop.Search", &[http::Method::GET]).expect("rules");
    for service in [TestService::new(), TestService::with(rules)] {
        let mut refused = 0;
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT"] {
            for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC", "application/grpc-web"] {
                for path in ["/shop.Orders/Pay", "/shop.Search/All", "/leasehold.Fence/Claim"] {
                    let call = with_token(33, path).method(method).header("content-type", kind);
                    service.send(call, "late").await;
                    refused += 1;
                }
            }
        }
        assert_eq!(service.applied(), [""; 0]);
        assert_eq!(service.fence.metrics().malformed, refused);
        assert_eq!(service.send(Request::get("/shop.Orders/Pay"), "read").await.code(), None, "not a gRPC call");
    }
}

#[tokio::test]
async fn each_scope_has_its_own_mark_and_admits_only_its_own_tokens() {
    let other = id_of(CLUSTER, "jobs/other").with_slot(2);
    let rules = Rules::new(&fence_id())
        .route("/other", &[], &other)
        .and_then(|rules| rules.exempt("/search", &[]))
        .expect("rules");
    let service = TestService::with(rules);
    let resource = leasehold_core::name::resource_hash("jobs/other");
    let of_other = |n| Token { resource, scope: TokenScope::Slot(2), ..parts(n) }.to_string();
    let to = |path: &str, token: &str| Request::post(path).header("lease-token", token);
    assert_eq!(
        service.send(to("/-/claim", &of_other(9)), "").await.json()["mark"],
        "9",
        "the token determines the scope"
    );
    assert_eq!(service.send(to("/other/now", &of_other(9)), "o").await.code(), None);
    assert_eq!(service.send(to("/other/now", &of_other(8)), "").await.json()["code"], "STALE_TOKEN");
    assert_eq!(service.send(to("/other/now", &token(99)), "").await.json()["reason"], "resource");
    assert_eq!(service.send(to("/now", &of_other(9)), "").await.json()["reason"], "resource");
    assert_eq!(service.write(3, "m").await.code(), None, "scopes have separate marks");
    assert_eq!(service.send(Request::post("/search"), "s").await.code(), None);
    assert_eq!(service.send(Request::post("/search/../other/now"), "").await.json()["field"], "path");
    assert_eq!(service.applied(), ["o", "m", "s"]);
    let marks: Vec<_> =
        service.fence.gate_statuses().into_iter().map(|gate| (gate.id.to_string(), gate.in_flight)).collect();
    assert_eq!(marks, [("jobs/settle slot 0".to_owned(), 0), ("jobs/other slot 2".to_owned(), 0)]);
}

#[tokio::test]
async fn the_layer_works_with_an_axum_router() {
    use axum::routing::post;
    use tower::ServiceExt;
    let service = TestService::new();
    let router = axum::Router::new()
        .route("/pay", post(async |body: String| format!("paid {body}")))
        .layer(service.fence.layer());
    let request = with_token(5, "/pay").body(axum::body::Body::from("7")).expect("a request");
    let response = router.clone().oneshot(request).await.expect("it cannot fail");
    let body = axum::body::to_bytes(response.into_body(), 100).await.expect("whole");
    assert_eq!(body, "paid 7");
    let bare = Request::post("/pay").body(axum::body::Body::from("7")).expect("a request");
    assert_eq!(router.oneshot(bare).await.expect("it cannot fail").status(), 400);
}
