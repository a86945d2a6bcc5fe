//! A pseudo-terminal for programs that draw: keys go in, and what a person would see comes out.

mod screen;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

pub use screen::Screen;

use crate::process::{TIMEOUT, TestProcess};

/// A program on a pseudo-terminal of its own. It is killed on drop.
#[derive(Debug)]
pub struct TestTerminal {
    process: TestProcess,
    /// The side of the person.
    keys: File,
    /// The side of the program, which stays open so that its settings can be read.
    line: OwnedFd,
    screen: Arc<Mutex<Screen>>,
}

impl TestTerminal {
    /// Starts a program on a terminal of this size. The command becomes the leader of a session whose terminal it is.
    pub fn start(program: &str, args: &[&str], env: &[(&str, &str)], columns: u16, rows: u16) -> io::Result<Self> {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&keys)?;
        unlockpt(&keys)?;
        let name = ptsname(&keys, Vec::new())?;
        let line = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        set_size(&line, columns, rows)?;
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program).args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(env.iter().copied());
        let end = || line.try_clone().map(Stdio::from);
        let process = TestProcess::spawn(command.stdin(end()?).stdout(end()?).stderr(end()?))?;
        // The command holds its copies of the descriptors until it is dropped.
        drop(command);
        let screen = Arc::new(Mutex::new(Screen::new(columns, rows)));
        let (mut output, shown) = (File::from(keys.try_clone()?), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).write(&bytes[..count]);
            }
        });
        Ok(Self { process, keys: File::from(keys), line, screen })
    }

    /// Presses keys.
    #[track_caller]
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal is open");
    }

    /// Changes the size of the terminal, which the program is notified of.
    #[track_caller]
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.screen().resize(columns, rows);
        set_size(&self.line, columns, rows).expect("the terminal is open");
    }

    /// What is shown.
    pub fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the screen meets a condition.
    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Screen) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !condition(&self.screen()) {
            assert!(Instant::now() < deadline, "{what} did not happen:\n{}", self.screen().text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the screen contains a text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.text().contains(text));
    }

    /// Waits until the screen no longer contains a text.
    #[track_caller]
    pub fn wait_until_gone(&self, text: &str) {
        self.wait_until(&format!("the end of {text}"), |screen| !screen.text().contains(text));
    }

    /// Sends a signal to the program.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("the program runs");
    }

    /// Waits for the end of the program.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// Whether the terminal echoes and edits lines, as a shell expects it.
    pub fn is_restored(&self) -> bool {
        let modes = tcgetattr(&self.line).map(|settings| settings.local_modes);
        modes.is_ok_and(|modes| modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG))
    }
}

fn set_size(terminal: &impl AsFd, columns: u16, rows: u16) -> io::Result<()> {
    Ok(tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?)
}
