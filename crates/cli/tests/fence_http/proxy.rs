//! A service and the fence before it, as processes.

use std::path::PathBuf;

use leasehold_fence::conformance::{CLUSTER, RESOURCE, token};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::behind;
use crate::shared::Process;
use crate::way::{Heard, Way};

/// The service behind.
pub struct Service {
    _process: Process,
    pub address: String,
    pub way: Way,
}

impl Service {
    pub fn start() -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut process = Process::start(own.to_str().expect("a path"), &[behind::PART.to_owned()], true);
        let address = process.tells("behind on ");
        let way = Way::to(&address);
        Self { _process: process, address, way }
    }

    /// What was applied, in its order.
    pub async fn ghost(&self) -> Vec<(u64, String)> {
        serde_json::from_slice(&self.way.get("/ghost").await.body).expect("JSON")
    }

    pub async fn numbers(&self) -> Vec<u64> {
        self.ghost().await.into_iter().map(|(number, _)| number).collect()
    }

    /// Waits until so many held requests have arrived.
    pub async fn has(&self, arrived: usize) {
        while self.way.get("/ghost/arrived").await.text() != arrived.to_string() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub async fn release(&self) {
        self.way.get("/ghost/release").await;
    }
}

/// The fence before it.
pub struct Proxy {
    pub process: Process,
    pub way: Way,
    pub address: String,
    pub aside: Way,
}

/// Where the marks of a story are, and how the proxy is started over them.
pub struct Place {
    pub dir: TempDir,
    pub flags: Vec<String>,
}

impl Place {
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

    /// Starts it; for the first time it makes the marks.
    pub fn start(&self, upstream: &str) -> Proxy {
        let mut args = self.args(upstream);
        if !self.marks().exists() {
            args.extend(["--arm", "--cluster"].map(str::to_owned));
            args.push(CLUSTER.to_string());
        }
        let mut process = Process::start(env!("CARGO_BIN_EXE_leasehold"), &args, false);
        let told = process.tells("fencing on ");
        let address = told.split(',').next().expect("an address").to_owned();
        let aside = told.split("figures on ").nth(1).expect("an address").trim_end_matches('"').to_owned();
        let aside = aside.split(['"', ',']).next().expect("an address").to_owned();
        Proxy { process, way: Way::to(&address), address, aside: Way::to(&aside) }
    }
}

impl Proxy {
    pub async fn claims(&self, number: u64) -> Heard {
        self.way.claims(&token(number)).await
    }

    /// One try, without coming again.
    pub async fn claims_once(&self, number: u64) -> Heard {
        let asks = self.way.asks("POST", "/-/claim").header("lease-token", token(number));
        self.way.send(asks, "").await.expect("it answers")
    }

    pub async fn writes(&self, number: u64, path: &str, value: &str) -> Heard {
        self.way.writes(&token(number), path, value).await.expect("it answers")
    }

    /// The mark that it tells.
    pub async fn mark(&self) -> u64 {
        let told = self.aside.get("/marks").await.json();
        told["marks"][0]["mark"].as_str().map_or(0, |mark| mark.parse().expect("a number"))
    }

    /// Stops it politely, and gives what it said.
    pub fn stops(self) -> (Option<i32>, Vec<String>) {
        self.process.signal(Signal::TERM);
        self.process.ended()
    }
}
