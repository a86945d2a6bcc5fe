//! A program in a terminal of its own, as its controlling terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use leasehold_testkit::process::TestProcess;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::TEST_TIMEOUT;

/// A program and its terminal.
pub struct PseudoTerminal {
    process: TestProcess,
    master: File,
    output: Arc<(Mutex<String>, Condvar)>,
}

impl PseudoTerminal {
    /// Starts a command in a terminal of this size.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("the terminal is ours");
        unlockpt(&master).expect("the terminal is ours");
        set_size(&master, columns, rows);
        let name = ptsname(&master, Vec::new()).expect("a name");
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let side = || OpenOptions::new().read(true).write(true).open(path).expect("the other side");
        // The program leads a session, so that Ctrl-C of this terminal reaches it.
        let mut started = Command::new("setsid");
        started.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => started.env(name, value),
                None => started.env_remove(name),
            };
        }
        let streams = started.stdin(Stdio::from(side())).stdout(Stdio::from(side())).stderr(Stdio::from(side()));
        let process = TestProcess::spawn(streams).expect("setsid starts");
        drop(started);
        let output = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (mut reader, shared) =
            (File::from(master.as_fd().try_clone_to_owned().expect("a descriptor")), output.clone());
        // The thread ends when the last program has closed the terminal.
        std::thread::spawn(move || {
            let (mut bytes, mut pending) = ([0; 4_096], Vec::new());
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                pending.extend_from_slice(&bytes[..count]);
                let valid = std::str::from_utf8(&pending).map_or_else(|error| error.valid_up_to(), str::len);
                let text = String::from_utf8_lossy(&pending.drain(..valid).collect::<Vec<_>>()).into_owned();
                shared.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                shared.1.notify_all();
            }
        });
        Self { process, master: master.into(), output }
    }

    /// Types text.
    pub fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("the terminal is open");
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.master, columns, rows);
    }

    /// Everything that was printed.
    pub fn output(&self) -> String {
        self.output.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until what was printed after the first `from` bytes satisfies the condition. Returns where the output ends then.
    #[track_caller]
    pub fn wait_for(&self, from: usize, what: &str, condition: impl Fn(&str) -> bool) -> usize {
        let output = self.output.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.output.1.wait_timeout_while(output, TEST_TIMEOUT, |output| !condition(&output[from..]));
        let (output, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(condition(&output[from..]), "no {what}: {:?}", &output[from..]);
        output.len()
    }

    /// Waits for text.
    #[track_caller]
    pub fn wait_for_text(&self, from: usize, text: &str) -> usize {
        self.wait_for(from, text, |output| output.contains(text))
    }

    /// Waits for the end of the program.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> Option<i32> {
        self.process.wait().code()
    }
}

fn set_size(terminal: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}
