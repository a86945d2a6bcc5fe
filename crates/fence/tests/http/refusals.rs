//! What is shown by mistake is refused with its code, and nothing reaches the service.

use http::{Method, Request};
use leasehold_core::name::Name;
use leasehold_core::token::{Reach, Token};
use leasehold_fence::http::{Rules, Under};

use crate::mistakes::mistakes;
use crate::service::{World, shows};
use crate::support::{name, parts, token};

#[tokio::test]
async fn every_mistake_is_refused_with_its_code_and_nothing_is_passed_on() {
    let world = World::new();
    assert_eq!(world.write(40, "first").await.code(), None);
    for (shown, code, why) in mistakes() {
        for path in ["/now", "/-/claim"] {
            let answer = world.send(Request::post(path).header("lease-token", &shown), "mistake").await;
            let problem = answer.json();
            assert_eq!((&problem["code"], &problem["reason"]), (&code.into(), &why.into()), "{path} {shown}");
            assert_eq!(problem["field"], "lease-token");
            assert!(problem["next_step"].as_str().is_some_and(|next| !next.is_empty()));
            assert_eq!(answer.headers["content-type"], "application/problem+json");
        }
    }
    let bare = world.send(Request::delete("/now"), "bare").await;
    assert_eq!((bare.status.as_u16(), bare.json()["reason"].as_str()), (400, Some("absent")));
    assert_eq!(world.applied(), ["first"]);
    assert_eq!(world.write(40, "still the mark").await.code(), None, "no mistake moved it");
}

#[tokio::test]
async fn a_stale_token_is_told_both_numbers_and_an_equal_one_passes() {
    let world = World::new();
    assert_eq!(world.claim(34).await.json()["mark"], "34");
    let stale = world.write(33, "late").await;
    assert_eq!(stale.status, 412);
    let problem = stale.json();
    assert_eq!((&problem["presented"], &problem["mark"]), (&"33".into(), &"34".into()));
    assert_eq!(problem["type"], "urn:leasehold:error:STALE_TOKEN");
    assert_eq!(world.claim(33).await.json()["code"], "STALE_TOKEN");
    assert_eq!(world.write(34, "again").await.code(), None);
    assert_eq!(world.claim(34).await.code(), None);
    assert_eq!(world.applied(), ["again"]);
    let counted = world.fence.counters().read();
    assert_eq!((counted.claims, counted.admitted, counted.stale), (2, 1, 2));
}

#[tokio::test]
async fn reading_passes_and_whatever_can_change_something_shows_a_token() {
    let world = World::new();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        assert_eq!(world.send(Request::builder().method(&method).uri("/now"), "").await.code(), None, "{method}");
    }
    let odd = Method::from_bytes(b"SETTLE").expect("a method");
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, odd] {
        let answer = world.send(Request::builder().method(&method).uri("/now"), "").await;
        assert_eq!(answer.code().as_deref(), Some("TOKEN_INVALID"), "{method}");
    }
    let disguised = Request::get("/now").header("x-http-method-override", "DELETE");
    assert_eq!(world.send(disguised, "").await.code().as_deref(), Some("TOKEN_INVALID"));
    assert_eq!(world.fence.seen().free, 3);
}

#[tokio::test]
async fn two_tokens_and_a_sequence_that_is_none_are_refused() {
    let world = World::new();
    let two = shows(5, "/now").header("lease-token", token(6));
    let answer = world.send(two, "").await;
    assert_eq!((answer.status.as_u16(), answer.json()["field"].as_str()), (400, Some("lease-token")));
    for bad in ["", "-1", "1e3", "18446744073709551616", "7 "] {
        let answer = world.send(shows(5, "/now").header("lease-sequence", bad), "").await;
        if bad == "7 " {
            assert_eq!(answer.code().as_deref(), Some("INVALID_ARGUMENT"), "no trimming either");
        }
        assert_eq!(answer.json()["field"], "lease-sequence", "{bad:?}");
    }
    let not_text = Request::post("/now").header("lease-token", &b"\xff\xfe"[..]);
    assert_eq!(world.send(not_text, "").await.json()["reason"], "shape");
    assert_eq!(world.applied(), Vec::<String>::new());
    assert_eq!(world.fence.seen().malformed, 6);
}

