//! The metrics listener: `/metrics` in the OpenMetrics format, `/healthz`, and `/marks` in JSON.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::connection_deadlines::ClientConnection;
use super::listener::{accept, http_builder};
use super::upstream::{ProxyBody, problem_response};
use super::web_origin;
use crate::Mark;
use crate::http::{Fence, GateStatus, UpstreamOutcome};

/// Maximum number of connections to the metrics listener.
const MAX_CONNECTIONS: usize = 64;

/// Serves metrics until the task is aborted.
pub(super) async fn serve(listener: TcpListener, fence: Fence, hosts: Vec<String>, header_timeout: Duration) {
    let limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let hosts: Arc<[String]> = hosts.into();
    loop {
        let (stream, permit) = accept(&listener, &limit).await;
        let (fence, hosts) = (fence.clone(), hosts.clone());
        tokio::spawn(async move {
            let handler = service_fn(move |request| {
                let response = respond(&fence, &hosts, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let stream = TokioIo::new(ClientConnection::new(stream, header_timeout));
            // A client that disconnects needs no handling.
            let _ = http_builder(header_timeout).serve_connection(stream, handler).await;
            drop(permit);
        });
    }
}

fn respond(fence: &Fence, hosts: &[String], request: &Request<Incoming>) -> Response<ProxyBody> {
    let checked = web_origin::check_host(request, hosts, false).and_then(|()| web_origin::check_origin(request));
    if let Err(problem) = checked {
        return problem_response(problem, false, UpstreamOutcome::NotSent);
    }
    let (content_type, text, status) = match request.uri().path() {
        "/metrics" => ("application/openmetrics-text; version=1.0.0; charset=utf-8", metrics(fence), StatusCode::OK),
        "/healthz" => ("text/plain", "ok\n".to_owned(), StatusCode::OK),
        "/marks" => ("application/json", marks(fence), StatusCode::OK),
        _ => ("text/plain", "use /metrics, /healthz or /marks\n".to_owned(), StatusCode::NOT_FOUND),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// All marks in JSON. Numbers are strings, because many JSON parsers round large numbers.
fn marks(fence: &Fence) -> String {
    let marks = fence.gate_statuses().into_iter().map(|gate| {
        let (mark, state) = match gate.mark {
            Mark::Armed(mark) => (Some(mark.to_string()), "armed"),
            Mark::Fresh => (None, "fresh"),
            Mark::Lost => (None, "lost"),
        };
        json!({ "resource": gate.id.resource(), "slot": gate.id.slot(), "state": state, "mark": mark })
    });
    json!({ "marks": marks.collect::<Vec<_>>() }).to_string()
}

fn metrics(fence: &Fence) -> String {
    let (decisions, gate) = (fence.counters().snapshot(), fence.metrics());
    let requests = [
        ("claimed", decisions.claims),
        ("admitted", decisions.admitted),
        ("stale", decisions.stale),
        ("invalid", decisions.invalid),
        ("foreign", decisions.foreign),
        ("implausible", decisions.implausible),
        ("mark_lost", decisions.lost),
        ("unverified", decisions.unverified),
        ("not_adopted", decisions.not_adopted),
        ("exempt", gate.exempt),
        ("blocked", gate.blocked),
        ("duplicate", gate.duplicates),
        ("malformed", gate.malformed),
    ];
    let mut text = String::new();
    line(&mut text, "# HELP leasehold_fence_requests Requests by the decision of the fence.");
    line(&mut text, "# TYPE leasehold_fence_requests counter");
    for (decision, count) in requests {
        line(&mut text, &format!("leasehold_fence_requests_total{{decision=\"{decision}\"}} {count}"));
    }
    line(&mut text, "# HELP leasehold_fence_unknown_outcomes Requests with an unknown outcome.");
    line(&mut text, "# TYPE leasehold_fence_unknown_outcomes counter");
    line(&mut text, &format!("leasehold_fence_unknown_outcomes_total {}", gate.unknown));
    let gates = fence.gate_statuses();
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&GateStatus) -> String| {
        line(&mut text, &format!("# HELP leasehold_fence_{name} {help}"));
        line(&mut text, &format!("# TYPE leasehold_fence_{name} gauge"));
        for gate in &gates {
            let labels = format!("resource=\"{}\",slot=\"{}\"", escape(gate.id.resource()), gate.id.slot());
            line(&mut text, &format!("leasehold_fence_{name}{{{labels}}} {}", value(gate)));
        }
    };
    gauge("in_flight_requests", "Requests without an outcome yet.", &|gate| gate.in_flight.to_string());
    gauge("closed_seconds", "Time for which an unknown outcome still blocks higher tokens.", &|gate| {
        format!("{:.3}", gate.closed_for.as_secs_f64())
    });
    gauge("mark", "Highest token number admitted; 0 if none, or lost.", &|gate| match gate.mark {
        Mark::Armed(mark) => mark.to_string(),
        Mark::Fresh | Mark::Lost => "0".to_owned(),
    });
    gauge("mark_lost", "1 if the mark is lost and all tokens are rejected.", &|gate| {
        u8::from(gate.mark == Mark::Lost).to_string()
    });
    line(&mut text, "# EOF");
    text
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"")
}
