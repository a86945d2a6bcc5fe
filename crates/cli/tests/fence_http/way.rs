//! A caller's way over HTTP/1, with connections of its own.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Clone)]
pub struct Way {
    client: Client<HttpConnector, Full<Bytes>>,
    address: String,
}

/// What was answered.
#[derive(Debug)]
pub struct Heard {
    pub status: StatusCode,
    pub headers: hyper::HeaderMap,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a problem, or of nothing wrong.
    pub fn code(&self) -> String {
        if self.status.is_success() {
            return "OK".to_owned();
        }
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Way {
    pub fn to(address: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build_http();
        Self { client, address: address.to_owned() }
    }

    pub fn asks(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        Request::builder().method(method).uri(format!("http://{}{path}", self.address))
    }

    /// What is answered; none if the connection broke.
    pub async fn send(&self, request: hyper::http::request::Builder, body: &str) -> Option<Heard> {
        let request = request.body(Full::from(body.to_owned())).expect("a request");
        let response: Response<_> = self.client.request(request).await.ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes().to_vec();
        Some(Heard { status: head.status, headers: head.headers, body })
    }

    pub async fn get(&self, path: &str) -> Heard {
        self.send(self.asks("GET", path), "").await.expect("it answers")
    }

    /// Claims until it is let in: who waits for an unknown outcome is told to come again.
    pub async fn claims(&self, token: &str) -> Heard {
        let began = std::time::Instant::now();
        loop {
            let heard = self.send(self.asks("POST", "/-/claim").header("lease-token", token), "").await;
            if let Some(heard) = heard.filter(|heard| heard.code() != "UNAVAILABLE") {
                return heard;
            }
            assert!(began.elapsed() < crate::support::PATIENCE, "it is never let in");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub async fn writes(&self, token: &str, path: &str, value: &str) -> Option<Heard> {
        self.send(self.asks("POST", path).header("lease-token", token), value).await
    }
}
