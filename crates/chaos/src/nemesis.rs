//! What goes wrong in a run, drawn from its seed: one thing after the other, each with its end.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use leasehold_sim::chance::Chance;
use leasehold_sim::fault::Fault;
use rustix::process::Signal;

use crate::blow::Blow;
use crate::proxy::Way;
use crate::seat::State;
use crate::stage::Stage;
use crate::under;

/// How something ends.
enum Mend {
    Server(usize),
    StartServer(usize, Vec<String>),
    Member(usize),
    StartMember(usize, Vec<String>),
    Backends,
    StartPostgres,
    Pass(Vec<Way>),
    Link(usize),
    StartHolder(usize),
}

/// Who strikes.
pub struct Nemesis {
    chance: Chance,
    mends: Vec<(Instant, Mend)>,
    next: Instant,
    /// Until when somebody is left alone, because something is wrong with it already.
    busy: BTreeMap<(u8, usize), Instant>,
    /// What was done, and how often.
    pub counts: BTreeMap<&'static str, u64>,
    /// What was done, in order: microseconds since the run began, the kind, and the words for it.
    pub struck: Vec<(u64, Fault, String)>,
    /// Pauses that are over.
    pub pauses: u64,
    /// Those of them that were longer than the ttl.
    pub beyond: u64,
    /// Servers that ended although nothing was done to them.
    pub ended: Vec<String>,
    /// The servers whose disk was made to fail.
    doomed: BTreeMap<usize, bool>,
}

const SERVER: u8 = 0;
const MEMBERS: u8 = 1;
const POSTGRES: u8 = 2;
const HOLDER_WAY: u8 = 3;
const ETCD_WAY: u8 = 4;

