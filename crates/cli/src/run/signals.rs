//! Signals that reach the wrapper and are meant for its command.

use std::fs::File;

use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal as Coming, SignalKind, signal};

/// What is passed on, and whether it ends a wrapper that has no command yet.
const PASSED: [(Signal, bool); 6] = [
    (Signal::HUP, true),
    (Signal::INT, true),
    (Signal::QUIT, true),
    (Signal::TERM, true),
    (Signal::USR1, false),
    (Signal::USR2, false),
];

/// The signals of this process, from now on.
pub struct Signals(Vec<(Signal, Coming)>);

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    signal: Signal,
}

impl Signals {
    /// Listens. A signal that the caller ignores (as `nohup` does) stays ignored, also for the command.
    pub fn listen() -> std::io::Result<Self> {
        let ignored = ignored();
        let heard = PASSED.iter().filter(|(signal, _)| ignored & 1 << (signal.as_raw() - 1) == 0);
        let listen = |(wanted, _): &(Signal, bool)| Ok((*wanted, signal(SignalKind::from_raw(wanted.as_raw()))?));
        heard.map(listen).collect::<Result<_, _>>().map(Self)
    }

    /// The next one.
    pub async fn next(&mut self) -> Came {
        let heard = self.0.iter_mut().map(|(signal, coming)| {
            Box::pin(async move {
                if coming.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
                Came { signal: *signal }
            })
        });
        let heard: Vec<_> = heard.collect();
        if heard.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(heard).await.0
    }

    /// The next one that ends a wrapper without a command.
    pub async fn end(&mut self) -> Came {
        loop {
            let came = self.next().await;
            if came.ends() {
                return came;
            }
        }
    }
}

impl Came {
    pub fn number(self) -> i32 {
        self.signal.as_raw()
    }

    /// What a process that this signal ended leaves.
    pub fn exit(self) -> u8 {
        u8::try_from(128 + self.number()).unwrap_or(u8::MAX)
    }

    /// Whether it asks for an end.
    fn ends(self) -> bool {
        PASSED.iter().any(|(signal, ends)| *signal == self.signal && *ends)
    }

    /// Whether it asks a leader to resign; the others are the command's to understand.
    pub fn resigns(self) -> bool {
        [Signal::INT, Signal::TERM].contains(&self.signal)
    }

    /// Whether the command has it already: what is typed at a terminal goes to every process in its foreground.
    pub fn typed(self) -> bool {
        let key = [Signal::INT, Signal::QUIT].contains(&self.signal);
        key && File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
    }
}

/// The signals that this process was started to ignore, a bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
