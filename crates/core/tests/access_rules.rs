//! Random requests of several identities under access rules that change, compared with a naive specification of access.
//!
//! The specification knows only names, owners and grants. It decides each request from scratch, so a check that is remembered too
//! long, or a lease that is judged by another name, shows as a difference.

use std::collections::BTreeMap;

use leasehold_core::access::{AccessGrant, Action, Caller, Permission, Rights, Role};
use leasehold_core::command::{
    Acquire, Answer, Command, Input, LeaseRef, LeaseSelector, OpenSession, Proof, Renew, Request, Revoke,
};
use leasehold_core::grantor::{Denial, Grantor, Output, RecoveredGrantor, TenureOptions, recover};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{EndReason, Validity};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_testkit::rng::SplitMix64;

const AT: Now = Now { instant: Instant(0), wall: WallClock::after_era(1_000_000_000) };
const PEOPLE: [&str; 4] = ["spiffe://example/ann", "spiffe://example/bob", "uid:7", "dns:host.example"];
const NAMES: [&str; 7] = ["a", "a/b", "a/b/c", "a/bc", "ab", "b", "b/a"];
const PREFIXES: [&str; 6] = ["", "a", "a/b", "ab", "b", "c"];

/// What access should decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Denied,
    Hidden,
}

#[derive(Clone, Debug)]
struct KnownLease {
    id: LeaseId,
    number: Number,
    name: &'static str,
    owner: usize,
    session: Option<SessionId>,
    ended: bool,
}

/// What a request proves, as the specification sees it.
#[derive(Clone, Copy, Debug)]
struct KnownProof {
    stream: Option<SessionId>,
    /// The session whose secret is presented.
    secret_of: Option<SessionId>,
    lease: Option<Number>,
}

impl KnownProof {
    fn covers_session(&self, session: SessionId) -> bool {
        self.stream == Some(session) || self.secret_of == Some(session)
    }

    fn covers_lease(&self, lease: &KnownLease) -> bool {
        self.lease == Some(lease.number) || lease.session.is_some_and(|session| self.covers_session(session))
    }
}

/// Everything that the specification knows.
#[derive(Default)]
struct AccessSpec {
    grants: BTreeMap<usize, Vec<(Role, &'static str)>>,
    leases: Vec<KnownLease>,
    /// Sessions with their owners, open and closed.
    sessions: Vec<(SessionId, usize, bool)>,
}

impl AccessSpec {
    fn permission(&self, who: usize, action: Action, name: Option<&str>) -> Permission {
        let covers = |prefix: &str| match name {
            None => true,
            Some(_) if prefix.is_empty() => true,
            Some(name) => {
                let (prefix, name): (Vec<_>, Vec<_>) = (prefix.split('/').collect(), name.split('/').collect());
                name.len() >= prefix.len() && name[..prefix.len()] == prefix[..]
            }
        };
        let grants = self.grants.get(&who).into_iter().flatten();
        let cells: Vec<_> =
            grants.filter(|(_, prefix)| covers(prefix)).map(|(role, _)| action.permission(*role)).collect();
        let strongest = [Permission::Yes, Permission::Own].into_iter().find(|cell| cells.contains(cell));
        strongest.unwrap_or(Permission::No)
    }

    fn sees(&self, who: usize, name: &str) -> bool {
        self.permission(who, Action::Show, Some(name)) != Permission::No
    }

    fn on_name(
        &self,
        who: usize,
        action: Action,
        name: &str,
        lease: Option<&KnownLease>,
        proof: KnownProof,
    ) -> Verdict {
        match self.permission(who, action, Some(name)) {
            Permission::No if self.sees(who, name) => Verdict::Denied,
            Permission::No => Verdict::Hidden,
            Permission::Own if lease.is_some_and(|lease| lease.owner != who || !proof.covers_lease(lease)) => {
                Verdict::Denied
            }
            Permission::Own | Permission::Yes => Verdict::Allowed,
        }
    }

    fn by_id(&self, who: usize, action: Action, lease: &KnownLease, proof: KnownProof) -> Verdict {
        if self.permission(who, action, None) == Permission::No {
            return Verdict::Denied;
        }
        if lease.ended {
            let is_visible = lease.owner == who || self.sees(who, lease.name);
            return if is_visible { Verdict::Allowed } else { Verdict::Hidden };
        }
        self.on_name(who, action, lease.name, Some(lease), proof)
    }

