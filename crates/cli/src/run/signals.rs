//! Signals that the wrapper forwards to its command.

use std::sync::Arc;

use rustix::process::Signal;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use tokio::sync::mpsc::{Receiver, channel};

/// Forwarded signals, and whether each ends a wrapper whose command has not started.
const FORWARDED: [(Signal, bool); 6] = [
    (Signal::HUP, true),
    (Signal::INT, true),
    (Signal::QUIT, true),
    (Signal::TERM, true),
    (Signal::USR1, false),
    (Signal::USR2, false),
];

/// SI_KERNEL: the sender of a signal that a key at the terminal caused.
const KERNEL: i32 = 0x80;
/// Maximum number of queued signals; the kernel itself keeps one of each.
const QUEUE_LIMIT: usize = 16;

/// Stream of signals to this process.
pub struct ForwardedSignals(Receiver<ReceivedSignal>);

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    signal: Signal,
    /// Whether the kernel sent it, and not a process.
    kernel: bool,
}

impl ForwardedSignals {
    /// Starts listening. A signal that the parent set to be ignored (as `nohup` does) stays ignored, also for the command.
    pub fn listen() -> std::io::Result<Self> {
        let mut infos = SignalsInfo::<WithRawSiginfo>::new(not_ignored())?;
        let (sender, receiver) = channel(QUEUE_LIMIT);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for info in infos.forever() {
                let signal =
                    FORWARDED.iter().map(|(signal, _)| *signal).find(|signal| signal.as_raw() == info.si_signo);
                let received = signal.map(|signal| ReceivedSignal { signal, kernel: info.si_code == KERNEL });
                if received.is_some_and(|received| sender.blocking_send(received).is_err()) {
                    // The receiver is gone.
                    return;
                }
            }
        })?;
        Ok(Self(receiver))
    }

    /// Waits for the next signal. Cancel-safe.
    pub async fn next(&mut self) -> ReceivedSignal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Waits for the next signal that ends a wrapper whose command has not started.
    pub async fn next_ending(&mut self) -> ReceivedSignal {
        loop {
            let signal = self.next().await;
            if signal.is_ending() {
                return signal;
            }
        }
    }
}

impl ReceivedSignal {
    pub fn number(self) -> i32 {
        self.signal.as_raw()
    }

    /// Exit code of a process that this signal ended.
    pub fn exit(self) -> u8 {
        u8::try_from(128 + self.number()).unwrap_or(u8::MAX)
    }

    fn is_ending(self) -> bool {
        FORWARDED.iter().any(|(signal, ends)| *signal == self.signal && *ends)
    }

    /// Whether it makes a leader resign. All other signals are forwarded.
    pub fn resigns(self) -> bool {
        [Signal::INT, Signal::TERM].contains(&self.signal)
    }

    /// Whether the command has received it already: the terminal signals every process of the foreground group. A signal that
    /// a process sends reaches the wrapper alone.
    pub fn is_from_terminal(self) -> bool {
        self.kernel && [Signal::INT, Signal::QUIT].contains(&self.signal)
    }
}

/// Lets this process survive every forwarded signal, and passes none on. A signal that was ignored stays ignored: a handler
/// would be reset to the default action in the command.
pub fn survive() -> std::io::Result<()> {
    for raw in not_ignored() {
        signal_hook::flag::register(raw, Arc::default())?;
    }
    Ok(())
}

/// Numbers of the forwarded signals that this process was not started to ignore.
fn not_ignored() -> impl Iterator<Item = i32> {
    let ignored = ignored();
    FORWARDED.iter().map(|(signal, _)| signal.as_raw()).filter(move |raw| ignored & 1 << (raw - 1) == 0)
}

/// Bit mask of the signals that this process was started to ignore.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
