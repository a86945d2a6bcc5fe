//! Who plays: a server, holders, and the directory of it all, as long as the demonstration lasts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use leasehold::Client;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::talk::{Order, Said, Target};
use super::timeline::Timeline;
use super::{Plan, failed, ledger};
use crate::own::Own;
use crate::own::servers::Servers;
use crate::run::dies_with_us;
use crate::told::Failure;

/// How long anybody may take beyond what was planned, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The place, and the server or the servers in it.
pub struct Stage {
    grantor: Grantor,
    address: String,
}

enum Grantor {
    One(Own),
    Several(Servers),
}

impl Stage {
    pub async fn set(plan: Plan, timeline: &mut Timeline) -> Result<Self, Failure> {
        let mut server = Own::start("demo", &std::env::temp_dir())?;
        let (endpoints, _) = server.answers().await?;
        let status = Client::connect(endpoints.clone()).status().await?;
        let cluster = status.cluster.parse().map_err(|_| failed("its server names no cluster"))?;
        let address = endpoints.all()[0].as_str().to_owned();
        timeline.tell("grantor", &format!("serves on {address}, with a journal in a file"));
        if plan.fenced {
            ledger::create(server.place(), Target::Fenced, cluster)?;
        }
        ledger::create(server.place(), Target::Unfenced, cluster)?;
        Ok(Self { grantor: Grantor::One(server), address })
    }

    /// The same with two servers over an etcd of three members.
    pub async fn set_over_etcd(plan: Plan, timeline: &mut Timeline) -> Result<Self, Failure> {
        let servers = Servers::start("demo", &std::env::temp_dir(), 2).await?;
        servers.warm().await?;
        let status = Client::connect(servers.endpoints()?).status().await?;
        let cluster = status.cluster.parse().map_err(|_| failed("its servers name no cluster"))?;
        let address = servers.addresses().join(",");
        timeline.tell("grantor", &format!("two servers over one journal in etcd: {address}"));
        if plan.fenced {
            ledger::create(servers.place(), Target::Fenced, cluster)?;
        }
        ledger::create(servers.place(), Target::Unfenced, cluster)?;
        Ok(Self { grantor: Grantor::Several(servers), address })
    }

    pub fn directory(&self) -> &Path {
        match &self.grantor {
            Grantor::One(own) => own.place(),
            Grantor::Several(servers) => servers.place(),
        }
    }

    /// The process of the only server.
    pub fn server(&self) -> Result<u32, Failure> {
        match &self.grantor {
            Grantor::One(own) => Ok(own.process().id()),
            Grantor::Several(_) => Err(failed("there are several servers")),
        }
    }

    /// The servers over etcd.
    pub fn servers(&self) -> Result<&Servers, Failure> {
        match &self.grantor {
            Grantor::One(_) => Err(failed("there is one server")),
            Grantor::Several(servers) => Ok(servers),
        }
    }

    /// Starts a holder that will pay this amount.
    pub fn holder(&self, name: &'static str, amount: i64, plan: Plan) -> Result<Holder, Failure> {
        let cannot = |error: std::io::Error| failed(&format!("cannot start a holder: {error}"));
        let mut child = dies_with_us(self.directory())
            .map_err(cannot)?
            .args([super::holder::WORD, &self.address, name])
            .args([super::millis(plan.ttl).to_string(), amount.to_string()])
            .arg(self.directory())
            .arg(if plan.fenced { "fenced" } else { "unfenced" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(cannot)?;
        let orders = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let (tell, says) = unbounded_channel();
        // Ends with the holder.
        std::thread::spawn(move || {
            let said = lines.filter_map(|line| serde_json::from_str(&line).ok());
            for said in said {
                if tell.send(said).is_err() {
                    break;
                }
            }
        });
        Ok(Holder { name, child, orders, says })
    }
}

/// A holder's process.
pub struct Holder {
    pub name: &'static str,
    child: Child,
    orders: ChildStdin,
    says: UnboundedReceiver<Said>,
}

impl Holder {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next thing it says, within what is planned and then some.
    pub async fn says(&mut self, plan: Plan) -> Result<Said, Failure> {
        let bound = plan.ttl * 3 + plan.pause + PATIENCE;
        match tokio::time::timeout(bound, self.says.recv()).await {
            Ok(Some(Said::Failed { why })) => Err(failed(&format!("holder {}: {why}", self.name))),
            Ok(Some(said)) => Ok(said),
            Ok(None) => Err(failed(&format!("holder {} ended before its part did", self.name))),
            Err(_) => Err(failed(&format!("holder {} says nothing", self.name))),
        }
    }

    /// What it has said and nobody has heard.
    pub fn said(&mut self) -> Option<Said> {
        self.says.try_recv().ok()
    }

    pub fn order(&mut self, order: Order) -> Result<(), Failure> {
        let sent = writeln!(self.orders, "{}", order.word());
        sent.map_err(|_| failed(&format!("holder {} ended before its part did", self.name)))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have gone by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops a child of ours, and comes back when the kernel says that it stands.
pub fn stop(id: u32) -> Result<(), Failure> {
    let pid = pid(id)?;
    let stopped = kill_process(pid, Signal::STOP).and_then(|()| waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED));
    stopped.map(drop).map_err(|error| failed(&format!("cannot stop a process: {error}")))
}

pub fn go_on(id: u32) -> Result<(), Failure> {
    kill_process(pid(id)?, Signal::CONT).map_err(|error| failed(&format!("cannot continue a process: {error}")))
}

fn pid(id: u32) -> Result<Pid, Failure> {
    i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| failed("a process without a number"))
}
