//! The suite that every target passes, on the proxy as a process, and on the same service without it.

use std::sync::Mutex;

use leasehold_core::token::{Incarnation, Number, Token};
use leasehold_fence::conformance::{Applied, CLUSTER, Subject, Writer, name};
use leasehold_fence::file::Log;
use leasehold_fence::http::heard;
use leasehold_fence::{Error, Kept, Once};

use crate::proxy::{Place, Proxy, Service};
use crate::way::{Heard, Way};

/// Whether the way leads through the fence.
pub struct Proxied {
    pub fenced: bool,
    service: Service,
    now: Mutex<Option<(Place, Proxy)>>,
}

impl Proxied {
    pub fn new(fenced: bool) -> Self {
        Self { fenced, service: Service::start(), now: Mutex::new(None) }
    }

    fn log(&self) -> Result<Log, Error> {
        let path = self.now.lock().expect("whole").as_ref().expect("it is fresh").0.marks();
        Log::open(&path, CLUSTER, name(), 0)
    }
}

impl Subject for Proxied {
    type Writer = Caller;

    async fn fresh(&self) {
        *self.now.lock().expect("whole") = None;
        self.service.way.get("/ghost/reset").await;
        let place = Place::new(&["--settle", "2s", "--patience", "10s"]);
        let proxy = place.start(&self.service.address);
        *self.now.lock().expect("whole") = Some((place, proxy));
    }

    async fn writer(&self) -> Caller {
        let now = self.now.lock().expect("whole");
        let fence = &now.as_ref().expect("it is fresh").1;
        Caller(Way::to(if self.fenced { &fence.address } else { &self.service.address }))
    }

    async fn applied(&self) -> Vec<Applied> {
        let all = self.service.ghost().await.into_iter();
        let number = |number| Number::new(number).expect("a number");
        all.map(|(n, value)| Applied { number: number(n), value }).filter(|one| !one.value.is_empty()).collect()
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

    async fn make_strict(&self) -> Result<bool, Error> {
        self.log()?.strict(true).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.log()?.adopt(incarnation).map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        let path = self.now.lock().expect("whole").as_ref().expect("it is fresh").0.marks();
        Log::survey(&path).map(Some)
    }

    async fn crash(&self) -> bool {
        let mut now = self.now.lock().expect("whole");
        let (place, mut proxy) = now.take().expect("it is fresh");
        proxy.process.kill();
        let proxy = place.start(&self.service.address);
        *now = Some((place, proxy));
        true
    }
}

pub struct Caller(Way);

impl Caller {
    async fn asks(&self, path: &str, token: &str, sequence: Option<u64>, body: &str) -> Result<Heard, Error> {
        let broke = || Error::Storage("the connection broke".into());
        let mut request = self.0.asks("POST", path);
        request = if token.is_empty() { request } else { request.header("lease-token", token) };
        if let Some(sequence) = sequence {
            request = request.header("lease-sequence", sequence.to_string());
        }
        let answer = self.0.send(request, body).await.ok_or_else(broke)?;
        match answer.status.is_success() {
            true => Ok(answer),
            false => Err(heard(&answer.body).unwrap_or_else(broke)),
        }
    }
}

impl Writer for Caller {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.asks("/-/claim", token, None, "").await?;
        Ok(Token::parse(token).expect("it was admitted").number)
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.asks("/now", token, None, value).await.map(drop)
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        let answer = self.asks("/now", token, Some(sequence), value).await?;
        let before = answer.headers.get("lease-applied").and_then(|last| last.to_str().ok()?.parse().ok());
        Ok(Some(before.map_or(Once::Applied, |last| Once::AlreadyApplied { last })))
    }
}