    /// A lease by name and number; the number may be of a lease on another name.
    fn by_name(&self, who: usize, action: Action, name: &str, number: Number, proof: KnownProof) -> Verdict {
        let lease = self.leases.iter().find(|lease| lease.number == number).expect("a number that was issued");
        let here = !lease.ended && lease.name == name;
        match self.on_name(who, action, name, here.then_some(lease), proof) {
            Verdict::Allowed if lease.ended && !self.sees(who, lease.name) => Verdict::Hidden,
            verdict => verdict,
        }
    }

    fn in_session(&self, who: usize, session: SessionId, proof: KnownProof) -> Verdict {
        match self.sessions.iter().find(|(id, owner, _)| *id == session && *owner == who) {
            None => Verdict::Hidden,
            // An ended session needs no proof: nothing can be done in it.
            Some((_, _, closed)) if *closed || proof.covers_session(session) => Verdict::Allowed,
            Some(_) => Verdict::Denied,
        }
    }

    fn acquire(&self, who: usize, name: &str, session: Option<SessionId>, proof: KnownProof) -> Verdict {
        match (self.permission(who, Action::Acquire, Some(name)), session) {
            (Permission::No, _) => Verdict::Denied,
            (_, Some(session)) => self.in_session(who, session, proof),
            (_, None) => Verdict::Allowed,
        }
    }
}

struct Run {
    grantor: Grantor,
    batches: Vec<Vec<u8>>,
    spec: AccessSpec,
    epoch: u32,
    rng: SplitMix64,
    generation: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let grantor = open(RecoveredGrantor::empty(seed), 1);
        let mut run = Self {
            grantor: grantor.0,
            batches: vec![grantor.1],
            spec: AccessSpec::default(),
            epoch: 1,
            rng: SplitMix64::new(seed),
            generation: 1,
        };
        (0..PEOPLE.len()).for_each(|who| run.change_grants(who));
        run
    }

    fn change_grants(&mut self, who: usize) {
        self.epoch += 1;
        let rng = &mut self.rng;
        let roles = [Role::Holder, Role::Holder, Role::Observer, Role::Operator, Role::Reporter, Role::Admin];
        let grants = (0..rng.below(4)).map(|_| (rng.pick(&roles), rng.pick(&PREFIXES))).collect();
        self.spec.grants.insert(who, grants);
    }

