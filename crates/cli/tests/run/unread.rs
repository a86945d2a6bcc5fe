//! A standard error that nobody reads: what cannot be said is left out, and nobody waits for it.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::support::PATIENCE;
use crate::wrapped::{World, Wrapped, lives};

/// More than a pipe has room for, a complaint each.
const MANY: usize = 5_000;

#[test]
fn complaints_that_nobody_reads_cost_neither_the_command_nor_the_lease() {
    let world = World::new();
    let script =
        "trap 'echo got USR1' USR1; echo child $$; echo socket $LEASEHOLD_SOCKET; until read line; do :; done; exit 5";
    let mut wrapped = Wrapped::unread(&mut world.command(&["run", "a", "--ttl", "10s", "--", "sh", "-c", script]));
    let child = wrapped.process("child");
    let socket = wrapped.hears("socket");
    let tells = UnixDatagram::unbound().expect("a socket");
    tells.set_write_timeout(Some(PATIENCE)).expect("a socket");
    for _ in 0..MANY {
        tells.send_to(b"PROGRESS=nonsense", &socket).expect("the wrapper goes on taking notices");
    }
    wrapped.signal(Signal::USR1);
    wrapped.hears("got USR1");
    assert!(lives(child));
    wrapped.types("end\n");
    assert_eq!(wrapped.ends().exit, 5);
    assert_eq!(world.begin(&["run", "a", "--no-wait"], "true").ends().exit, 0, "it was given back");
    world.is_empty();
}

#[test]
fn a_command_that_cannot_be_started_gives_its_lease_back_although_nobody_reads_why() {
    let world = World::new();
    // The pipe is full before the wrapper begins.
    let fills = "head -c 65536 /dev/zero >&2; exec \"$@\"";
    let wrapped = Wrapped::unread(&mut world.under(&["sh", "-c", fills, "sh"], &["run", "a", "--", "no-such-command"]));
    let next = world.begin(&["run", "a", "--wait", "60s"], "echo began");
    next.hears("began");
    assert_eq!((next.ends().exit, wrapped.ends().exit), (0, 127));
    world.is_empty();
}
