//! Fault injection: faults drawn from the seed, each with its repair.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use leasehold_sim::fault::Fault;
use leasehold_sim::rng::SimRng;
use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};
use rustix::process::Signal;

use crate::fault::ChaosFault;
use crate::fault_wrappers;
use crate::holder_process::ProcessState;
use crate::testbed::ChaosCluster;

/// How a fault is repaired.
enum Repair {
    Server(usize),
    StartServer(usize, Vec<String>),
    Member(usize),
    StartMember(usize, Vec<String>),
    Backends,
    StartPostgres,
    Pass(Vec<TcpProxy>),
    Link(usize),
    StartHolder(usize),
}

/// Injects and repairs faults.
pub struct Nemesis {
    rng: SimRng,
    repairs: Vec<(Instant, Repair)>,
    next: Instant,
    /// Until when a component gets no other fault, because it has one already.
    reserved: BTreeMap<(u8, usize), Instant>,
    /// Number of injected faults by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// Injected faults in order: microseconds since the run began, kind, and text.
    pub injected: Vec<(u64, Fault, String)>,
    /// Finished pauses.
    pub pauses: u64,
    /// Pauses longer than the ttl.
    pub beyond_ttl: u64,
    /// Servers that exited without a fault.
    pub unexpected_exits: Vec<String>,
    /// Servers that run on a failing disk, and whether they may exit because of it.
    failing_disks: BTreeMap<usize, bool>,
}

const SERVER: u8 = 0;
const MEMBERS: u8 = 1;
const POSTGRES: u8 = 2;
const HOLDER_LINK: u8 = 3;
const ETCD_LINK: u8 = 4;

