//! Writes in flight of a stopped holder, and lost requests and responses.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use leasehold_fence::conformance::{Subject, token};

use crate::child::Child;
use crate::moto::server;
use crate::proxy::{FaultyProxy, ProxyAction, calls};
use crate::scenarios::block_on;
use crate::subject::CloudSubject;
use crate::target::{KINDS, Target, TargetAddress};

/// Whether this is the request that makes a write effective.
pub fn takes_effect(kind: &str, head: &str) -> bool {
    match kind {
        "s3" => head.starts_with("PUT ") && head.contains("leasehold.manifest"),
        _ => calls(head, "TransactWriteItems"),
    }
}

pub fn in_flight() {
    for kind in KINDS {
        let subject = CloudSubject::new(kind);
        block_on(subject.fresh());
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let mut released = Some(released);
        let mut seen = 0;
        let proxy = FaultyProxy::start(server().address, move |head| {
            seen += usize::from(takes_effect(kind, head));
            // With S3 the first such request is the claim.
            if takes_effect(kind, head) && seen == if kind == "s3" { 2 } else { 1 } {
                let (held, released) = (held.clone(), released.take().expect("one write"));
                return ProxyAction::ForwardAfter(Box::new(move || {
                    held.send(()).expect("the test waits");
                    released.recv().expect("the test continues");
                }));
            }
            ProxyAction::Forward
        });
        let at = format!("{}/{}", proxy.url(), subject.address().name);
        let mut old = Child::start("on_command", kind, Path::new(&at), 33);
        assert_eq!(old.next_line().as_deref(), Some("written"), "{kind}: the claim");
        old.send("late");
        is_held.recv().expect("its write is in flight");
        old.stop();

        let new = block_on(subject.open());
        block_on(new.claim(&token(34))).expect("the successor's claim, without waiting");
        block_on(new.write(&token(34), "second")).expect("its write");
        release.send(()).expect("the write of the stopped holder arrives");
        old.resume();
        let result = old.next_line().expect("a result");
        assert!(
            result.starts_with("STALE_TOKEN") && result.contains("33") && result.contains("34"),
            "{kind}: {result}"
        );
        assert_eq!(block_on(subject.log()), [(34, "second".to_owned())], "{kind}");
    }
}

/// A proxy that loses the response to one write, and calls `then` before it closes the connection.
fn lose_response(kind: &'static str, before: usize, then: impl FnOnce() + Send + 'static) -> FaultyProxy {
    let (mut then, mut seen) = (Some(Box::new(then) as Box<dyn FnOnce() + Send>), 0);
    FaultyProxy::start(server().address, move |head| {
        seen += usize::from(takes_effect(kind, head));
        if takes_effect(kind, head) && seen == before + 1 {
            return ProxyAction::LoseResponse(then.take().expect("one write"));
        }
        ProxyAction::Forward
    })
}

pub fn lost_responses() {
    for kind in KINDS {
        let subject = CloudSubject::new(kind);
        block_on(subject.fresh());
        let proxy = lose_response(kind, 0, || {});
        let target = block_on(TargetAddress { url: proxy.url(), ..subject.address() }.open());
        block_on(target.write(&token(33), "once")).expect("applied, and the writer detects it");
        block_on(target.write(&token(33), "then")).expect("a second write");
        let log = block_on(subject.log());
        assert_eq!(log, [(33, "once".to_owned()), (33, "then".to_owned())], "{kind}: applied once");
    }
}

pub fn lost_requests() {
    for kind in KINDS {
        let subject = CloudSubject::new(kind);
        block_on(subject.fresh());
        let mut lost = 0;
        let proxy = FaultyProxy::start(server().address, move |head| {
            if takes_effect(kind, head) && lost < 3 {
                lost += 1;
                return ProxyAction::LoseRequest(Box::new(|| {}));
            }
            ProxyAction::Forward
        });
        let target = block_on(TargetAddress { url: proxy.url(), ..subject.address() }.open());
        block_on(target.write(&token(33), "once")).expect("retried until applied");
        assert_eq!(block_on(subject.log()), [(33, "once".to_owned())], "{kind}");
    }
}

/// With S3 the manifest lists the last writes, so a write is found even if a successor claimed before its response.
pub fn overtaken() {
    let subject = CloudSubject::new("s3");
    block_on(subject.fresh());
    let address = subject.address();
    let proxy = lose_response("s3", 0, move || {
        let Target::Objects(new) = block_on(address.open()) else { unreachable!("the subject is S3") };
        block_on(new.claim(&token(34))).expect("a successor's claim between the write and its response");
    });
    let target = block_on(TargetAddress { url: proxy.url(), ..subject.address() }.open());
    block_on(target.write(&token(33), "before")).expect("it was applied before the claim");
    assert_eq!(block_on(target.write(&token(33), "after")).expect_err("a successor has claimed").code(), "STALE_TOKEN");
    assert_eq!(block_on(subject.log()), [(33, "before".to_owned())]);
}

/// A store that accepts requests for the manifest and never replies.
pub fn silent_store() {
    for method in ["GET ", "PUT "] {
        let subject = CloudSubject::new("s3");
        block_on(subject.fresh());
        let proxy = FaultyProxy::start(server().address, move |head| {
            if head.starts_with(method) && head.contains("leasehold.manifest") {
                return ProxyAction::Hang;
            }
            ProxyAction::Forward
        });
        let address = TargetAddress { url: proxy.url(), ..subject.address() };
        let Target::Objects(fence) = block_on(address.open()) else { unreachable!("the subject is S3") };
        let fence = fence.with_claim_timeout(Duration::from_millis(300));
        let claim = async { tokio::time::timeout(Duration::from_secs(60), fence.claim(&token(33))).await };
        let error = block_on(claim).expect("it returns").expect_err("no reply");
        assert_eq!(error.code(), "STORAGE_FAILED", "{method}: {error}");
        assert!(error.to_string().contains("did not reply"), "{method}: {error}");
    }
}
