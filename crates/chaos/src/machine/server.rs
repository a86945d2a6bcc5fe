//! `leasehold serve` as processes: on a file journal or on etcd, under a program that breaks its disk or alone, and always
//! behind the same ways.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use crate::process::{Process, bound};
use crate::proxy::{Upstream, Way};

/// One server.
pub struct Server {
    binary: PathBuf,
    data: PathBuf,
    journal: Option<String>,
    log: PathBuf,
    /// Every way to it, and first of all the one that it tells others.
    pub ways: Vec<Way>,
    /// Its process; none while it is down.
    pub process: Option<Process>,
    /// It was started under something that breaks its disk.
    pub bad_disk: bool,
    told: Option<Receiver<String>>,
    address: Option<String>,
    /// How often it came to listen.
    pub lives: u32,
}

impl Server {
    /// A server that is not started yet.
    pub fn new(binary: &Path, above: &Path, index: usize, journal: Option<String>, ways: Vec<Way>) -> Self {
        Self {
            binary: binary.to_owned(),
            data: above.join(format!("server-{index}")),
            log: above.join(format!("server-{index}.log")),
            journal,
            ways,
            process: None,
            bad_disk: false,
            told: None,
            address: None,
            lives: 0,
        }
    }

    /// Where it keeps what is its own.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Starts it under some other program. It listens when [`Server::look`] says so.
    pub fn begin(&mut self, under: &[String]) -> io::Result<()> {
        self.bad_disk = !under.is_empty();
        let under: Vec<&str> = under.iter().map(String::as_str).collect();
        let mut command = bound("KILL", &under);
        command.arg(&self.binary).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&self.data);
        command.args(["--advertise", &self.ways[0].at.to_string()]);
        if let Some(journal) = &self.journal {
            command.args(["--journal", journal, "--etcd-lease", "2"]);
        }
        let (read, write) = io::pipe()?;
        command.env_remove("NOTIFY_SOCKET").env_remove("LEASEHOLD_LOG_LEVEL").stderr(Stdio::from(write));
        self.process = Some(Process::start(&mut command)?);
        // The pipe ends when the process has: no other end of it is left here.
        drop(command);
        let mut log = File::options().create(true).append(true).open(&self.log)?;
        let (tell, told) = channel();
        self.told = Some(told);
        std::thread::spawn(move || {
            for line in BufReader::new(read).lines().map_while(Result::ok) {
                // Told to whoever reads the log of a run that failed; the run itself does not depend on it.
                let _ = writeln!(log, "{line}");
                let at = line.split("serving on ").nth(1).or_else(|| line.split("standing by on ").nth(1));
                if let Some(address) = at.and_then(|rest| rest.split(',').next()) {
                    let _ = tell.send(address.to_owned());
                }
            }
        });
        Ok(())
    }

    /// Leads the ways to it when it has begun to listen. True if it has ended, by itself or not.
    pub fn look(&mut self) -> bool {
        if let Some(address) = self.told.as_ref().and_then(|told| told.try_iter().last()) {
            self.told = None;
            self.lives += 1;
            self.address = Some(address);
            self.lead_again();
        }
        self.process.as_mut().is_none_or(|process| process.ended().is_some())
    }

    /// Whether it has come to listen in this life.
    pub fn listens(&self) -> bool {
        self.address.is_some()
    }

    /// Nobody is there any more.
    pub fn gone(&mut self) {
        self.process = None;
        self.told = None;
        self.address = None;
        self.lead_again();
    }

    /// Leads every way to where it listens now, if it does.
    pub fn lead_again(&self) {
        let to = self.address.clone().map_or(Upstream::Nowhere, Upstream::Address);
        self.ways.iter().for_each(|way| way.leads_to(to.clone()));
    }
}