#[tokio::test]
async fn in_grpc_the_same_is_told_as_a_status() {
    let world = World::new();
    let claim = shows(34, "/leasehold.Fence/Claim").header("content-type", "application/grpc+proto");
    let claimed = world.send(claim, "\0\0\0\0\0").await;
    assert_eq!((claimed.status.as_u16(), claimed.body.as_deref()), (200, Ok(&[0_u8; 5][..])));
    let stale = world.send(shows(33, "/shop.Orders/Pay").header("content-type", "application/grpc"), "").await;
    assert_eq!((stale.status.as_u16(), stale.body.as_deref()), (200, Ok(&[][..])));
    let told = |name: &str| stale.headers[name].to_str().expect("text").to_owned();
    assert_eq!((told("grpc-status"), told("leasehold-code")), ("9".to_owned(), "STALE_TOKEN".to_owned()));
    assert_eq!((told("leasehold-presented"), told("leasehold-mark")), ("33".to_owned(), "34".to_owned()));
    assert!(told("grpc-message").starts_with("token 33 is below the mark 34"), "{}", told("grpc-message"));
    assert_eq!(world.applied(), Vec::<String>::new());
}

#[tokio::test]
async fn each_place_has_its_own_mark_and_takes_only_its_own_tokens() {
    let other = Name::parse("jobs/other").expect("a name");
    let rules = Rules::new(Under::new(name(), 0))
        .under("/other", &[], Under::new(other, 2))
        .and_then(|rules| rules.free("/search", &[]))
        .expect("rules");
    let world = World::with(rules);
    let resource = leasehold_core::name::resource_hash("jobs/other");
    let of_other = |n| Token { resource, reach: Reach::Slot(2), ..parts(n) }.to_string();
    let to = |path: &str, token: &str| Request::post(path).header("lease-token", token);
    assert_eq!(world.send(to("/-/claim", &of_other(9)), "").await.json()["mark"], "9", "the token says which place");
    assert_eq!(world.send(to("/other/now", &of_other(9)), "o").await.code(), None);
    assert_eq!(world.send(to("/other/now", &of_other(8)), "").await.json()["code"], "STALE_TOKEN");
    assert_eq!(world.send(to("/other/now", &token(99)), "").await.json()["reason"], "resource");
    assert_eq!(world.send(to("/now", &of_other(9)), "").await.json()["reason"], "resource");
    assert_eq!(world.write(3, "m").await.code(), None, "the mark of one place is not another's");
    assert_eq!(world.send(Request::post("/search"), "s").await.code(), None);
    assert_eq!(world.send(Request::post("/search/../other/now"), "").await.json()["field"], "path");
    assert_eq!(world.applied(), ["o", "m", "s"]);
    let marks: Vec<_> = world.fence.crowds().into_iter().map(|crowd| (crowd.under.to_string(), crowd.inside)).collect();
    assert_eq!(marks, [("jobs/settle slot 0".to_owned(), 0), ("jobs/other slot 2".to_owned(), 0)]);
}

#[tokio::test]
async fn an_axum_router_stands_behind_it_as_it_is() {
    use axum::routing::post;
    use tower::ServiceExt;
    let world = World::new();
    let router =
        axum::Router::new().route("/pay", post(async |body: String| format!("paid {body}"))).layer(world.fence.layer());
    let request = shows(5, "/pay").body(axum::body::Body::from("7")).expect("a request");
    let response = router.clone().oneshot(request).await.expect("it cannot fail");
    let body = axum::body::to_bytes(response.into_body(), 100).await.expect("whole");
    assert_eq!(body, "paid 7");
    let bare = Request::post("/pay").body(axum::body::Body::from("7")).expect("a request");
    assert_eq!(router.oneshot(bare).await.expect("it cannot fail").status(), 400);
}