impl Nemesis {
    /// Draws from a stream of its own.
    pub fn new(chance: Chance) -> Self {
        let (mends, busy, counts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (struck, ended, doomed) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { chance, mends, next: Instant::now(), busy, counts, struck, pauses: 0, beyond: 0, ended, doomed }
    }

    /// Looks after what has begun, and strikes if it is time and wanted.
    pub fn turn(&mut self, stage: &mut Stage, strikes: bool) -> io::Result<()> {
        let now = Instant::now();
        let due: Vec<_> = self.mends.extract_if(.., |(at, _)| *at <= now).map(|(_, mend)| mend).collect();
        for mend in due {
            self.mend(stage, mend)?;
        }
        let ttl = Duration::from_millis(stage.ttl);
        for seat in &mut stage.seats {
            if let Some(stood) = seat.look(now) {
                self.pauses += 1;
                self.beyond += u64::from(stood > ttl);
            }
            seat.tick()?;
        }
        self.look_after_servers(stage);
        if strikes && now >= self.next {
            self.next = now + Duration::from_millis(self.chance.between(60, 350));
            let blow = *self.chance.pick(&Blow::DRAWN);
            if let Some(what) = self.strike(stage, blow, now)? {
                *self.counts.entry(blow.word()).or_default() += 1;
                let at = crate::said::clock().saturating_sub(stage.origin) / 1_000;
                self.struck.push((at, blow.fault(), format!("{}: {what}", blow.word())));
            }
        }
        Ok(())
    }

    /// Ends everything that is wrong, at once; servers and holders that are down are started.
    pub fn heal(&mut self, stage: &mut Stage) -> io::Result<()> {
        for (_, mend) in std::mem::take(&mut self.mends) {
            self.mend(stage, mend)?;
        }
        // Disks are good only in another life.
        for (index, server) in stage.servers.iter_mut().enumerate().filter(|(_, server)| server.bad_disk) {
            self.doomed.remove(&index);
            server.gone();
            server.begin(&[])?;
        }
        if let Some(etcd) = &mut stage.etcd {
            for at in (0..etcd.members.len()).filter(|at| etcd.members[*at].bad_disk).collect::<Vec<_>>() {
                etcd.members[at].process = None;
                etcd.begin(at, &[])?;
            }
        }
        for seat in &mut stage.seats {
            match seat.state {
                // It stands still when it comes to it, and goes on at once.
                State::Ordered(_) => seat.state = State::Ordered(Duration::ZERO),
                State::Stands(since, _) => seat.state = State::Stands(since, Instant::now()),
                State::Runs | State::Gone => {}
            }
        }
        Ok(())
    }

    fn look_after_servers(&mut self, stage: &mut Stage) {
        for (index, server) in stage.servers.iter_mut().enumerate() {
            if server.look() && server.process.is_some() {
                // One that finds no etcd when it starts says so and ends: that is as it should be.
                if !self.doomed.remove(&index).unwrap_or(false) && server.listens() {
                    self.ended.push(format!("server {index} ended by itself"));
                }
                server.gone();
                let after = Duration::from_millis(self.chance.between(50, 500));
                self.mends.push((Instant::now() + after, Mend::StartServer(index, Vec::new())));
            }
        }
    }

    fn is_free(&mut self, kind: u8, index: usize, now: Instant, lasting: Duration) -> bool {
        let until = self.busy.entry((kind, index)).or_insert(now);
        let free = *until <= now;
        if free {
            // A moment to recover comes on top.
            *until = now + lasting + Duration::from_millis(500);
        }
        free
    }

    /// Does it, if it can be done now, and says to whom.
    fn strike(&mut self, stage: &mut Stage, blow: Blow, now: Instant) -> io::Result<Option<String>> {
        let ttl = stage.ttl;
        let millis = |ms: u64| Duration::from_millis(ms);
        let lasting = millis(self.chance.between(ttl / 4, 4 * ttl));
        let holder = self.chance.below(stage.seats.len() as u64) as usize;
        let server = self.chance.below(stage.servers.len() as u64) as usize;
        let running = stage.seats.iter().filter(|seat| seat.state == State::Runs).count();
        match blow {
            Blow::Pause | Blow::Freeze | Blow::KillHolder => {
                // Somebody must be left to take what is lost.
                let seat = &mut stage.seats[holder];
                if seat.state != State::Runs || running <= 2 {
                    return Ok(None);
                }
                match blow {
                    Blow::Pause => {
                        let lasting = millis(self.chance.between(ttl * 5 / 4, 4 * ttl));
                        seat.order_pause(lasting);
                        if seat.clock.is_some() && self.chance.one_in(2) {
                            seat.jump(lasting);
                        }
                        return Ok(Some(format!("holder {holder} for {} ms", lasting.as_millis())));
                    }
                    Blow::Freeze => seat.freeze(lasting),
                    // A network of its own would go with its process.
                    _ if seat.link.is_some() => return Ok(None),
                    _ => {
                        seat.kill();
                        self.mends.push((now + lasting, Mend::StartHolder(holder)));
                    }
                }
                Ok(Some(format!("holder {holder} for {} ms", lasting.as_millis())))
            }
            Blow::CutHolder if self.is_free(HOLDER_WAY, holder, now, lasting) => {
                let seat = &stage.seats[holder];
                match &seat.link {
                    Some(link) => {
                        link.set(false);
                        self.mends.push((now + lasting, Mend::Link(holder)));
                    }
                    None => self.cut(seat.servers.clone(), now + lasting),
                }
                Ok(Some(format!("holder {holder} for {} ms", lasting.as_millis())))
            }
            Blow::CutServer if self.is_free(SERVER, server, now, lasting) => {
                self.cut(stage.servers[server].ways.clone(), now + lasting);
                Ok(Some(format!("server {server} for {} ms", lasting.as_millis())))
            }
            Blow::StopServer if self.is_free(SERVER, server, now, lasting) => {
                let Some(process) = &stage.servers[server].process else { return Ok(None) };
                process.signal(Signal::STOP);
                self.mends.push((now + lasting, Mend::Server(server)));
                Ok(Some(format!("server {server} for {} ms", lasting.as_millis())))
            }
            Blow::KillServer if self.is_free(SERVER, server, now, lasting) => {
                let Some(mut process) = stage.servers[server].process.take() else { return Ok(None) };
                process.kill();
                stage.servers[server].gone();
                let (under, doomed) = under::server(&mut self.chance, stage.etcd.is_some());
                self.doomed.insert(server, doomed);
                let what = format!("server {server}, started again {}", under::words(&under));
                self.mends.push((now + lasting / 4, Mend::StartServer(server, under)));
                Ok(Some(what))
            }
            Blow::StopBackends | Blow::KillPostgres | Blow::CutPostgres => {
                if stage.postgres.is_none() || !self.is_free(POSTGRES, 0, now, lasting) {
                    return Ok(None);
                }
                self.postgres(stage, blow, holder, now, lasting)
            }
            Blow::StopMember | Blow::KillMember => {
                let Some(etcd) = &mut stage.etcd else { return Ok(None) };
                let at = self.chance.below(etcd.members.len() as u64) as usize;
                if !self.is_free(MEMBERS, 0, now, lasting) {
                    return Ok(None);
                }
                let Some(process) = &mut etcd.members[at].process else { return Ok(None) };
                if blow == Blow::StopMember {
                    process.signal(Signal::STOP);
                    self.mends.push((now + lasting, Mend::Member(at)));
                    return Ok(Some(format!("member {at} for {} ms", lasting.as_millis())));
                }
                process.kill();
                let under = under::member(&mut self.chance);
                let what = format!("member {at}, started again {}", under::words(&under));
                self.mends.push((now + lasting, Mend::StartMember(at, under)));
                Ok(Some(what))
            }
            Blow::CutEtcd if stage.etcd.is_some() && self.is_free(ETCD_WAY, server, now, lasting) => {
                self.cut(stage.to_etcd[server].clone(), now + lasting);
                Ok(Some(format!("server {server} for {} ms", lasting.as_millis())))
            }
            _ => Ok(None),
        }
    }

    fn postgres(
        &mut self,
        stage: &mut Stage,
        blow: Blow,
        holder: usize,
        now: Instant,
        lasting: Duration,
    ) -> io::Result<Option<String>> {
        let Some(postgres) = &mut stage.postgres else { return Ok(None) };
        let ms = lasting.as_millis();
        match blow {
            Blow::StopBackends => {
                let most = self.chance.between(1, 3) as usize;
                let stopped = postgres.signal_backends(Signal::STOP, most);
                self.mends.push((now + lasting, Mend::Backends));
                Ok((stopped > 0).then(|| format!("{stopped} of them for {ms} ms")))
            }
            Blow::KillPostgres => {
                postgres.kill();
                self.mends.push((now + lasting / 4, Mend::StartPostgres));
                Ok(Some(format!("for {} ms", ms / 4)))
            }
            _ => {
                self.cut(stage.seats[holder].postgres.iter().cloned().collect(), now + lasting);
                Ok(Some(format!("from holder {holder} for {ms} ms")))
            }
        }
    }

    /// Holds back what is asked, what is answered, or both; or breaks the connections.
    fn cut(&mut self, ways: Vec<Way>, until: Instant) {
        let (there, back) = *self.chance.pick(&[(false, false), (false, true), (true, false), (true, true)]);
        for way in &ways {
            way.pass(there, back);
            if there && back {
                way.cut();
            }
        }
        self.mends.push((until, Mend::Pass(ways)));
    }

    fn mend(&mut self, stage: &mut Stage, mend: Mend) -> io::Result<()> {
        let soon = Instant::now() + Duration::from_millis(50);
        match mend {
            Mend::Server(index) => {
                stage.servers[index].process.iter().for_each(|process| process.signal(Signal::CONT));
            }
            Mend::StartServer(index, under) => {
                if stage.servers[index].process.is_none() {
                    stage.servers[index].begin(&under)?;
                }
            }
            Mend::Member(at) => {
                let member = stage.etcd.iter().filter_map(|etcd| etcd.members[at].process.as_ref());
                member.for_each(|process| process.signal(Signal::CONT));
            }
            Mend::StartMember(at, under) => {
                let under: Vec<&str> = under.iter().map(String::as_str).collect();
                stage.etcd.iter_mut().try_for_each(|etcd| etcd.begin(at, &under))?;
            }
            Mend::Backends => {
                if let Some(postgres) = &stage.postgres {
                    postgres.signal_backends(Signal::CONT, usize::MAX);
                }
            }
            Mend::StartPostgres => {
                if let Some(postgres) = &mut stage.postgres {
                    if postgres.is_gone() {
                        postgres.again()?;
                    } else {
                        self.mends.push((soon, Mend::StartPostgres));
                    }
                }
            }
            Mend::Pass(ways) => ways.iter().for_each(|way| way.pass(true, true)),
            Mend::Link(holder) => stage.seats[holder].link.iter().for_each(|link| link.set(true)),
            Mend::StartHolder(holder) => stage.seats[holder].again()?,
        }
        Ok(())
    }
}
