//! A writer that is killed between any two of its requests: mark and effect are both there, or both are not.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use leasehold_fence::conformance::{Subject, token};
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Child;
use crate::moto::server;
use crate::stories::block_on;
use crate::target::{KINDS, Target};
use crate::way::{Deed, Way};
use crate::world::World;

/// Where the writer is killed, around one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The request never reached the server.
    Before,
    /// It was applied, and its answer never reached the writer.
    After,
}

pub fn between_requests() {
    for kind in KINDS {
        for when in [When::Before, When::After] {
            let mut requests = 0;
            while killed_at(kind, requests, when) {
                requests += 1;
            }
            let least = if kind == "s3" { 9 } else { 4 };
            assert!(requests >= least, "{kind}: a claim and two writes take at least {least} requests, not {requests}");
        }
    }
}

/// Kills a writer at its request of this number. False if it made fewer, and so came to its end.
fn killed_at(kind: &'static str, request: usize, when: When) -> bool {
    let world = World::new(kind);
    block_on(world.fresh());
    let (tell, told) = mpsc::channel::<Pid>();
    let (mut seen, mut told) = (0, Some(told));
    let killed = Arc::new(AtomicBool::new(false));
    let note = killed.clone();
    let way = Way::to(server().address, move |_| {
        seen += 1;
        if seen != request + 1 {
            return Deed::Pass;
        }
        let (told, note) = (told.take().expect("one writer"), note.clone());
        let kill = Box::new(move || {
            let writer = told.recv().expect("the test says who it is");
            note.store(true, Ordering::SeqCst);
            kill_process(writer, Signal::KILL).expect("it waits for its answer");
        });
        if when == When::Before { Deed::LoseAfter(kill) } else { Deed::AnswerLost(kill) }
    });
    let at = format!("{}/{}", way.url(), world.place().name);
    let mut writer = Child::start("once", kind, Path::new(&at), 33);
    let pid = Pid::from_raw(i32::try_from(writer.id()).expect("a process id")).expect("not zero");
    // If it is never killed nobody listens.
    tell.send(pid).ok();
    let said: Vec<String> = std::iter::from_fn(|| writer.says()).collect();
    assert!(said.iter().all(|word| word == "written"), "{kind} {request} {when:?}: {said:?}");
    verify(&world, &said, &format!("{kind}, killed {when:?} request {request}"));
    killed.load(Ordering::SeqCst)
}

fn verify(world: &World, said: &[String], how: &str) {
    let log = block_on(world.log());
    let expected = [(33, "first".to_owned()), (33, "second".to_owned())];
    assert!(expected.starts_with(&log), "{how}: whole, in order: {log:?}");
    let told = said.len().saturating_sub(1);
    assert!(log.len() == told || log.len() == told + 1, "{how}: {told} told, {} kept", log.len());
    let mark = block_on(world.mark()).expect(how).map(|mark| mark.get());
    if !log.is_empty() || !said.is_empty() {
        assert_eq!(mark, Some(33), "{how}: the mark is there with the effect, and after a claim was told");
    }

    let new = block_on(world.open());
    block_on(new.claim(&token(34))).expect(how);
    assert_eq!(block_on(world.log()), log, "{how}: what a successor finds stays");
    assert_eq!(block_on(new.write(&token(33), "late")).expect_err(how).code(), "STALE_TOKEN");
    block_on(new.write(&token(34), "next")).expect(how);
    assert_eq!(block_on(world.log()), [&log[..], &[(34, "next".to_owned())]].concat(), "{how}");
    if let Target::Objects(fence) = new {
        block_on(fence.sweep()).expect(how);
        assert!(block_on(fence.orphans()).expect(how).is_empty(), "{how}: nothing is left of the dead writer");
        assert_eq!(block_on(world.log()).len(), log.len() + 1, "{how}: and nothing else was swept");
    }
}
