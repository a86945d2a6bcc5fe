//! A queue that keeps its order: whoever leaves enters again at its end, and a crash lets nobody pass.

use std::collections::VecDeque;

use leasehold_wire::v1;
use leasehold_wire::v1::request::Ask;

use crate::chance::Chance;
use crate::history::{self, History};
use crate::link::{Gone, LONG, Link, Own, Told, connect, held, within};

/// The name they all want.
const NAME: &str = "line";
const MEMBERS: usize = 5;

/// Everybody in the queue and its order as it was told.
pub struct Line {
    members: Vec<Member>,
    /// Who holds or is granted next, and who waits behind.
    order: VecDeque<usize>,
    doing: Doing,
    /// Every time everybody comes back there is a new tenure, in which nobody was heard yet.
    new_tenures: bool,
    chance: Chance,
    history: History,
    /// Grants in order.
    pub turns: usize,
    /// Grants past somebody who was not heard.
    pub passed: usize,
}

/// The one request whose answer may be missing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Nothing,
    /// The first gives back; the second may have been silent since the crash.
    Leaving {
        silent: bool,
    },
    Entering(usize),
}

struct Member {
    name: String,
    own: Option<Own>,
    link: Option<Link>,
    sequence: u64,
    /// The last request and what was acked before it: a wait, until it is granted, or the giving back.
    asked: Option<(u64, Ask, u64)>,
    grant: Option<v1::Grant>,
}

impl Line {
    /// Nobody stands in it yet.
    pub fn new(chance: Chance, history: History, new_tenures: bool) -> Self {
        let member =
            |i| Member { name: format!("line-{i}"), own: None, link: None, sequence: 0, asked: None, grant: None };
        let members = (0..MEMBERS).map(member).collect();
        let (order, doing) = (VecDeque::new(), Doing::Nothing);
        Self { members, order, doing, new_tenures, chance, history, turns: 0, passed: 0 }
    }

    /// Everybody comes back, in any order, and stands where it stood (W1). Sometimes one stays silent until it would be next:
    /// then the one behind it is granted, and the silent one still stands before everybody else (L8).
    pub async fn recover(&mut self, address: &str) -> Result<(), Gone> {
        self.members.iter_mut().for_each(|member| member.link = None);
        let can_wait = self.new_tenures && self.doing != Doing::Leaving { silent: true } && self.order.len() >= 4;
        let silent = (can_wait && self.chance.one_in(4)).then(|| self.order[2]);
        let mut coming: Vec<usize> = (0..MEMBERS).filter(|member| Some(*member) != silent).collect();
        self.chance.shuffle(&mut coming);
        for member in coming {
            self.members[member].come(address).await?;
        }
        self.look(address).await?;
        self.ask_again(silent).await?;
        if let Some(silent) = silent {
            while self.order[1] != silent {
                self.leave(false).await?;
            }
            self.leave(true).await?;
            self.members[silent].come(address).await?;
            let told = self.members[silent].ask_again().await?;
            assert_eq!(told, Told::Waiting, "{} was passed and stands first", self.members[silent].name);
        }
        self.enter_all().await
    }

    /// The first leaves, the second is granted, the first enters again; until the connection breaks.
    pub async fn load(&mut self) -> Gone {
        loop {
            if let Err(gone) = self.turn().await {
                return gone;
            }
        }
    }

    async fn turn(&mut self) -> Result<(), Gone> {
        self.leave(false).await?;
        self.enter_all().await
    }

    fn holds(&self) -> Option<usize> {
        self.order.front().copied().filter(|first| self.members[*first].grant.is_some())
    }

    /// The waiters as anybody sees them: in their order, and nobody missing who was not granted (W1, L3).
    async fn look(&mut self, address: &str) -> Result<(), Gone> {
        let mut calls = connect(address).await?;
        let ask = v1::WaitersRequest { resource: NAME.into(), ..Default::default() };
        let seen = within(calls.waiters(ask)).await.map_err(|_| Gone)?.into_inner().waiters;
        let seen: Vec<&str> = seen.iter().map(|waiter| waiter.holder.as_str()).collect();
        let mut expected: Vec<usize> = self.order.iter().copied().collect();
        // Whoever was first may hold; whoever came next may have been granted already, unheard.
        let mut maybe: Vec<usize> = expected.iter().take(1).copied().collect();
        match self.doing {
            Doing::Nothing => {}
            Doing::Leaving { silent } => maybe.extend(expected.iter().skip(1).take(1 + usize::from(silent))),
            Doing::Entering(member) => {
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
                assert!(maybe.contains(&member), "{name} lost its place: {:?}, {:?}", self.order, self.doing);
            }
        }
        assert_eq!(seen.collect::<Vec<_>>(), Vec::<&str>::new(), "in another order than {:?}", self.order);
        Ok(())
    }

