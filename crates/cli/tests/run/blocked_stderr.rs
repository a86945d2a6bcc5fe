//! Standard error that is not read: messages are dropped, and neither the command nor the lease waits for it.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::harness::{Fixture, WrapperProcess, is_alive};
use crate::support::TEST_TIMEOUT;

/// More messages than fit into a pipe.
const MANY: usize = 5_000;

#[test]
fn unread_messages_affect_neither_the_command_nor_the_lease() {
    let fixture = Fixture::new();
    let script =
        "trap 'echo got USR1' USR1; echo child $$; echo socket $LEASEHOLD_SOCKET; until read line; do :; done; exit 5";
    let mut wrapped = WrapperProcess::with_blocked_stderr(
        &mut fixture.command(&["run", "a", "--ttl", "10s", "--", "sh", "-c", script]),
    );
    let child = wrapped.wait_pid("child");
    let socket = wrapped.wait_line("socket");
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.set_write_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    for _ in 0..MANY {
        sender.send_to(b"PROGRESS=nonsense", &socket).expect("the wrapper still reads notifications");
    }
    wrapped.signal(Signal::USR1);
    wrapped.wait_line("got USR1");
    assert!(is_alive(child));
    wrapped.write_stdin("end\n");
    assert_eq!(wrapped.wait_exit().exit, 5);
    assert_eq!(fixture.start(&["run", "a", "--no-wait"], "true").wait_exit().exit, 0, "the lease was released");
    fixture.assert_clean();
}

#[test]
fn the_lease_of_a_command_that_cannot_be_started_is_released_although_stderr_is_blocked() {
    let fixture = Fixture::new();
    // The pipe is full before the wrapper starts.
    let fills = "head -c 65536 /dev/zero >&2; exec \"$@\"";
    let wrapped = WrapperProcess::with_blocked_stderr(
        &mut fixture.started_by(&["sh", "-c", fills, "sh"], &["run", "a", "--", "no-such-command"]),
    );
    let next = fixture.start(&["run", "a", "--wait", "60s"], "echo began");
    next.wait_line("began");
    assert_eq!((next.wait_exit().exit, wrapped.wait_exit().exit), (0, 127));
    fixture.assert_clean();
}
