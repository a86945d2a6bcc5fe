//! A writer is killed before or after any of its requests: mark and effect are both stored, or neither is.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use leasehold_fence::conformance::{Subject, token};
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Child;
use crate::moto::server;
use crate::proxy::{FaultyProxy, ProxyAction};
use crate::scenarios::block_on;
use crate::subject::CloudSubject;
use crate::target::{KINDS, Target};

/// When the writer is killed, relative to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The request never reached the server.
    Before,
    /// The request was applied, and the response was lost.
    After,
}

pub fn between_requests() {
    for kind in KINDS {
        for when in [When::Before, When::After] {
            let mut requests = 0;
            while killed_at(kind, requests, when) {
                requests += 1;
            }
            let min = if kind == "s3" { 9 } else { 4 };
            assert!(requests >= min, "{kind}: a claim and two writes make at min {min} requests, not {requests}");
        }
    }
}

/// Kills a writer at the given request. False if the writer completed earlier.
fn killed_at(kind: &'static str, request: usize, when: When) -> bool {
    let subject = CloudSubject::new(kind);
    block_on(subject.fresh());
    let (send_pid, pid) = mpsc::channel::<Pid>();
    let (mut seen, mut pid) = (0, Some(pid));
    let killed = Arc::new(AtomicBool::new(false));
    let note = killed.clone();
    let proxy = FaultyProxy::start(server().address, move |_| {
        seen += 1;
        if seen != request + 1 {
            return ProxyAction::Forward;
        }
        let (pid, note) = (pid.take().expect("one writer"), note.clone());
        let kill = Box::new(move || {
            let writer = pid.recv().expect("the test sends the process id");
            note.store(true, Ordering::SeqCst);
            kill_process(writer, Signal::KILL).expect("it waits for the response");
        });
        if when == When::Before { ProxyAction::LoseRequest(kill) } else { ProxyAction::LoseResponse(kill) }
    });
    let at = format!("{}/{}", proxy.url(), subject.address().name);
    let mut writer = Child::start("twice", kind, Path::new(&at), 33);
    let pid = Pid::from_raw(i32::try_from(writer.id()).expect("a process id")).expect("not zero");
    // Fails if the writer is never killed.
    send_pid.send(pid).ok();
    let output: Vec<String> = std::iter::from_fn(|| writer.next_line()).collect();
    assert!(output.iter().all(|line| line == "written"), "{kind} {request} {when:?}: {output:?}");
    verify(&subject, &output, &format!("{kind}, killed {when:?} request {request}"));
    killed.load(Ordering::SeqCst)
}

fn verify(subject: &CloudSubject, output: &[String], how: &str) {
    let log = block_on(subject.log());
    let expected = [(33, "first".to_owned()), (33, "second".to_owned())];
    assert!(expected.starts_with(&log), "{how}: complete and in order: {log:?}");
    let acked = output.len().saturating_sub(1);
    assert!(log.len() == acked || log.len() == acked + 1, "{how}: {acked} acknowledged, {} stored", log.len());
    let mark = block_on(subject.mark()).expect(how).map(|mark| mark.get());
    if !log.is_empty() || !output.is_empty() {
        assert_eq!(mark, Some(33), "{how}: the mark is stored with the effect, and after an acknowledged claim");
    }

    let new = block_on(subject.open());
    block_on(new.claim(&token(34))).expect(how);
    assert_eq!(block_on(subject.log()), log, "{how}: the content is unchanged after the claim");
    assert_eq!(block_on(new.write(&token(33), "late")).expect_err(how).code(), "STALE_TOKEN");
    block_on(new.write(&token(34), "next")).expect(how);
    assert_eq!(block_on(subject.log()), [&log[..], &[(34, "next".to_owned())]].concat(), "{how}");
    if let Target::Objects(fence) = new {
        block_on(fence.delete_orphans()).expect(how);
        assert!(block_on(fence.orphans()).expect(how).is_empty(), "{how}: no objects of the dead writer remain");
        assert_eq!(block_on(subject.log()).len(), log.len() + 1, "{how}: no other object was deleted");
    }
}
