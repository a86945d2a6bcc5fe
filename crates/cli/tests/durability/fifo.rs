//! Wait queue order: a member that releases queues again at the end, and a crash does not change the order.

use std::collections::VecDeque;

use leasehold_testkit::rng::SplitMix64;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;

use crate::history::{self, History};
use crate::transport::{Disconnected, LONG, OwnSession, Reply, Transport, connect, held, within};

/// The resource that all members wait for.
const NAME: &str = "fifo";
const MEMBERS: usize = 5;

/// The queue members, and their order according to the replies.
pub struct Fifo {
    members: Vec<Member>,
    /// The holder or next holder first, then the waiters.
    order: VecDeque<usize>,
    pending: PendingStep,
    /// Every reconnect starts a new tenure, in which no member has contacted the server yet.
    new_tenures: bool,
    rng: SplitMix64,
    history: History,
    /// Number of grants in order.
    pub turns: usize,
    /// Number of grants past a silent member.
    pub passed: usize,
}

/// The one step whose reply may be missing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PendingStep {
    Nothing,
    /// The first member releases; the second may have been silent since the crash.
    Leaving {
        silent: bool,
    },
    Entering(usize),
}

struct Member {
    name: String,
    own: Option<OwnSession>,
    transport: Option<Transport>,
    sequence: u64,
    /// The last request without a final reply, and the highest token number acknowledged before it.
    request: Option<(u64, Operation, u64)>,
    grant: Option<v1::Grant>,
}

impl Fifo {
    pub fn new(rng: SplitMix64, history: History, new_tenures: bool) -> Self {
        let member = |i| Member {
            name: format!("fifo-{i}"),
            own: None,
            transport: None,
            sequence: 0,
            request: None,
            grant: None,
        };
        let members = (0..MEMBERS).map(member).collect();
        let (order, pending) = (VecDeque::new(), PendingStep::Nothing);
        Self { members, order, pending, new_tenures, rng, history, turns: 0, passed: 0 }
    }

    /// Reconnects all members in random order; each keeps its queue position (W1). Sometimes one stays silent until it would be
    /// next: then the member behind it is granted, and the silent one stays ahead of all others (L8).
    pub async fn recover(&mut self, address: &str) -> Result<(), Disconnected> {
        self.members.iter_mut().for_each(|member| member.transport = None);
        let can_wait =
            self.new_tenures && self.pending != PendingStep::Leaving { silent: true } && self.order.len() >= 4;
        let silent = (can_wait && self.rng.one_in(4)).then(|| self.order[2]);
        let mut connecting: Vec<usize> = (0..MEMBERS).filter(|member| Some(*member) != silent).collect();
        self.rng.shuffle(&mut connecting);
        for member in connecting {
            self.members[member].connect(address).await?;
        }
        self.check_waiters(address).await?;
        self.retry_pending(silent).await?;
        if let Some(silent) = silent {
            while self.order[1] != silent {
                self.leave(false).await?;
            }
            self.leave(true).await?;
            self.members[silent].connect(address).await?;
            let reply = self.members[silent].retry_pending().await?;
            assert_eq!(reply, Reply::Waiting, "{} was passed and is first in the queue", self.members[silent].name);
        }
        self.enter_all().await
    }

    /// The first member releases, the second is granted, the first queues again; until the connection breaks.
    pub async fn load(&mut self) -> Disconnected {
        loop {
            if let Err(gone) = self.turn().await {
                return gone;
            }
        }
    }

    async fn turn(&mut self) -> Result<(), Disconnected> {
        self.leave(false).await?;
        self.enter_all().await
    }

    fn holds(&self) -> Option<usize> {
        self.order.front().copied().filter(|first| self.members[*first].grant.is_some())
    }

    /// Checks the listed waiters: in order, and none missing that was not granted (W1, L3).
    async fn check_waiters(&mut self, address: &str) -> Result<(), Disconnected> {
        let mut calls = connect(address).await?;
        let request = v1::WaitersRequest { resource: NAME.into(), ..Default::default() };
        let seen = within(calls.waiters(request)).await.map_err(|_| Disconnected)?.into_inner().waiters;
        let seen: Vec<&str> = seen.iter().map(|waiter| waiter.holder.as_str()).collect();
        let mut expected: Vec<usize> = self.order.iter().copied().collect();
        // The first may hold; the next may have been granted without receiving the reply.
        let mut maybe: Vec<usize> = expected.iter().take(1).copied().collect();
        match self.pending {
            PendingStep::Nothing => {}
            PendingStep::Leaving { silent } => maybe.extend(expected.iter().skip(1).take(1 + usize::from(silent))),
            PendingStep::Entering(member) => {
                expected.push(member);
                maybe.push(member);
            }
        }
        let mut seen = seen.into_iter().peekable();
        for member in expected {
            let name = self.members[member].name.as_str();
            if seen.peek() == Some(&name) {
                seen.next();
            } else {
                assert!(
                    maybe.contains(&member),
                    "{name} lost its queue position: {:?}, {:?}",
                    self.order,
                    self.pending
                );
            }
        }
        assert_eq!(seen.collect::<Vec<_>>(), Vec::<&str>::new(), "in another order than {:?}", self.order);
        Ok(())
    }

