//! `leasehold serve` processes, on a file journal or on etcd, optionally under a wrapper that breaks the disk. Clients reach
//! them only through the same links.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use leasehold_testkit::process::{TestProcess, tied_command};
use leasehold_testkit::tcp_proxy::{ProxyUpstream, TcpProxy};

/// A server and the links to it.
pub struct ServerProcess {
    binary: PathBuf,
    data: PathBuf,
    journal: Option<String>,
    log: PathBuf,
    /// All links to the server. It advertises the first one.
    pub links: Vec<TcpProxy>,
    /// The process; `None` while the server is down.
    pub process: Option<TestProcess>,
    /// Whether the process was started under a wrapper that breaks its disk.
    pub bad_disk: bool,
    addresses: Option<Receiver<String>>,
    address: Option<String>,
    /// Number of starts after which it listened.
    pub starts: u32,
}

impl ServerProcess {
    /// A server that is not started yet.
    pub fn new(binary: &Path, dir: &Path, index: usize, journal: Option<String>, links: Vec<TcpProxy>) -> Self {
        Self {
            binary: binary.to_owned(),
            data: dir.join(format!("server-{index}")),
            log: dir.join(format!("server-{index}.log")),
            journal,
            links,
            process: None,
            bad_disk: false,
            addresses: None,
            address: None,
            starts: 0,
        }
    }

    /// Data directory of the server.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Starts the process under a wrapper. [`ServerProcess::poll`] notices when it listens.
    pub fn start(&mut self, wrapper: &[String]) -> io::Result<()> {
        self.bad_disk = !wrapper.is_empty();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let mut command = tied_command("KILL", &wrapper);
        command.arg(&self.binary).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&self.data);
        command.args(["--advertise", &self.links[0].address().to_string()]);
        if let Some(journal) = &self.journal {
            command.args(["--journal", journal, "--etcd-lease", "2"]);
        }
        let (read, write) = io::pipe()?;
        command.env_remove("NOTIFY_SOCKET").env_remove("LEASEHOLD_LOG_LEVEL").stderr(Stdio::from(write));
        // The pipe must end with the process: no other copy of its write end stays open, because the command is dropped.
        self.process = Some(TestProcess::spawn_tied(command)?);
        let mut log = File::options().create(true).append(true).open(&self.log)?;
        let (sender, addresses) = channel();
        self.addresses = Some(addresses);
        std::thread::spawn(move || {
            for line in BufReader::new(read).lines().map_while(Result::ok) {
                // The log is for people who examine a failed run; the run does not depend on it.
                let _ = writeln!(log, "{line}");
                let at = line.split("serving on ").nth(1).or_else(|| line.split("standing by on ").nth(1));
                if let Some(address) = at.and_then(|rest| rest.split(',').next()) {
                    let _ = sender.send(address.to_owned());
                }
            }
        });
        Ok(())
    }

    /// Updates the links once the server listens. Returns true if the process has ended.
    pub fn poll(&mut self) -> bool {
        if let Some(address) = self.addresses.as_ref().and_then(|addresses| addresses.try_iter().last()) {
            self.addresses = None;
            self.starts += 1;
            self.address = Some(address);
            self.update_links();
        }
        self.process.as_mut().is_none_or(|process| process.try_wait().is_some())
    }

    /// Whether the current process listens.
    pub fn is_listening(&self) -> bool {
        self.address.is_some()
    }

    /// Forgets the process and closes the links.
    pub fn mark_down(&mut self) {
        self.process = None;
        self.addresses = None;
        self.address = None;
        self.update_links();
    }

    /// Points every link to the address on which the server listens, if any.
    pub fn update_links(&self) {
        let to = self.address.clone().map_or(ProxyUpstream::Nowhere, ProxyUpstream::Address);
        for link in &self.links {
            link.set_upstream(to.clone());
            link.disconnect_all();
        }
    }
}