    /// Runs one random request and compares the decision.
    fn step(&mut self) -> Result<Verdict, String> {
        let who = self.rng.below(PEOPLE.len() as u64) as usize;
        let name = self.rng.pick(&NAMES);
        let lease = (!self.spec.leases.is_empty()).then(|| {
            let latest = self.spec.leases.len().min(12) as u64;
            self.spec.leases[self.spec.leases.len() - 1 - self.rng.below(latest) as usize].clone()
        });
        let session = (!self.spec.sessions.is_empty()).then(|| {
            let at = self.rng.below(self.spec.sessions.len() as u64) as usize;
            self.spec.sessions[at].0
        });
        let proof = self.proof(lease.as_ref(), session);
        let kind = self.rng.below(12);
        let (action, verdict, command) = match (kind, &lease, session) {
            (0, ..) => {
                let may = self.spec.permission(who, Action::OpenSession, None) != Permission::No;
                let verdict = if may { Verdict::Allowed } else { Verdict::Denied };
                let open = OpenSession {
                    holder: "app",
                    ttl_ms: 600_000,
                    secret: self.next_secret().into(),
                    waits_only: false,
                };
                (Action::OpenSession, verdict, Command::OpenSession(open))
            }
            (1, _, Some(session)) => {
                let may = self.spec.permission(who, Action::RenewSession, None) != Permission::No;
                let verdict = if may { self.spec.in_session(who, session, proof) } else { Verdict::Denied };
                (Action::RenewSession, verdict, Command::RenewSession { session, held: None })
            }
            (2, _, Some(session)) if self.rng.one_in(4) => {
                let may = self.spec.permission(who, Action::CloseSession, None) != Permission::No;
                let verdict = if may { self.spec.in_session(who, session, proof) } else { Verdict::Denied };
                (Action::CloseSession, verdict, Command::CloseSession { session })
            }
            (3, _, Some(session)) => {
                let acquire = Acquire { session: Some(session), ttl_ms: None, ..Acquire::exclusive(name, "one", 1) };
                (Action::Acquire, self.spec.acquire(who, name, Some(session), proof), Command::Acquire(acquire))
            }
            (4..=8, Some(lease), _) => {
                let by_name = self.rng.one_in(3);
                let elsewhere = if self.rng.one_in(4) { name } else { lease.name };
                let held = if by_name {
                    LeaseRef::by_name(elsewhere, lease.number)
                } else {
                    LeaseRef::by_id(lease.id, lease.number)
                };
                let (action, command) = match kind {
                    4 | 5 => (Action::Renew, Command::Renew(Renew { lease: held, ttl_ms: None, progress: None })),
                    6 => (Action::Release, Command::Release(held)),
                    7 => (Action::Check, Command::Confirm(held)),
                    _ => (Action::Progress, Command::Progress { lease: held, at: 7 }),
                };
                let verdict = if by_name {
                    self.spec.by_name(who, action, elsewhere, lease.number, proof)
                } else {
                    self.spec.by_id(who, action, lease, proof)
                };
                (action, verdict, command)
            }
            (9, Some(lease), _) => {
                let by_name = self.rng.one_in(3);
                let selector = if by_name { LeaseSelector::Resource(name) } else { LeaseSelector::Id(lease.id) };
                let verdict = if by_name {
                    self.spec.on_name(who, Action::Revoke, name, None, proof)
                } else {
                    self.spec.by_id(who, Action::Revoke, lease, proof)
                };
                let revoke = Revoke { selector, reason: EndReason::Operator, comment: "", grace_ms: 0 };
                (Action::Revoke, verdict, Command::Revoke(revoke))
            }
            (10, ..) => {
                let may = self.spec.permission(who, Action::SetCapacity, Some(name)) != Permission::No;
                let verdict = if may { Verdict::Allowed } else { Verdict::Denied };
                (Action::SetCapacity, verdict, Command::SetCapacity { resource: name, units: 1 })
            }
            _ => {
                let acquire = Acquire::exclusive(name, "worker", 600_000);
                (Action::Acquire, self.spec.acquire(who, name, None, proof), Command::Acquire(acquire))
            }
        };
        self.compare(who, name, action, verdict, proof, command)
    }

    /// The secret of the session that is opened next: each session has its own.
    fn next_secret(&self) -> [u8; 32] {
        secret_of(self.spec.sessions.len())
    }

    /// A random proof, mostly of what the request is about.
    fn proof(&mut self, lease: Option<&KnownLease>, session: Option<SessionId>) -> KnownProof {
        let (sessions, leases) = (&self.spec.sessions, &self.spec.leases);
        let rng = &mut self.rng;
        let about = lease.and_then(|lease| lease.session).filter(|_| rng.one_in(2)).or(session);
        let proven = match rng.below(4) {
            0 => None,
            1 if !sessions.is_empty() => Some(rng.pick(sessions).0),
            _ => about,
        };
        let (stream, secret_of) = if rng.one_in(2) { (proven, None) } else { (None, proven) };
        let lease = match rng.below(4) {
            0 => None,
            1 if !leases.is_empty() => Some(leases[rng.below(leases.len() as u64) as usize].number),
            _ => lease.map(|lease| lease.number),
        };
        KnownProof { stream, secret_of, lease }
    }

