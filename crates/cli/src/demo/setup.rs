//! Processes of a demonstration: the servers, the holders and their directory.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use leasehold::Client;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::ipc::{DemoTarget, HolderCommand, HolderEvent};
use super::timeline::Timeline;
use super::{DemoPlan, failed, ledger};
use crate::local_cluster::LocalServer;
use crate::local_cluster::servers::LocalServers;
use crate::output::CommandError;
use crate::run::pdeathsig_self;

/// Time that a process may take beyond the plan, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The servers and databases of a demonstration.
pub struct DemoSetup {
    grantor: DemoGrantor,
    address: String,
}

enum DemoGrantor {
    One(LocalServer),
    Several(LocalServers),
}

impl DemoSetup {
    pub async fn single_server(plan: DemoPlan, timeline: &mut Timeline) -> Result<Self, CommandError> {
        let mut server = LocalServer::start("demo", &std::env::temp_dir())?;
        let (endpoints, _) = server.wait_ready().await?;
        let status = Client::from(endpoints.clone()).status().await?;
        let cluster = status.cluster.parse().map_err(|_| failed("the server reports no cluster id"))?;
        let address = endpoints.addresses()[0].as_str().to_owned();
        timeline.record("grantor", &format!("serves on {address}, with a file journal"));
        if plan.fenced {
            ledger::create(server.dir(), DemoTarget::Fenced, cluster)?;
        }
        ledger::create(server.dir(), DemoTarget::Unfenced, cluster)?;
        Ok(Self { grantor: DemoGrantor::One(server), address })
    }

    /// Starts two servers over an etcd cluster of three members.
    pub async fn with_etcd(plan: DemoPlan, timeline: &mut Timeline) -> Result<Self, CommandError> {
        let servers = LocalServers::start("demo", &std::env::temp_dir(), 2).await?;
        servers.wait_caught_up().await?;
        let status = Client::from(servers.endpoints()?).status().await?;
        let cluster = status.cluster.parse().map_err(|_| failed("the server reports no cluster id"))?;
        let address = servers.addresses().join(",");
        timeline.record("grantor", &format!("two servers share a journal in etcd: {address}"));
        if plan.fenced {
            ledger::create(servers.dir(), DemoTarget::Fenced, cluster)?;
        }
        ledger::create(servers.dir(), DemoTarget::Unfenced, cluster)?;
        Ok(Self { grantor: DemoGrantor::Several(servers), address })
    }

    pub fn directory(&self) -> &Path {
        match &self.grantor {
            DemoGrantor::One(server) => server.dir(),
            DemoGrantor::Several(servers) => servers.dir(),
        }
    }

    /// Process id of the only server.
    pub fn server(&self) -> Result<u32, CommandError> {
        match &self.grantor {
            DemoGrantor::One(server) => Ok(server.process().id()),
            DemoGrantor::Several(_) => Err(failed("there are several servers")),
        }
    }

    pub fn servers(&self) -> Result<&LocalServers, CommandError> {
        match &self.grantor {
            DemoGrantor::One(_) => Err(failed("there is one server")),
            DemoGrantor::Several(servers) => Ok(servers),
        }
    }

    /// Starts a holder that will pay this amount.
    pub fn start_holder(&self, name: &'static str, amount: i64, plan: DemoPlan) -> Result<HolderHandle, CommandError> {
        let start_failed = |error: std::io::Error| failed(&format!("cannot start a holder: {error}"));
        let mut child = pdeathsig_self(self.directory())
            .map_err(start_failed)?
            .args([super::holder::SUBCOMMAND, &self.address, name])
            .args([super::millis(plan.ttl).to_string(), amount.to_string()])
            .arg(self.directory())
            .arg(if plan.fenced { "fenced" } else { "unfenced" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(start_failed)?;
        let commands = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let (sender, events) = unbounded_channel();
        // The thread ends with the holder.
        std::thread::spawn(move || {
            for event in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        Ok(HolderHandle { name, child, commands, events })
    }
}

/// A holder process.
pub struct HolderHandle {
    pub name: &'static str,
    child: Child,
    commands: ChildStdin,
    events: UnboundedReceiver<HolderEvent>,
}

impl HolderHandle {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next event of the holder.
    pub async fn next_event(&mut self, plan: DemoPlan) -> Result<HolderEvent, CommandError> {
        let timeout = plan.ttl * 3 + plan.pause + TIMEOUT;
        match tokio::time::timeout(timeout, self.events.recv()).await {
            Ok(Some(HolderEvent::Failed { message })) => Err(failed(&format!("holder {}: {message}", self.name))),
            Ok(Some(event)) => Ok(event),
            Ok(None) => Err(failed(&format!("holder {} exited too early", self.name))),
            Err(_) => Err(failed(&format!("holder {} does not respond", self.name))),
        }
    }

    /// Returns an event that is available now.
    pub fn try_event(&mut self) -> Option<HolderEvent> {
        self.events.try_recv().ok()
    }

    pub fn send(&mut self, command: HolderCommand) -> Result<(), CommandError> {
        let sent = writeln!(self.commands, "{}", command.name());
        sent.map_err(|_| failed(&format!("holder {} exited too early", self.name)))
    }
}

impl Drop for HolderHandle {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends SIGSTOP to a child, and returns when it is stopped.
pub fn pause(id: u32) -> Result<(), CommandError> {
    let pid = pid(id)?;
    let stopped = kill_process(pid, Signal::STOP).and_then(|()| waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED));
    stopped.map(drop).map_err(|error| failed(&format!("cannot pause a process: {error}")))
}

pub fn resume(id: u32) -> Result<(), CommandError> {
    kill_process(pid(id)?, Signal::CONT).map_err(|error| failed(&format!("cannot resume a process: {error}")))
}

fn pid(id: u32) -> Result<Pid, CommandError> {
    i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| failed("invalid process id"))
}
