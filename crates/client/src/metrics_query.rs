//! The metrics of a server, over the connection that the client already has.

use std::future::poll_fn;
use std::pin::Pin;

use leasehold_wire::Code;
use tonic::body::Body;
use tonic::codegen::{Body as _, http};
use tower::ServiceExt;

use crate::failover::root_cause;
use crate::{Client, Error};

/// Longest text that is read.
const MAX_BYTES: usize = 8 << 20;

impl Client {
    /// The metrics of the server that answered last, in the text format of Prometheus: after a query, those of the leader. Needs the
    /// right to read metrics. Tries no other server.
    pub async fn metrics(&self) -> Result<String, Error> {
        let Some(at) = self.servers.in_order().pop_front() else {
            return Err(Error::unavailable("no server is known"));
        };
        let mut request = http::Request::get("/metrics");
        if let Some(file) = self.servers.bearer(&at)? {
            let value = file.header().map_err(|reason| Error::unavailable(format!("bearer_file: {reason}")))?;
            let mut value = http::HeaderValue::from_bytes(value.as_bytes()).map_err(Error::invalid_reply)?;
            value.set_sensitive(true);
            request = request.header(http::header::AUTHORIZATION, value);
        }
        let request = request.body(Body::empty()).map_err(Error::invalid_reply)?;
        let channel = self.servers.channel(&at)?;
        let timeout = self.servers.timeouts().connect + self.servers.timeouts().request;
        let exchange = async {
            let response = channel.oneshot(request).await.map_err(|error| root_cause(&error))?;
            let status = response.status();
            let text = read_text(response.into_body()).await?;
            Ok::<_, String>((status, text))
        };
        let unavailable = |reason: String| Error::unavailable(format!("{at}: {reason}"));
        let answered = tokio::time::timeout(timeout, exchange).await;
        let answered = answered.unwrap_or_else(|_| Err("no reply in time".to_owned()));
        match answered.map_err(unavailable)? {
            (status, text) if status.is_success() => Ok(text),
            (status, text) => {
                let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
                let detail = problem["detail"].as_str().unwrap_or(text.trim()).to_owned();
                let code = problem["code"].as_str().and_then(Code::from_word).unwrap_or(Code::Unavailable);
                let detail = if detail.is_empty() { format!("{at}: /metrics answers {status}") } else { detail };
                Err(Error::new(code, detail))
            }
        }
    }
}

/// A body as text.
async fn read_text(mut body: Body) -> Result<String, String> {
    let mut text = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| error.to_string())?;
        let Ok(data) = frame.into_data() else { continue };
        if text.len() + data.len() > MAX_BYTES {
            return Err(format!("the response has more than {MAX_BYTES} bytes"));
        }
        text.extend_from_slice(&data);
    }
    String::from_utf8(text).map_err(|_| "the response is not text".to_owned())
}