    /// Retries every request without a reply under its own id (L11).
    async fn retry_pending(&mut self, silent: Option<usize>) -> Result<(), Disconnected> {
        let waiting = self.order.iter().copied().filter(|member| Some(*member) != silent);
        let entering = if let PendingStep::Entering(member) = self.pending { Some(member) } else { None };
        let may_pass = self.pending == PendingStep::Leaving { silent: true };
        for member in waiting.chain(entering).collect::<Vec<_>>() {
            if self.members[member].request.is_none() {
                continue;
            }
            match self.members[member].retry_pending().await? {
                Reply::Granted(grant) => {
                    if may_pass && self.order.get(1) == Some(&member) {
                        // Granted before the crash, when the member ahead had not contacted the server.
                        self.pass();
                    }
                    self.granted(member, *grant);
                }
                Reply::Done => self.left(),
                reply => assert_eq!(reply, Reply::Waiting, "{}", self.members[member].name),
            }
            if entering == Some(member) {
                self.order.push_back(member);
                self.pending = PendingStep::Nothing;
            }
        }
        self.receive_first().await
    }

    async fn leave(&mut self, silent: bool) -> Result<(), Disconnected> {
        let first = self.holds().expect("one member holds");
        let member = &mut self.members[first];
        let grant = member.grant.as_ref().expect("the first member holds");
        let release = Operation::Release(held(NAME, &grant.token));
        self.history.ending(NAME, grant.token_number);
        self.pending = PendingStep::Leaving { silent };
        let reply = member.call(release, 0).await?;
        assert_eq!(reply, Reply::Done, "{}", member.name);
        self.left();
        if silent {
            // The member behind the silent one is granted.
            self.pass();
        }
        self.receive_first().await
    }

    fn left(&mut self) {
        let first = self.order.pop_front().expect("one member released");
        self.members[first].request = None;
        let grant = self.members[first].grant.take().expect("a member that releases has held");
        self.history.ended(grant.token_number, "released");
        self.pending = PendingStep::Nothing;
    }

    fn pass(&mut self) {
        let passed = self.order.pop_front().expect("one member is silent");
        self.order.insert(1, passed);
        self.passed += 1;
    }

    /// Waits until the first member is granted (W2).
    async fn receive_first(&mut self) -> Result<(), Disconnected> {
        let Some(first) = self.order.front().copied() else { return Ok(()) };
        let member = &mut self.members[first];
        if member.grant.is_some() {
            return Ok(());
        }
        let (sequence, reply) = member.transport.as_mut().expect("connected").next().await?;
        let Reply::Granted(grant) = reply else { panic!("{} received {reply:?}", member.name) };
        assert_eq!(Some(sequence), member.request.as_ref().map(|request| request.0));
        self.granted(first, *grant);
        Ok(())
    }

    fn granted(&mut self, member: usize, grant: v1::Grant) {
        let entering = self.pending == PendingStep::Entering(member) && self.order.is_empty();
        if !entering {
            history::assert_in_order(&self.order, &member);
        }
        let request = self.members[member].request.take().expect("the member waited");
        let requester = (self.members[member].name.clone(), request.0);
        self.history.granted(NAME, &requester, grant.token_number, request.2);
        self.members[member].grant = Some(grant);
        self.turns += 1;
    }

    async fn enter_all(&mut self) -> Result<(), Disconnected> {
        for member in 0..MEMBERS {
            if self.order.contains(&member) {
                continue;
            }
            self.pending = PendingStep::Entering(member);
            let acquire = Operation::Acquire(v1::Acquire {
                resource: NAME.into(),
                ttl_ms: Some(LONG),
                options: Some(v1::AcquireOptions { wait_ms: LONG, ..Default::default() }),
                ..Default::default()
            });
            match self.members[member].call(acquire, self.history.floor()).await? {
                Reply::Granted(grant) => self.granted(member, *grant),
                reply => assert_eq!(reply, Reply::Waiting),
            }
            self.order.push_back(member);
            self.pending = PendingStep::Nothing;
        }
        Ok(())
    }
}

impl Member {
    async fn connect(&mut self, address: &str) -> Result<(), Disconnected> {
        self.transport = Some(Transport::stream(address, &self.name, &mut self.own).await?);
        Ok(())
    }

    async fn call(&mut self, operation: Operation, floor: u64) -> Result<Reply, Disconnected> {
        self.sequence += 1;
        self.request = Some((self.sequence, operation, floor));
        self.retry_pending().await
    }

    async fn retry_pending(&mut self) -> Result<Reply, Disconnected> {
        let (sequence, operation, _) = self.request.clone().expect("a request is pending");
        let mut result = None;
        let transport = self.transport.as_mut().expect("connected");
        transport.call(sequence, vec![(sequence, operation)], |_, reply| result = Some(reply)).await?;
        Ok(result.expect("a reply arrived"))
    }
}