    /// Every request without an answer is asked again under its own id (L11).
    async fn ask_again(&mut self, silent: Option<usize>) -> Result<(), Gone> {
        let waiting = self.order.iter().copied().filter(|member| Some(*member) != silent);
        let entering = if let Doing::Entering(member) = self.doing { Some(member) } else { None };
        let may_pass = self.doing == Doing::Leaving { silent: true };
        for member in waiting.chain(entering).collect::<Vec<_>>() {
            if self.members[member].asked.is_none() {
                continue;
            }
            match self.members[member].ask_again().await? {
                Told::Granted(grant) => {
                    if may_pass && self.order.get(1) == Some(&member) {
                        // Decided before the crash, when the one before it had not been heard.
                        self.pass();
                    }
                    self.granted(member, *grant);
                }
                Told::Done => self.left(),
                told => assert_eq!(told, Told::Waiting, "{}", self.members[member].name),
            }
            if entering == Some(member) {
                self.order.push_back(member);
                self.doing = Doing::Nothing;
            }
        }
        self.hear_first().await
    }

    async fn leave(&mut self, silent: bool) -> Result<(), Gone> {
        let first = self.holds().expect("somebody holds");
        let member = &mut self.members[first];
        let grant = member.grant.as_ref().expect("the first holds");
        let ask = Ask::Release(held(NAME, &grant.token));
        self.history.ending(NAME, grant.token_number);
        self.doing = Doing::Leaving { silent };
        let told = member.ask(ask, 0).await?;
        assert_eq!(told, Told::Done, "{}", member.name);
        self.left();
        if silent {
            // The one behind the silent one is granted past it.
            self.pass();
        }
        self.hear_first().await
    }

    fn left(&mut self) {
        let first = self.order.pop_front().expect("somebody left");
        self.members[first].asked = None;
        let grant = self.members[first].grant.take().expect("whoever leaves has held");
        self.history.ended(grant.token_number, "released");
        self.doing = Doing::Nothing;
    }

    fn pass(&mut self) {
        let passed = self.order.pop_front().expect("somebody is silent");
        self.order.insert(1, passed);
        self.passed += 1;
    }

    /// Whoever stands first is granted (W2).
    async fn hear_first(&mut self) -> Result<(), Gone> {
        let Some(first) = self.order.front().copied() else { return Ok(()) };
        let member = &mut self.members[first];
        if member.grant.is_some() {
            return Ok(());
        }
        let (sequence, told) = member.link.as_mut().expect("connected").next().await?;
        let Told::Granted(grant) = told else { panic!("{} was told {told:?}", member.name) };
        assert_eq!(Some(sequence), member.asked.as_ref().map(|asked| asked.0));
        self.granted(first, *grant);
        Ok(())
    }

    fn granted(&mut self, member: usize, grant: v1::Grant) {
        let entering = self.doing == Doing::Entering(member) && self.order.is_empty();
        if !entering {
            history::in_turn(&self.order, &member);
        }
        let asked = self.members[member].asked.take().expect("it waited");
        let asker = (self.members[member].name.clone(), asked.0);
        self.history.granted(NAME, &asker, grant.token_number, asked.2);
        self.members[member].grant = Some(grant);
        self.turns += 1;
    }

    async fn enter_all(&mut self) -> Result<(), Gone> {
        for member in 0..MEMBERS {
            if self.order.contains(&member) {
                continue;
            }
            self.doing = Doing::Entering(member);
            let ask = Ask::Acquire(v1::Acquire {
                resource: NAME.into(),
                ttl_ms: Some(LONG),
                terms: Some(v1::Terms { wait_ms: LONG, ..Default::default() }),
                ..Default::default()
            });
            match self.members[member].ask(ask, self.history.floor()).await? {
                Told::Granted(grant) => self.granted(member, *grant),
                told => assert_eq!(told, Told::Waiting),
            }
            self.order.push_back(member);
            self.doing = Doing::Nothing;
        }
        Ok(())
    }
}

impl Member {
    async fn come(&mut self, address: &str) -> Result<(), Gone> {
        self.link = Some(Link::stream(address, &self.name, &mut self.own).await?);
        Ok(())
    }

    async fn ask(&mut self, ask: Ask, floor: u64) -> Result<Told, Gone> {
        self.sequence += 1;
        self.asked = Some((self.sequence, ask, floor));
        self.ask_again().await
    }

    async fn ask_again(&mut self) -> Result<Told, Gone> {
        let (sequence, ask, _) = self.asked.clone().expect("something was asked");
        let mut answer = None;
        let link = self.link.as_mut().expect("connected");
        link.ask(sequence, vec![(sequence, ask)], |_, told| answer = Some(told)).await?;
        Ok(answer.expect("it was answered"))
    }
}
