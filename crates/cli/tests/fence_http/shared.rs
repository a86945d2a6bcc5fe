//! Children that end when their parent does, however that ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::support::PATIENCE;

/// The word by which a child knows that it becomes another program.
pub const PART: &str = "become";

/// Ends with its parent, and becomes the program that is named.
pub fn become_other(words: &[String]) {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel knows the signal");
    let (program, args) = words.split_first().expect("a program is named");
    panic!("{program}: {}", Command::new(program).args(args).exec());
}

/// A process of ours, and what it says.
pub struct Process {
    child: Child,
    says: Mutex<Receiver<String>>,
    pub said: Vec<String>,
}

impl Process {
    /// Starts a program whose words come on standard error, or on standard output if it is this one.
    pub fn start(program: &str, args: &[String], on_output: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(PART).arg(program).args(args).stdin(Stdio::piped());
        command.env_remove("LEASEHOLD_ADDR").env_remove("NOTIFY_SOCKET").env_remove("LEASEHOLD_LOG_LEVEL");
        let (out, err) = if on_output { (Stdio::piped(), Stdio::inherit()) } else { (Stdio::null(), Stdio::piped()) };
        let mut child = command.stdout(out).stderr(err).spawn().expect("it starts");
        let speaks: Box<dyn Read + Send> = match (child.stdout.take(), child.stderr.take()) {
            (Some(out), _) => Box::new(out),
            (_, Some(err)) => Box::new(err),
            _ => unreachable!("one of them is piped"),
        };
        let (tell, says) = channel();
        std::thread::spawn(move || {
            BufReader::new(speaks).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Self { child, says: Mutex::new(says), said: Vec::new() }
    }

    /// The next line it says; none when it has ended.
    pub fn says(&mut self) -> Option<String> {
        let line = self.says.get_mut().expect("whole").recv_timeout(PATIENCE).ok()?;
        self.said.push(line.clone());
        Some(line)
    }

    /// What stands behind these words in the next line that has them.
    #[track_caller]
    pub fn tells(&mut self, words: &str) -> String {
        loop {
            let line = self.says().unwrap_or_else(|| panic!("it never said {words:?}: {:?}", self.said));
            if let Some((_, rest)) = line.split_once(words) {
                return rest.to_owned();
            }
        }
    }

    pub fn order(&mut self, what: &str) {
        use std::io::Write;
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{what}").expect("it listens");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is our child");
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// How it ended, and all that it said.
    pub fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let code = self.child.wait().expect("it is our child").code();
        while self.says().is_some() {}
        (code, std::mem::take(&mut self.said))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; nobody is left behind either way.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
