//! A line of a story as the command that it asks for.

mod authority;
mod leases;
mod payloads;
mod reports;
mod sessions;

use leasehold_core::command::{Command, Held, Request, RequestId, Which};
use leasehold_core::coverage::Report;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Access;
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token};

use super::labels::{Labels, Lease, is_label};
use super::words::Words;

/// The cluster of every story.
pub const CLUSTER: Cluster = Cluster(*b"stories!");

/// Room for the lists that a command borrows.
#[derive(Default)]
pub struct Room<'a> {
    wanted: Vec<(&'a str, Access)>,
    leases: Vec<LeaseId>,
    reports: Vec<Report<'a>>,
}

/// What the answer to a command needs to be understood.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub secret: [u8; 32],
    /// The resources, the queue, or the key.
    pub names: Vec<String>,
    pub lease: Option<Lease>,
    pub message: u64,
}

/// One command of a story.
pub struct Asked<'a> {
    pub request: Request,
    pub command: Command<'a>,
    pub context: Context,
    /// What the story calls the request, if its answer comes later.
    pub called: Option<&'a str>,
}

/// The words as a command; nothing if they are none.
pub fn asked<'a>(
    labels: &Labels,
    words: &'a [String],
    tag: u64,
    room: &'a mut Room<'a>,
) -> Result<Option<Asked<'a>>, String> {
    let mut at = Words::new(words);
    let mut context = Context { secret: [tag as u8; 32], ..Context::default() };
    let mut about = About { labels, request: Request::tagged(tag), called: None };
    let Some(command) = command(&mut about, &mut at, &mut context, room)? else {
        return Ok(None);
    };
    while !at.is_empty() {
        if !about.option(&mut at)? {
            at.end()?;
        }
    }
    if let Some(id) = &mut about.request.id {
        id.digest = digest(words);
    }
    Ok(Some(Asked { request: about.request, command, context, called: about.called }))
}

/// What may be said beside every command: its request id, a token shown with it, how it is called.
struct About<'a, 'l> {
    labels: &'l Labels,
    request: Request,
    called: Option<&'a str>,
}

impl<'a> About<'a, '_> {
    fn option(&mut self, at: &mut Words<'a>) -> Result<bool, String> {
        if at.take("request") {
            let sequence = at.number("a sequence")?;
            at.must("of")?;
            let (session, _) = self.labels.session(at.word("a session")?)?;
            let lowest = if at.take("lowest") { at.number("a sequence")? } else { 1 };
            self.request.id = Some(RequestId { session, sequence, lowest, digest: 0 });
        } else if at.take("showing") {
            self.request.shown = Some(self.shown(at)?);
        } else if at.take("called") {
            self.called = Some(at.word("a label")?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn shown(&self, at: &mut Words<'a>) -> Result<Token, String> {
        let lease = self.labels.lease(at.word("a lease")?)?;
        let mut token = token_of(lease);
        if at.take("of another cluster") {
            token.cluster = Cluster(*b"elsewher");
        } else if at.take("of another incarnation") {
            token.incarnation = Incarnation(token.incarnation.0 ^ 0xffff);
        } else if at.take("plus") {
            let ahead = at.millis("a span")? << 22;
            token.number = Number::new(token.number.get() + ahead).ok_or("too large a number")?;
        }
        Ok(token)
    }

    /// A lease by its label, or by its resource and its label, with what its holder says about itself.
    fn held(&self, at: &mut Words<'a>) -> Result<(Held<'a>, Lease), String> {
        let first = at.word("a lease")?;
        let (which, label) = if is_label(first) {
            (None, first)
        } else {
            at.must("with")?;
            (Some(first), at.word("a lease")?)
        };
        let lease = self.labels.lease(label)?.clone();
        let number = lease.number;
        let which = which.map_or(Which::Id(lease.id), Which::Resource);
        let mut held = Held { lease: which, number, session: None, holder: None };
        loop {
            if at.take("by") {
                held.holder = Some(at.word("a holder")?);
            } else if at.take("in") {
                held.session = Some(self.session(at)?);
            } else {
                return Ok((held, lease));
            }
        }
    }

    fn session(&self, at: &mut Words<'a>) -> Result<SessionId, String> {
        self.labels.session(at.word("a session")?).map(|(id, _)| id)
    }

    fn which(&self, at: &mut Words<'a>) -> Result<(Which<'a>, Option<Lease>), String> {
        let word = at.word("a lease or a resource")?;
        if !is_label(word) {
            return Ok((Which::Resource(word), None));
        }
        let lease = self.labels.lease(word)?.clone();
        Ok((Which::Id(lease.id), Some(lease)))
    }
}

/// The token that a holder shows at a target.
pub fn token_of(lease: &Lease) -> Token {
    let resource = resource_hash(&lease.resource);
    Token { cluster: CLUSTER, incarnation: lease.incarnation, resource, reach: lease.reach, number: lease.number }
}

/// The kinds of commands, one after the other.
fn command<'a>(
    about: &mut About<'a, '_>,
    at: &mut Words<'a>,
    context: &mut Context,
    room: &'a mut Room<'a>,
) -> Result<Option<Command<'a>>, String> {
    if at.take("show token") {
        about.request.shown = Some(about.shown(at)?);
        return Ok(Some(Command::Show));
    }
    let Room { wanted, leases, reports } = room;
    if let Some(command) = reports::asked(about, at, reports)? {
        return Ok(Some(command));
    }
    if let Some(command) = payloads::asked(about, at, context)? {
        return Ok(Some(command));
    }
    if let Some(command) = sessions::asked(about, at, context, leases)? {
        return Ok(Some(command));
    }
    if let Some(command) = leases::acquired(about, at, context, wanted)? {
        return Ok(Some(command));
    }
    if let Some(command) = leases::held(about, at, context)? {
        return Ok(Some(command));
    }
    authority::asked(about, at, context)
}

pub fn because<'a>(at: &mut Words<'a>) -> Result<&'a str, String> {
    if at.take("because") { at.word("why") } else { Ok("") }
}

/// A digest of what is asked, without the request id and what the story calls it.
fn digest(words: &[String]) -> u64 {
    let end = words.iter().position(|word| word == "request").unwrap_or(words.len());
    words[..end]
        .iter()
        .flat_map(|word| word.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
