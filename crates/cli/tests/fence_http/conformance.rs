//! The conformance suite against the proxy process, and against the same service without the proxy.

use std::sync::Mutex;

use leasehold_core::token::{Incarnation, Number, Token};
use leasehold_fence::conformance::{AppliedEntry, FenceWriter, Subject, fence_id};
use leasehold_fence::file::FencedLog;
use leasehold_fence::http::parse_refusal;
use leasehold_fence::{ApplyOnce, Error, MarkInfo};

use crate::http_client::{HttpClient, HttpResponse};
use crate::proxy::{Proxy, ProxySetup, Service};

/// The service, with or without the proxy in front.
pub struct ProxySubject {
    pub fenced: bool,
    service: Service,
    now: Mutex<Option<(ProxySetup, Proxy)>>,
}

impl ProxySubject {
    pub fn new(fenced: bool) -> Self {
        Self { fenced, service: Service::start(), now: Mutex::new(None) }
    }

    fn log(&self) -> Result<FencedLog, Error> {
        let path = self.now.lock().expect("whole").as_ref().expect("it is fresh").0.marks();
        FencedLog::open(&path, &fence_id())
    }
}

impl Subject for ProxySubject {
    type Writer = Caller;

    async fn fresh(&self) {
        *self.now.lock().expect("whole") = None;
        self.service.client.get("/ghost/reset").await;
        let setup = ProxySetup::new(&["--settle-time", "2s", "--claim-timeout", "10s"]);
        let proxy = setup.start(&self.service.address);
        *self.now.lock().expect("whole") = Some((setup, proxy));
    }

    async fn writer(&self) -> Caller {
        let now = self.now.lock().expect("whole");
        let fence = &now.as_ref().expect("it is fresh").1;
        Caller(HttpClient::new(if self.fenced { &fence.address } else { &self.service.address }))
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let all = self.service.applied().await.into_iter();
        let number = |number| Number::new(number).expect("a number");
        all.map(|(n, value)| AppliedEntry { number: number(n), value }).filter(|one| !one.value.is_empty()).collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.log()?.mark()
    }

    async fn unarmed(&self) -> bool {
        self.fresh().await;
        let now = self.now.lock().expect("whole");
        std::fs::remove_file(now.as_ref().expect("it is fresh").0.marks()).is_ok()
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.log()?.declare_lost().map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.log()?.rearm(floor).map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.log()?.strict(enabled).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.log()?.adopt(incarnation).map(|()| true)
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        let path = self.now.lock().expect("whole").as_ref().expect("it is fresh").0.marks();
        FencedLog::list_marks(&path).map(Some)
    }

    async fn crash(&self) -> bool {
        let mut now = self.now.lock().expect("whole");
        let (setup, mut proxy) = now.take().expect("it is fresh");
        proxy.process.kill();
        let proxy = setup.start(&self.service.address);
        *now = Some((setup, proxy));
        true
    }
}

pub struct Caller(HttpClient);

impl Caller {
    async fn request(&self, path: &str, token: &str, sequence: Option<u64>, body: &str) -> Result<HttpResponse, Error> {
        let broke = || Error::Storage("the connection broke".into());
        let mut request = self.0.request("POST", path);
        request = if token.is_empty() { request } else { request.header("lease-token", token) };
        if let Some(sequence) = sequence {
            request = request.header("lease-sequence", sequence.to_string());
        }
        let response = self.0.send(request, body).await.ok_or_else(broke)?;
        match response.status.is_success() {
            true => Ok(response),
            false => Err(parse_refusal(&response.body).unwrap_or_else(broke)),
        }
    }
}

impl FenceWriter for Caller {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.request("/-/claim", token, None, "").await?;
        Ok(Token::parse(token).expect("it was admitted").number)
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.request("/now", token, None, value).await.map(drop)
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        let response = self.request("/now", token, Some(sequence), value).await?;
        let before = response.headers.get("lease-applied").and_then(|last| last.to_str().ok()?.parse().ok());
        Ok(Some(before.map_or(ApplyOnce::Applied, |last| ApplyOnce::AlreadyApplied { last })))
    }
}