    fn compare(
        &mut self,
        who: usize,
        name: &'static str,
        action: Action,
        verdict: Verdict,
        proof: KnownProof,
        command: Command<'_>,
    ) -> Result<Verdict, String> {
        let grants = self.spec.grants.get(&who).into_iter().flatten();
        let grants = grants.map(|(role, prefix)| AccessGrant { role: *role, prefix: (*prefix).into() }).collect();
        let rights = Rights::new(self.epoch, grants);
        let caller = Caller { principal: PEOPLE[who], rights: &rights };
        let before = self.grantor.snapshot();
        let secret = |session| self.spec.sessions.iter().position(|(id, ..)| *id == session).map(secret_of);
        let session = proof.secret_of.and_then(secret).map(Into::into);
        let presented = Proof { stream: proof.stream, session, lease: proof.lease };
        let request = Request { caller, proof: presented, ..Request::tagged(1) };
        self.grantor.step(AT, &Input::Request(request, command.clone()));
        let mut out = Output::default();
        self.grantor.take_output(&mut out);
        let answer = out.replies.into_iter().find(|reply| reply.tag == 1).expect("an answer").answer;
        let expected = match verdict {
            Verdict::Allowed => vec![],
            Verdict::Denied => vec![Denial { tag: 1, action, hidden: false }],
            Verdict::Hidden => vec![Denial { tag: 1, action, hidden: true }],
        };
        let who_and_what = || format!("{} with {rights:?}, {proof:?}: {command:?} is answered {answer:?}", PEOPLE[who]);
        if out.denials != expected {
            return Err(format!("expected {verdict:?}: {}", who_and_what()));
        }
        if verdict != Verdict::Allowed && (self.grantor.snapshot() != before || !out.batch.is_empty()) {
            return Err(format!("a refused request changed the state: {}", who_and_what()));
        }
        self.batches.extend((!out.batch.is_empty()).then_some(out.batch));
        match &answer {
            Answer::Granted(grant) => {
                let (id, number) = (grant.lease, grant.number);
                // A lease in a session is of the session's owner, which is the caller.
                let session = if let Command::Acquire(acquire) = &command { acquire.session } else { None };
                self.spec.leases.push(KnownLease { id, number, name, owner: who, session, ended: false });
            }
            Answer::Session(grant) if action == Action::OpenSession => {
                self.spec.sessions.push((grant.session, who, false));
            }
            Answer::Done => {
                if let Command::CloseSession { session } = &command {
                    let closed = self.spec.sessions.iter_mut().find(|(id, ..)| id == session).expect("a known session");
                    closed.2 = true;
                }
            }
            _ => {}
        }
        self.check_owners()?;
        Ok(verdict)
    }

    /// Updates which leases have ended, and compares the owners of all others.
    fn check_owners(&mut self) -> Result<(), String> {
        for lease in self.spec.leases.iter_mut().filter(|lease| !lease.ended) {
            match self.grantor.owner_of_lease(lease.id) {
                None => lease.ended = true,
                Some(owner) if owner == PEOPLE[lease.owner] => {}
                Some(other) => return Err(format!("{lease:?} is of {other}")),
            }
        }
        Ok(())
    }

    /// Replaces the grantor by one that is recovered from the journal, or from a snapshot.
    fn fail_over(&mut self) -> Result<(), String> {
        let snapshot = self.grantor.snapshot();
        let recovered = if self.rng.one_in(2) {
            recover(9, Some(&snapshot), [])
        } else {
            recover(10, None, self.batches.iter().map(Vec::as_slice))
        };
        let recovered = recovered.map_err(|error| error.to_string())?;
        if recovered.snapshot() != snapshot {
            return Err("the recovered state differs".to_owned());
        }
        self.generation += 1;
        let (grantor, batch) = open(recovered, self.generation);
        self.grantor = grantor;
        self.batches.push(batch);
        Ok(())
    }
}

/// The secret of the session that was opened as this one.
fn secret_of(index: usize) -> [u8; 32] {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&(index as u64).to_be_bytes());
    secret
}

fn open(recovered: RecoveredGrantor, generation: u64) -> (Grantor, Vec<u8>) {
    let opening = TenureOptions {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = recovered.open(AT, &opening).expect("it opens");
    let mut out = Output::default();
    grantor.take_output(&mut out);
    grantor.serve(AT);
    (grantor, out.batch)
}

#[test]
fn random_requests_are_decided_like_the_specification_of_access() {
    let mut counts = BTreeMap::new();
    for seed in 0..60 {
        let mut run = Run::new(seed);
        for at in 0..400 {
            if run.rng.one_in(25) {
                let who = run.rng.below(PEOPLE.len() as u64) as usize;
                run.change_grants(who);
            }
            if run.rng.one_in(60) {
                run.fail_over().unwrap_or_else(|error| panic!("seed {seed}, step {at}: {error}"));
            }
            let verdict = run.step().unwrap_or_else(|error| panic!("seed {seed}, step {at}: {error}"));
            *counts.entry(format!("{verdict:?}")).or_insert(0) += 1;
        }
    }
    assert!(counts.len() == 3 && counts.values().all(|count| *count > 1_000), "{counts:?}");
}
