//! What the fence has seen, beside the way of the requests: figures for Prometheus, health, and the marks.

use std::convert::Infallible;
use std::fmt::Write;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use leasehold_fence::Mark;
use leasehold_fence::http::Fence;
use serde_json::json;
use tokio::net::TcpListener;

/// Answers until nobody asks any more.
pub async fn tell(listener: TcpListener, fence: Fence) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let fence = fence.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let response = response(&fence, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            // Whoever asked and went away has heard enough.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

fn response(fence: &Fence, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (kind, text, status) = match request.uri().path() {
        "/metrics" => ("application/openmetrics-text; version=1.0.0; charset=utf-8", figures(fence), StatusCode::OK),
        "/healthz" => ("text/plain", "ok\n".to_owned(), StatusCode::OK),
        "/marks" => ("application/json", marks(fence), StatusCode::OK),
        _ => ("text/plain", "see /metrics, /healthz and /marks\n".to_owned(), StatusCode::NOT_FOUND),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Every mark. Numbers stand in quotes, because JSON readers round large ones.
fn marks(fence: &Fence) -> String {
    let told = fence.crowds().into_iter().map(|crowd| {
        let (mark, state) = match crowd.mark {
            Mark::Armed(mark) => (Some(mark.to_string()), "armed"),
            Mark::Fresh => (None, "fresh"),
            Mark::Lost => (None, "lost"),
        };
        json!({ "resource": crowd.under.resource, "slot": crowd.under.slot, "state": state, "mark": mark })
    });
    json!({ "marks": told.collect::<Vec<_>>() }).to_string()
}

fn figures(fence: &Fence) -> String {
    let (counted, seen) = (fence.counters().read(), fence.seen());
    let answers = [
        ("claimed", counted.claims),
        ("admitted", counted.admitted),
        ("stale", counted.stale),
        ("invalid", counted.invalid),
        ("foreign", counted.foreign),
        ("implausible", counted.implausible),
        ("lost", counted.lost),
        ("not_adopted", counted.not_adopted),
        ("free", seen.free),
        ("blocked", seen.blocked),
        ("duplicate", seen.duplicates),
        ("malformed", seen.malformed),
    ];
    let mut text = "# HELP leasehold_fence_requests Requests by what the fence answered.\n\
                    # TYPE leasehold_fence_requests counter\n"
        .to_owned();
    for (answer, count) in answers {
        line(&mut text, &format!("leasehold_fence_requests_total{{answer=\"{answer}\"}} {count}"));
    }
    line(&mut text, "# HELP leasehold_fence_unknown Requests whose outcome nobody knew.");
    line(&mut text, "# TYPE leasehold_fence_unknown counter");
    line(&mut text, &format!("leasehold_fence_unknown_total {}", seen.unknown));
    let crowds = fence.crowds();
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&leasehold_fence::http::Crowd) -> String| {
        line(&mut text, &format!("# HELP leasehold_fence_{name} {help}"));
        line(&mut text, &format!("# TYPE leasehold_fence_{name} gauge"));
        for crowd in &crowds {
            let place = format!("resource=\"{}\",slot=\"{}\"", escaped(&crowd.under.resource), crowd.under.slot);
            line(&mut text, &format!("leasehold_fence_{name}{{{place}}} {}", of(crowd)));
        }
    };
    gauge("inside", "Requests without an outcome yet.", &|crowd| crowd.inside.to_string());
    gauge("shut_seconds", "For how long nothing higher comes in, because an outcome is unknown.", &|crowd| {
        format!("{:.3}", crowd.shut_for.as_secs_f64())
    });
    gauge("mark", "The highest token number seen; 0 if none, or lost.", &|crowd| match crowd.mark {
        Mark::Armed(mark) => mark.to_string(),
        Mark::Fresh | Mark::Lost => "0".to_owned(),
    });
    gauge("lost", "1 if the mark is lost and everything is refused.", &|crowd| {
        u8::from(crowd.mark == Mark::Lost).to_string()
    });
    line(&mut text, "# EOF");
    text
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes all");
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}
