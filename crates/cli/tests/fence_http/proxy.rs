//! The service and the proxy as processes.

use std::path::PathBuf;

use leasehold_fence::conformance::{CLUSTER, RESOURCE, token};
use leasehold_testkit::process::TestProcess;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::child::{start_logging, start_printing, wait_exit};
use crate::http_client::{HttpClient, HttpResponse};
use crate::upstream;

/// The service behind the proxy.
pub struct Service {
    _process: TestProcess,
    pub address: String,
    pub client: HttpClient,
}

impl Service {
    pub fn start() -> Self {
        let own = std::env::current_exe().expect("this program");
        let process = start_printing(own.to_str().expect("a path"), &[upstream::ROLE.to_owned()]);
        let address = process.stdout().wait_for_rest("upstream on ");
        let client = HttpClient::new(&address);
        Self { _process: process, address, client }
    }

    /// The applied writes, in order.
    pub async fn applied(&self) -> Vec<(u64, String)> {
        serde_json::from_slice(&self.client.get("/ghost").await.body).expect("JSON")
    }

    pub async fn numbers(&self) -> Vec<u64> {
        self.applied().await.into_iter().map(|(number, _)| number).collect()
    }

    /// Waits until this many held requests have arrived.
    pub async fn wait_arrived(&self, arrived: usize) {
        while self.client.get("/ghost/arrived").await.text() != arrived.to_string() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub async fn release(&self) {
        self.client.get("/ghost/release").await;
    }
}

/// A running proxy.
pub struct Proxy {
    pub process: TestProcess,
    pub client: HttpClient,
    pub address: String,
    pub admin: HttpClient,
    pub admin_address: String,
}

/// The mark directory of a test, and the flags of its proxies.
pub struct ProxySetup {
    pub dir: TempDir,
    pub flags: Vec<String>,
}

impl ProxySetup {
    pub fn new(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        Self { dir, flags: flags.iter().map(|flag| (*flag).to_owned()).collect() }
    }

    pub fn marks(&self) -> PathBuf {
        self.dir.path().join("marks")
    }

    pub fn args(&self, upstream: &str) -> Vec<String> {
        let (marks, upstream) = (self.marks().display().to_string(), format!("http://{upstream}"));
        let words = ["fence", "http", "--upstream", &upstream, "--resource", RESOURCE, "--marks", &marks];
        let quiet = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
        words.iter().chain(&quiet).map(|word| (*word).to_owned()).chain(self.flags.iter().cloned()).collect()
    }

    /// Arguments that also arm the mark file if it does not exist.
    pub fn start_args(&self, upstream: &str) -> Vec<String> {
        let mut args = self.args(upstream);
        if !self.marks().exists() {
            args.extend(["--arm", "--cluster"].map(str::to_owned));
            args.push(CLUSTER.to_string());
        }
        args
    }

    /// Starts a proxy, and arms the mark file if it does not exist.
    pub fn start(&self, upstream: &str) -> Proxy {
        let args = self.start_args(upstream);
        Proxy::new(start_logging(env!("CARGO_BIN_EXE_leasehold"), &args))
    }
}

impl Proxy {
    /// Reads the addresses from the log of a process.
    pub fn new(process: TestProcess) -> Self {
        let output = process.stderr().wait_for_rest("fencing on ");
        let address = output.split(',').next().expect("an address").to_owned();
        let admin = output.split("metrics on ").nth(1).expect("an address").trim_end_matches('"').to_owned();
        let admin_address = admin.split(['"', ',']).next().expect("an address").to_owned();
        let (client, admin) = (HttpClient::new(&address), HttpClient::new(&admin_address));
        Self { process, client, address, admin, admin_address }
    }

    pub async fn claim(&self, number: u64) -> HttpResponse {
        self.client.claim(&token(number)).await
    }

    /// Claims once, without a retry.
    pub async fn claim_once(&self, number: u64) -> HttpResponse {
        let request = self.client.request("POST", "/-/claim").header("lease-token", token(number));
        self.client.send(request, "").await.expect("it answers")
    }

    pub async fn write(&self, number: u64, path: &str, value: &str) -> HttpResponse {
        self.client.write(&token(number), path, value).await.expect("it answers")
    }

    /// The mark that the proxy reports.
    pub async fn mark(&self) -> u64 {
        let output = self.admin.get("/marks").await.json();
        output["marks"][0]["mark"].as_str().map_or(0, |mark| mark.parse().expect("a number"))
    }

    /// Sends SIGTERM. Returns the exit code and the log.
    pub fn stop(self) -> (Option<i32>, Vec<String>) {
        self.process.signal(Signal::TERM).expect("it runs");
        wait_exit(self.process)
    }
}
