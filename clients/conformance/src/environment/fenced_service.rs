//! A service behind `leasehold fence http`. The service applies whatever reaches it, and remembers the order.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use leasehold_testkit::process::{TestProcess, tied_command};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::runtime::runtime;

/// Bodies of the writes that reached a service.
type AppliedBodies = Arc<Mutex<Vec<String>>>;

/// A fence and the service behind it.
pub struct FencedService {
    /// URL of the fence.
    pub url: String,
    applied: AppliedBodies,
    _fence: TestProcess,
    _directory: TempDir,
}

impl FencedService {
    /// Starts a service and the fence of a resource in front of it.
    pub fn start(binary: &Path, cluster: &str, resource: &str) -> io::Result<Self> {
        let applied = AppliedBodies::default();
        let upstream = serve(applied.clone())?;
        let directory = leasehold_testkit::temp_dir::in_memory()?;
        let marks = directory.path().join("marks");
        let mut command = tied_command("KILL", &[]);
        command.arg(binary).args(["fence", "http", "--upstream", &upstream, "--resource", resource, "--marks"]);
        command.arg(marks).args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--cluster", cluster, "--arm"]);
        let fence = TestProcess::spawn_tied({
            command.stderr(Stdio::piped());
            command
        })?;
        let address = fence.stderr().wait_for_rest("fencing on ");
        let address = address.split(',').next().unwrap_or_default();
        Ok(Self { url: format!("http://{address}"), applied, _fence: fence, _directory: directory })
    }

    /// The bodies that reached the service, in order.
    pub fn applied(&self) -> Vec<String> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves in the background. Returns the URL.
fn serve(applied: AppliedBodies) -> io::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    let _in_runtime = runtime().enter();
    let listener = TcpListener::from_std(listener)?;
    runtime().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let applied = applied.clone();
            tokio::spawn(async move {
                let apply = service_fn(move |request| apply(applied.clone(), request));
                // The fence decides when a connection ends.
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), apply).await;
            });
        }
    });
    Ok(url)
}

async fn apply(applied: AppliedBodies, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // A body that does not arrive completely is not applied.
    if let Ok(body) = request.into_body().collect().await {
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        applied.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
    Ok(Response::new(Full::default()))
}
