//! A data directory put back to an earlier day behind the server's back: no number comes twice, and a newer token tells.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use leasehold_core::token::{Number, Token};
use leasehold_wire::headers::TOKEN_SEEN;
use leasehold_wire::v1;
use tonic::Request;

use crate::history::History;
use crate::link::{Calls, Told, connect, held, told, within};
use crate::server::{Server, alone, depth};

/// The files of a directory as they are now.
fn copy(data: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(data).expect("the directory is there").map(|entry| entry.expect("it can be read"));
    entries.map(|entry| (entry.file_name().into_string().expect("plain names"), read(&entry.path()))).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Puts a directory back in place, so that nothing but its contents tells.
fn put_back(data: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for name in copy(data).keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(data.join(name)).expect("it was there");
    }
    for (name, bytes) in files {
        fs::write(data.join(name), bytes).expect("there is room");
    }
}

struct Asking<'a> {
    calls: Calls,
    history: &'a History,
    asked: &'a mut u64,
}

impl Asking<'_> {
    /// Takes new names, one after the other; each number is new and above all that were acked before.
    async fn take(&mut self, life: &str, names: usize) -> Vec<v1::Grant> {
        let mut grants = Vec::new();
        for name in 0..names {
            let resource = format!("{life}/{name}");
            *self.asked += 1;
            let floor = self.history.floor();
            let grant = match self.acquire(&resource).await {
                Told::Granted(grant) => *grant,
                other => panic!("{resource}: {other:?}"),
            };
            self.history.granted(&resource, &(life.to_owned(), *self.asked), grant.token_number, floor);
            grants.push(v1::Grant { resource, ..grant });
        }
        grants
    }

    async fn acquire(&mut self, resource: &str) -> Told {
        let holder = "holder".into();
        let ask = v1::Acquire { resource: resource.into(), holder, ttl_ms: Some(600_000), ..Default::default() };
        told(within(self.calls.acquire(ask)).await, |grant| Told::Granted(Box::new(grant))).expect("it serves")
    }

    async fn renew(&mut self, grant: &v1::Grant, seen: Option<&str>) -> Told {
        let ask = v1::Renew { held: Some(held(&grant.resource, &grant.token)), ..Default::default() };
        let mut request = Request::new(ask);
        if let Some(seen) = seen {
            request.metadata_mut().insert(TOKEN_SEEN, seen.parse().expect("plain text"));
        }
        told(within(self.calls.renew(request)).await, |current| Told::Current(current.token_number)).expect("it serves")
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// T4: the clock lifts the numbers above everything that the lost life gave out.
#[test]
fn a_directory_put_back_issues_no_number_twice() {
    let _alone = alone();
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    let history = History::default();
    let mut asked = 0;
    for round in 0..depth(1, 2, 20) {
        for (when, live) in [("stopped", false), ("serving", true)] {
            runtime().block_on(async {
                let life = |name: &str| format!("{round}/{when}/{name}");
                let server = Server::start(&data);
                let calls = connect(&server.address).await.expect("it serves");
                let mut asking = Asking { calls, history: &history, asked: &mut asked };
                let kept = asking.take(&life("kept"), 20).await;
                let (server, before) = if live {
                    let before = copy(&data);
                    (server, before)
                } else {
                    server.stop();
                    let before = copy(&data);
                    (Server::start(&data), before)
                };
                asking.calls = connect(&server.address).await.expect("it serves");
                let lost = asking.take(&life("lost"), 20).await;
                drop(server);
                put_back(&data, &before);

                let server = Server::start(&data);
                asking.calls = connect(&server.address).await.expect("it serves");
                asking.take(&life("after"), 20).await;
                for grant in &kept {
                    assert_eq!(asking.renew(grant, None).await, Told::Current(grant.token_number));
                }
                // The clock was right, so the lost life's tokens lie below; they are not known, and nobody is alarmed.
                for grant in &lost {
                    assert_eq!(asking.renew(grant, None).await, Told::refused("NOT_CURRENT", "unknown"));
                }
                asking.take(&life("after-that"), 5).await;
                server.stop();
            });
        }
    }
}

/// The token that the same lease would have if the clock had been ahead by so many milliseconds.
fn ahead(token: &str, ms: u64) -> Token {
    let token = Token::parse(token).expect("a token of the server");
    Token { number: Number::new(token.number.get() + (ms << 22)).expect("below the end of numbers"), ..token }
}

#[test]
fn a_token_from_a_lost_life_stops_the_granting_and_is_remembered_over_a_crash() {
    let _alone = alone();
    const HOUR: u64 = 3_600_000;
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    let history = History::default();
    let mut asked = 0;
    runtime().block_on(async {
        let mut server = Server::start(&data);
        let calls = connect(&server.address).await.expect("it serves");
        let mut asking = Asking { calls, history: &history, asked: &mut asked };
        let kept = asking.take("kept", 1).await.remove(0);
        // Further ahead than clocks explain: refused, and nothing stops.
        let never = ahead(&kept.token, 48 * HOUR).to_string();
        assert_eq!(asking.renew(&kept, Some(&never)).await, Told::refused("TOKEN_IMPLAUSIBLE", ""));
        asking.take("not-impressed", 1).await;
        // What a life with a clock an hour ahead would have given out, before directory and clock were put back.
        let newer = ahead(&kept.token, HOUR);
        assert_eq!(asking.renew(&kept, Some(&newer.to_string())).await, Told::Current(kept.token_number));
        let Told::Refused(code, _) = asking.acquire("wanted").await else { panic!("it goes on granting (T9)") };
        assert_eq!(code, "ROLLED_BACK");
        server.kill();

        let server = Server::start(&data);
        asking.calls = connect(&server.address).await.expect("it serves");
        let Told::Refused(code, _) = asking.acquire("wanted").await else { panic!("it forgot (T9)") };
        assert_eq!(code, "ROLLED_BACK");
        let status = within(asking.calls.status(v1::StatusRequest {})).await.expect("it serves").into_inner();
        assert!(status.rolled_back && status.quarantine_ms.is_some_and(|ms| ms > 0), "{status:?}");
        assert_eq!(asking.renew(&kept, None).await, Told::Current(kept.token_number), "what is held goes on");
        let waive = v1::WaiveQuarantine { why: "the test knows why".into() };
        within(asking.calls.waive_quarantine(waive)).await.expect("waived in writing");
        let granted = asking.take("after", 1).await.remove(0);
        assert!(granted.token_number > newer.number.get(), "above everything that was shown (T9)");
        server.stop();
    });
}
