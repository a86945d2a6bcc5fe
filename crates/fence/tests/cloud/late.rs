//! A holder that is really stopped, with its write on the way; and answers that are lost on theirs.

use std::path::Path;
use std::sync::mpsc;

use leasehold_fence::conformance::{Subject, token};

use crate::child::Child;
use crate::moto::server;
use crate::stories::block_on;
use crate::target::{KINDS, Place, Target};
use crate::way::{Deed, Way};
use crate::world::World;

/// Whether this is the one request that makes a write count.
pub fn counts(kind: &str, head: &str) -> bool {
    match kind {
        "s3" => head.starts_with("PUT ") && head.contains("leasehold.manifest"),
        _ => head.to_ascii_lowercase().contains("x-amz-target: dynamodb_20120810.transactwriteitems"),
    }
}

pub fn in_flight() {
    for kind in KINDS {
        let world = World::new(kind);
        block_on(world.fresh());
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let mut released = Some(released);
        let mut seen = 0;
        let way = Way::to(server().address, move |head| {
            seen += usize::from(counts(kind, head));
            // At S3 the first such request is the claim's.
            if counts(kind, head) && seen == if kind == "s3" { 2 } else { 1 } {
                let (held, released) = (held.clone(), released.take().expect("one write"));
                return Deed::Before(Box::new(move || {
                    held.send(()).expect("the test waits");
                    released.recv().expect("the test goes on");
                }));
            }
            Deed::Pass
        });
        let at = format!("{}/{}", way.url(), world.place().name);
        let mut old = Child::start("late", kind, Path::new(&at), 33);
        assert_eq!(old.says().as_deref(), Some("written"), "{kind}: it claimed");
        old.order("late");
        is_held.recv().expect("its write is on the way");
        old.stop();

        let new = block_on(world.open());
        block_on(new.claim(&token(34))).expect("the successor claims, and waits for nobody");
        block_on(new.write(&token(34), "second")).expect("and writes");
        release.send(()).expect("the write of the stopped holder arrives now");
        old.go_on();
        let answer = old.says().expect("it tells what came of it");
        assert!(
            answer.starts_with("STALE_TOKEN") && answer.contains("33") && answer.contains("34"),
            "{kind}: {answer}"
        );
        assert_eq!(block_on(world.log()), [(34, "second".to_owned())], "{kind}");
    }
}

/// A way on which the answer to the first write that counts is lost, and `then` happens before anybody notices.
fn answer_lost(kind: &'static str, before: usize, then: impl FnOnce() + Send + 'static) -> Way {
    let (mut then, mut seen) = (Some(Box::new(then) as Box<dyn FnOnce() + Send>), 0);
    Way::to(server().address, move |head| {
        seen += usize::from(counts(kind, head));
        if counts(kind, head) && seen == before + 1 {
            return Deed::AnswerLost(then.take().expect("one write"));
        }
        Deed::Pass
    })
}

pub fn answers_lost() {
    for kind in KINDS {
        let world = World::new(kind);
        block_on(world.fresh());
        let way = answer_lost(kind, 0, || {});
        let target = block_on(Place { url: way.url(), ..world.place() }.open());
        block_on(target.write(&token(33), "once")).expect("it was applied, and the writer found out");
        block_on(target.write(&token(33), "then")).expect("and goes on");
        let log = block_on(world.log());
        assert_eq!(log, [(33, "once".to_owned()), (33, "then".to_owned())], "{kind}: applied once");
    }
}

pub fn requests_lost() {
    for kind in KINDS {
        let world = World::new(kind);
        block_on(world.fresh());
        let mut lost = 0;
        let way = Way::to(server().address, move |head| {
            if counts(kind, head) && lost < 3 {
                lost += 1;
                return Deed::LoseAfter(Box::new(|| {}));
            }
            Deed::Pass
        });
        let target = block_on(Place { url: way.url(), ..world.place() }.open());
        block_on(target.write(&token(33), "once")).expect("asked again until it was applied");
        assert_eq!(block_on(world.log()), [(33, "once".to_owned())], "{kind}");
    }
}

/// At S3 the manifest names the last writes, so also one that was overtaken before its answer came is found.
pub fn overtaken() {
    let world = World::new("s3");
    block_on(world.fresh());
    let place = world.place();
    let way = answer_lost("s3", 0, move || {
        let Target::Objects(new) = block_on(place.open()) else { unreachable!("it is S3's world") };
        block_on(new.claim(&token(34))).expect("a successor claims between the write and its answer");
    });
    let target = block_on(Place { url: way.url(), ..world.place() }.open());
    block_on(target.write(&token(33), "before")).expect("it was applied before the claim, and is told so");
    assert_eq!(block_on(target.write(&token(33), "after")).expect_err("a successor was here").code(), "STALE_TOKEN");
    assert_eq!(block_on(world.log()), [(33, "before".to_owned())]);
}
