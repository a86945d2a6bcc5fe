//! Signals that reach the wrapper and are meant for its command.

use rustix::process::Signal;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use tokio::sync::mpsc::{Receiver, channel};

/// What is passed on, and whether it ends a wrapper that has no command yet.
const PASSED: [(Signal, bool); 6] = [
    (Signal::HUP, true),
    (Signal::INT, true),
    (Signal::QUIT, true),
    (Signal::TERM, true),
    (Signal::USR1, false),
    (Signal::USR2, false),
];

/// Who sent a signal that a terminal's keys make: the kernel (SI_KERNEL).
const KERNEL: i32 = 0x80;
/// Signals that may wait to be passed on; the kernel itself keeps one of each.
const WAITING: usize = 16;

/// The signals of this process, from now on.
pub struct Signals(Receiver<Came>);

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    signal: Signal,
    /// Whether the kernel sent it.
    kernel: bool,
}

impl Signals {
    /// Listens. A signal that the caller ignores (as `nohup` does) stays ignored, also for the command.
    pub fn listen() -> std::io::Result<Self> {
        let ignored = ignored();
        let heard = PASSED.iter().map(|(signal, _)| signal.as_raw()).filter(|raw| ignored & 1 << (raw - 1) == 0);
        let mut listening = SignalsInfo::<WithRawSiginfo>::new(heard)?;
        let (tell, came) = channel(WAITING);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for info in listening.forever() {
                let signal = PASSED.iter().map(|(signal, _)| *signal).find(|signal| signal.as_raw() == info.si_signo);
                let told = signal.map(|signal| Came { signal, kernel: info.si_code == KERNEL });
                if told.is_some_and(|told| tell.blocking_send(told).is_err()) {
                    // Nobody listens any more.
                    return;
                }
            }
        })?;
        Ok(Self(came))
    }

    /// The next one. Nothing is lost if this is dropped before it returns.
    pub async fn next(&mut self) -> Came {
        match self.0.recv().await {
            Some(came) => came,
            None => std::future::pending().await,
        }
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

    /// Whether the command has it already: what is typed at a terminal goes to every process in its foreground. What a
    /// process sends goes to the wrapper alone.
    pub fn typed(self) -> bool {
        self.kernel && [Signal::INT, Signal::QUIT].contains(&self.signal)
    }
}

/// The signals that this process was started to ignore, a bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
