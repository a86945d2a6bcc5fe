//! An HTTP/1 client with its own connections.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Clone)]
pub struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    address: String,
}

#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: hyper::HeaderMap,
    pub body: Vec<u8>,
}

impl HttpResponse {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error code of a problem, or `OK`.
    pub fn code(&self) -> String {
        if self.status.is_success() {
            return "OK".to_owned();
        }
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl HttpClient {
    pub fn new(address: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build_http();
        Self { client, address: address.to_owned() }
    }

    pub fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        Request::builder().method(method).uri(format!("http://{}{path}", self.address))
    }

    /// Sends a request; `None` if the connection broke.
    pub async fn send(&self, request: hyper::http::request::Builder, body: &str) -> Option<HttpResponse> {
        let request = request.body(Full::from(body.to_owned())).expect("a request");
        let response: Response<_> = self.client.request(request).await.ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes().to_vec();
        Some(HttpResponse { status: head.status, headers: head.headers, body })
    }

    pub async fn get(&self, path: &str) -> HttpResponse {
        self.send(self.request("GET", path), "").await.expect("it answers")
    }

    /// Retries a claim while the fence replies UNAVAILABLE.
    pub async fn claim(&self, token: &str) -> HttpResponse {
        let began = std::time::Instant::now();
        loop {
            let response = self.send(self.request("POST", "/-/claim").header("lease-token", token), "").await;
            if let Some(response) = response.filter(|response| response.code() != "UNAVAILABLE") {
                return response;
            }
            assert!(began.elapsed() < crate::support::TEST_TIMEOUT, "it is never let in");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub async fn write(&self, token: &str, path: &str, value: &str) -> Option<HttpResponse> {
        self.send(self.request("POST", path).header("lease-token", token), value).await
    }
}