impl Nemesis {
    /// A nemesis with its own random numbers.
    pub fn new(rng: SimRng) -> Self {
        let (repairs, reserved, counts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (injected, unexpected_exits, failing_disks) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self {
            rng,
            repairs,
            next: Instant::now(),
            reserved,
            counts,
            injected,
            pauses: 0,
            beyond_ttl: 0,
            unexpected_exits,
            failing_disks,
        }
    }

    /// Runs due repairs, and injects a fault if one is due and `inject_faults` is set.
    pub fn turn(&mut self, system: &mut ChaosCluster, inject_faults: bool) -> io::Result<()> {
        let now = Instant::now();
        let due: Vec<_> = self.repairs.extract_if(.., |(at, _)| *at <= now).map(|(_, repair)| repair).collect();
        for repair in due {
            self.repair(system, repair)?;
        }
        let ttl = Duration::from_millis(system.ttl);
        for holder_process in &mut system.holders {
            if let Some(paused) = holder_process.poll(now) {
                self.pauses += 1;
                self.beyond_ttl += u64::from(paused > ttl);
            }
            holder_process.write_clock()?;
        }
        self.restart_ended_servers(system);
        if inject_faults && now >= self.next {
            self.next = now + Duration::from_millis(self.rng.between(60, 350));
            let fault = *self.rng.pick(&ChaosFault::WEIGHTED);
            if let Some(what) = self.inject(system, fault, now)? {
                *self.counts.entry(fault.name()).or_default() += 1;
                let at = crate::holder_log::clock().saturating_sub(system.origin) / 1_000;
                self.injected.push((at, fault.sim_fault(), format!("{}: {what}", fault.name())));
            }
        }
        Ok(())
    }

    /// Repairs all faults now and starts servers and holders that are down.
    pub fn heal(&mut self, system: &mut ChaosCluster) -> io::Result<()> {
        for (_, repair) in std::mem::take(&mut self.repairs) {
            self.repair(system, repair)?;
        }
        // Only a restart replaces a failing disk.
        for (index, server) in system.servers.iter_mut().enumerate().filter(|(_, server)| server.bad_disk) {
            self.failing_disks.remove(&index);
            server.mark_down();
            server.start(&[])?;
        }
        if let Some(etcd) = &mut system.etcd {
            for at in (0..etcd.members.len()).filter(|at| etcd.members[*at].is_wrapped).collect::<Vec<_>>() {
                etcd.members[at].process = None;
                etcd.start_member(at)?;
            }
        }
        for holder_process in &mut system.holders {
            match holder_process.state {
                // It still stops at its next write, and then resumes immediately.
                ProcessState::PauseRequested(_) => holder_process.state = ProcessState::PauseRequested(Duration::ZERO),
                ProcessState::Paused(since, _) => holder_process.state = ProcessState::Paused(since, Instant::now()),
                ProcessState::Running | ProcessState::Down => {}
            }
        }
        Ok(())
    }

    fn restart_ended_servers(&mut self, system: &mut ChaosCluster) {
        for (index, server) in system.servers.iter_mut().enumerate() {
            if server.poll() && server.process.is_some() {
                // A server that finds no etcd at its start reports that and exits, as it should.
                if !self.failing_disks.remove(&index).unwrap_or(false) && server.is_listening() {
                    self.unexpected_exits.push(format!("server {index} exited by itself"));
                }
                server.mark_down();
                let after = Duration::from_millis(self.rng.between(50, 500));
                self.repairs.push((Instant::now() + after, Repair::StartServer(index, Vec::new())));
            }
        }
    }

    fn reserve(&mut self, kind: u8, index: usize, now: Instant, duration: Duration) -> bool {
        let until = self.reserved.entry((kind, index)).or_insert(now);
        let free = *until <= now;
        if free {
            // Plus some time to recover.
            *until = now + duration + Duration::from_millis(500);
        }
        free
    }

    /// Injects the fault if it is possible now, and returns its description.
    fn inject(&mut self, system: &mut ChaosCluster, fault: ChaosFault, now: Instant) -> io::Result<Option<String>> {
        let ttl = system.ttl;
        let millis = |ms: u64| Duration::from_millis(ms);
        let duration = millis(self.rng.between(ttl / 4, 4 * ttl));
        let holder = self.rng.below(system.holders.len() as u64) as usize;
        let server = self.rng.below(system.servers.len() as u64) as usize;
        let running =
            system.holders.iter().filter(|holder_process| holder_process.state == ProcessState::Running).count();
        match fault {
            ChaosFault::Pause | ChaosFault::Freeze | ChaosFault::KillHolder => {
                // At least two holders must keep running, to acquire what others lose.
                let holder_process = &mut system.holders[holder];
                if holder_process.state != ProcessState::Running || running <= 2 {
                    return Ok(None);
                }
                match fault {
                    ChaosFault::Pause => {
                        let duration = millis(self.rng.between(ttl * 5 / 4, 4 * ttl));
                        holder_process.request_pause(duration);
                        if holder_process.clock.is_some() && self.rng.one_in(2) {
                            holder_process.advance_clock(duration);
                        }
                        return Ok(Some(format!("holder {holder} for {} ms", duration.as_millis())));
                    }
                    ChaosFault::Freeze => holder_process.freeze(duration),
                    // A network namespace would end with its process.
                    _ if holder_process.namespace.is_some() => return Ok(None),
                    _ => {
                        holder_process.kill();
                        self.repairs.push((now + duration, Repair::StartHolder(holder)));
                    }
                }
                Ok(Some(format!("holder {holder} for {} ms", duration.as_millis())))
            }
            ChaosFault::CutHolder if self.reserve(HOLDER_LINK, holder, now, duration) => {
                let holder_process = &system.holders[holder];
                match &holder_process.namespace {
                    Some(link) => {
                        link.set(false);
                        self.repairs.push((now + duration, Repair::Link(holder)));
                    }
                    None => self.cut_links(holder_process.servers.clone(), now + duration),
                }
                Ok(Some(format!("holder {holder} for {} ms", duration.as_millis())))
            }
            ChaosFault::CutServer if self.reserve(SERVER, server, now, duration) => {
                self.cut_links(system.servers[server].links.clone(), now + duration);
                Ok(Some(format!("server {server} for {} ms", duration.as_millis())))
            }
            ChaosFault::StopServer if self.reserve(SERVER, server, now, duration) => {
                let Some(process) = &system.servers[server].process else { return Ok(None) };
                // Fails if the process has ended.
                let _ = process.signal(Signal::STOP);
                self.repairs.push((now + duration, Repair::Server(server)));
                Ok(Some(format!("server {server} for {} ms", duration.as_millis())))
            }
            ChaosFault::KillServer if self.reserve(SERVER, server, now, duration) => {
                let Some(mut process) = system.servers[server].process.take() else { return Ok(None) };
                process.kill();
                system.servers[server].mark_down();
                let (wrapper, failing_disks) = fault_wrappers::server(&mut self.rng, system.etcd.is_some());
                self.failing_disks.insert(server, failing_disks);
                let what = format!("server {server}, restarted {}", fault_wrappers::describe(&wrapper));
                self.repairs.push((now + duration / 4, Repair::StartServer(server, wrapper)));
                Ok(Some(what))
            }
            ChaosFault::StopBackends | ChaosFault::KillPostgres | ChaosFault::CutPostgres => {
                if system.postgres.is_none() || !self.reserve(POSTGRES, 0, now, duration) {
                    return Ok(None);
                }
                self.postgres(system, fault, holder, now, duration)
            }
            ChaosFault::StopMember | ChaosFault::KillMember => {
                let Some(etcd) = &mut system.etcd else { return Ok(None) };
                let at = self.rng.below(etcd.members.len() as u64) as usize;
                if !self.reserve(MEMBERS, 0, now, duration) {
                    return Ok(None);
                }
                let Some(process) = &mut etcd.members[at].process else { return Ok(None) };
                if fault == ChaosFault::StopMember {
                    let _ = process.signal(Signal::STOP);
                    self.repairs.push((now + duration, Repair::Member(at)));
                    return Ok(Some(format!("member {at} for {} ms", duration.as_millis())));
                }
                process.kill();
                let wrapper = fault_wrappers::member(&mut self.rng);
                let what = format!("member {at}, restarted {}", fault_wrappers::describe(&wrapper));
                self.repairs.push((now + duration, Repair::StartMember(at, wrapper)));
                Ok(Some(what))
            }
            ChaosFault::CutEtcd if system.etcd.is_some() && self.reserve(ETCD_LINK, server, now, duration) => {
                self.cut_links(system.to_etcd[server].clone(), now + duration);
                Ok(Some(format!("server {server} for {} ms", duration.as_millis())))
            }
            _ => Ok(None),
        }
    }

    fn postgres(
        &mut self,
        system: &mut ChaosCluster,
        fault: ChaosFault,
        holder: usize,
        now: Instant,
        duration: Duration,
    ) -> io::Result<Option<String>> {
        let Some(postgres) = &mut system.postgres else { return Ok(None) };
        let ms = duration.as_millis();
        match fault {
            ChaosFault::StopBackends => {
                let max = self.rng.between(1, 3) as usize;
                let stopped = postgres.signal_backends(Signal::STOP, max);
                self.repairs.push((now + duration, Repair::Backends));
                Ok((stopped > 0).then(|| format!("{stopped} of them for {ms} ms")))
            }
            ChaosFault::KillPostgres => {
                postgres.kill();
                self.repairs.push((now + duration / 4, Repair::StartPostgres));
                Ok(Some(format!("for {} ms", ms / 4)))
            }
            _ => {
                self.cut_links(system.holders[holder].postgres.iter().cloned().collect(), now + duration);
                Ok(Some(format!("from holder {holder} for {ms} ms")))
            }
        }
    }

    /// Blocks requests, replies or both on these links, or breaks their connections.
    fn cut_links(&mut self, links: Vec<TcpProxy>, until: Instant) {
        use Flow::{Hold, Pass};
        let (requests, replies) = *self.rng.pick(&[(Hold, Hold), (Hold, Pass), (Pass, Hold), (Pass, Pass)]);
        for link in &links {
            link.set_flow(requests, replies);
            if (requests, replies) == (Pass, Pass) {
                link.disconnect_all();
            }
        }
        self.repairs.push((until, Repair::Pass(links)));
    }

    fn repair(&mut self, system: &mut ChaosCluster, repair: Repair) -> io::Result<()> {
        let soon = Instant::now() + Duration::from_millis(50);
        match repair {
            Repair::Server(index) => {
                if let Some(process) = &system.servers[index].process {
                    // Fails if the process has ended.
                    let _ = process.signal(Signal::CONT);
                }
            }
            Repair::StartServer(index, wrapper) => {
                if system.servers[index].process.is_none() {
                    system.servers[index].start(&wrapper)?;
                }
            }
            Repair::Member(at) => {
                if let Some(process) = system.etcd.as_ref().and_then(|etcd| etcd.members[at].process.as_ref()) {
                    let _ = process.signal(Signal::CONT);
                }
            }
            Repair::StartMember(at, wrapper) => {
                let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
                system.etcd.iter_mut().try_for_each(|etcd| etcd.start_member_under(at, &wrapper))?;
            }
            Repair::Backends => {
                if let Some(postgres) = &system.postgres {
                    postgres.signal_backends(Signal::CONT, usize::MAX);
                }
            }
            Repair::StartPostgres => {
                if let Some(postgres) = &mut system.postgres {
                    if postgres.is_gone() {
                        postgres.restart()?;
                    } else {
                        self.repairs.push((soon, Repair::StartPostgres));
                    }
                }
            }
            Repair::Pass(links) => links.iter().for_each(|link| link.set_both(Flow::Pass)),
            Repair::Link(holder) => system.holders[holder].namespace.iter().for_each(|link| link.set(true)),
            Repair::StartHolder(holder) => system.holders[holder].restart()?,
        }
        Ok(())
    }
}
