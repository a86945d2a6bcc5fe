//! A NATS server process for a test, and its fence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Config, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};
use futures::StreamExt;
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{AppliedEntry, FenceWriter, Subject, fence_id};
use leasehold_fence::nats::{Fence, list_marks, stamp};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};
use leasehold_testkit::ports::unused_address;
use leasehold_testkit::third_party_server::ThirdPartyServer;

use tokio::sync::watch;

pub const SUBJECT: &str = "writes.eu";

pub struct NatsServer {
    server: ThirdPartyServer,
    at: String,
    /// Number of the current stream.
    stream: AtomicU64,
}

impl NatsServer {
    pub async fn start() -> Self {
        let at = unused_address();
        let server = ThirdPartyServer::start("nats-server", move |dir| {
            let (store, config) = (dir.join("store"), dir.join("config"));
            // Servers before 2.10 have no sync_interval. A kill loses nothing there either; a power failure may.
            let sync = if knows_sync_interval() { "sync_interval: always" } else { "" };
            let text = format!(
                "listen: \"{at}\"\njetstream {{ store_dir: {store:?}, {sync} }}\naccounts {{ $SYS {{ users: [ {{ \
                 user: system, password: system }} ] }}, A {{ jetstream: enabled, users: [ {{ user: app, password: \
                 app }} ] }} }}\nno_auth_user: app\n"
            );
            std::fs::write(&config, text).expect("a configuration");
            vec!["-c".to_owned(), config.display().to_string()]
        });
        let nats = Self { server, at: at.to_string(), stream: AtomicU64::new(0) };
        nats.create_stream().await;
        nats
    }

    pub fn at(&self) -> &str {
        &self.at
    }

    pub async fn connect(&self) -> Client {
        self.server.retry(|| async_nats::connect(self.at())).await
    }

    pub async fn system(&self) -> Client {
        let login = async_nats::ConnectOptions::with_user_and_password("system".to_owned(), "system".to_owned());
        login.connect(self.at()).await.expect("the system account")
    }

    pub async fn jetstream(&self) -> Context {
        let client = self.connect().await;
        // The server accepts connections before JetStream is ready.
        self.server.retry(|| client.request("$JS.API.INFO", "".into())).await;
        let mut jetstream = jetstream::new(client);
        jetstream.set_timeout(Duration::from_secs(60));
        jetstream
    }

    pub fn stream_name(&self) -> String {
        format!("WRITES{}", self.stream.load(Ordering::SeqCst))
    }

    pub async fn stream(&self) -> Stream {
        let jetstream = self.jetstream().await;
        let name = self.stream_name();
        self.server.retry(|| jetstream.get_stream(&name)).await
    }

    /// All records of the stream, read without the fence.
    pub async fn records(&self) -> Vec<StreamMessage> {
        let stream = self.stream().await;
        let last = stream.get_info().await.expect("known").state.last_sequence;
        let requests = futures::stream::iter(1..=last).map(|sequence| stream.get_raw_message(sequence));
        requests.buffered(64).map(|record| record.expect("there")).collect().await
    }

    async fn create_stream(&self) {
        let config = Config { name: self.stream_name(), subjects: vec!["writes.*".to_owned()], ..Config::default() };
        self.jetstream().await.create_stream(config).await.expect("a stream");
    }

    pub async fn fence(&self) -> Fence {
        let jetstream = self.jetstream().await;
        let fence = Fence::open(&jetstream, &self.stream_name(), SUBJECT, &fence_id()).await.expect("opened");
        fence.with_claim_timeout(Duration::from_secs(120))
    }
}

pub fn knows_sync_interval() -> bool {
    let output = std::process::Command::new("nats-server").arg("--version").output();
    let text = String::from_utf8(output.expect("./test installs nats-server").stdout).expect("text");
    let version = text.rsplit('v').next().unwrap_or_default().trim().to_owned();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(2), Some(10))
}

pub struct NatsWriter {
    pub fence: Fence,
    /// Whether the connection is lost. It is not re-established, so that no abandoned request is sent later.
    lost: watch::Receiver<bool>,
}

impl NatsWriter {
    pub async fn open(at: &str, stream: &str) -> Result<Self, async_nats::ConnectError> {
        let (report_lost, lost) = watch::channel(false);
        let (connected, once) = (Arc::new(AtomicBool::new(false)), Duration::from_secs(3600));
        let before = connected.clone();
        let delay = move |_| if before.load(Ordering::SeqCst) { once } else { Duration::ZERO };
        let options = ConnectOptions::new().reconnect_delay_callback(delay);
        let options = options.event_callback(move |event| {
            if event == Event::Disconnected {
                report_lost.send_replace(true);
            }
            std::future::ready(())
        });
        let client = options.connect(at).await?;
        connected.store(true, Ordering::SeqCst);
        let mut jetstream = jetstream::new(client);
        jetstream.set_timeout(Duration::from_secs(120));
        let fence = Fence::open(&jetstream, stream, SUBJECT, &fence_id()).await.expect("no request is sent");
        Ok(Self { fence: fence.with_claim_timeout(Duration::from_secs(120)), lost })
    }

    /// Fails when the connection is lost: the outcome of the request is unknown.
    async fn unless_lost<T>(
        lost: &mut watch::Receiver<bool>,
        request: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        tokio::select! {
            result = request => result,
            _ = lost.wait_for(|lost| *lost) => Err(Error::Storage("the connection is lost".into())),
        }
    }
}

impl FenceWriter for NatsWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        Self::unless_lost(&mut self.lost, self.fence.claim(token)).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        Self::unless_lost(&mut self.lost, self.fence.append(token, value)).await.map(|_| ())
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        Self::unless_lost(&mut self.lost, self.fence.append_once(token, sequence, value)).await.map(Some)
    }
}

impl Subject for NatsServer {
    type Writer = NatsWriter;

    async fn fresh(&self) {
        self.unarmed().await;
        self.fence().await.arm().await.expect("armed");
    }

    async fn writer(&self) -> NatsWriter {
        let name = self.stream_name();
        self.server.retry(|| NatsWriter::open(&self.at, &name)).await
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let mut all = Vec::new();
        for message in self.records().await {
            let Some(stamp) = stamp(&message.headers) else { continue };
            let (kind, token) = stamp.split_once(' ').expect("a kind and a token");
            let number = leasehold_core::token::Token::parse(token).expect("a token").number;
            if kind == "write" {
                all.push(AppliedEntry { number, value: String::from_utf8(message.payload.to_vec()).expect("text") });
            }
        }
        all
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.fence().await.mark().await
    }

    async fn unarmed(&self) -> bool {
        self.jetstream().await.delete_stream(self.stream_name()).await.expect("deleted");
        self.stream.fetch_add(1, Ordering::SeqCst);
        self.create_stream().await;
        true
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.fence().await.declare_lost().await.map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.fence().await.rearm(floor).await.map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.fence().await.strict(enabled).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.fence().await.adopt(incarnation).await.map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        self.fence().await.seal().await.map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<NatsWriter> {
        let writer = self.writer().await;
        Some(NatsWriter { fence: writer.fence.clone().with_seal_verifier(verifier), ..writer })
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(&self.jetstream().await, &self.stream_name()).await.map(Some)
    }

    async fn crash(&self) -> bool {
        self.server.kill();
        self.server.restart();
        self.stream().await;
        true
    }
}
