//! Parses lines of a story into commands.

mod leases;
mod operator;
mod payloads;
mod reports;
mod sessions;

use leasehold_core::command::{Command, LeaseRef, LeaseSelector, Proof, Request, RequestId};
use leasehold_core::coverage::FenceReport;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Access;
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token};

use super::caller_proof;
use super::labels::{Labels, Lease, is_label};
use super::tokenizer::WordReader;

/// The cluster of every story.
pub const CLUSTER: Cluster = Cluster(*b"stories!");

/// Owns the lists that a command borrows.
#[derive(Default)]
pub struct CommandLists<'a> {
    resources: Vec<(&'a str, Access)>,
    leases: Vec<LeaseId>,
    reports: Vec<FenceReport<'a>>,
}

/// Context that is needed to format the answer to a command.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub secret: [u8; 32],
    /// Names of the resources, the queue or the key.
    pub names: Vec<String>,
    pub lease: Option<Lease>,
    pub message: u64,
}

/// One command of a story.
pub struct ParsedCommand<'a> {
    pub request: Request<'static>,
    pub command: Command<'a>,
    pub context: Context,
    /// Label of the request, if its answer comes later.
    pub called: Option<&'a str>,
}

/// Parses a command; `None` if the line is not one.
pub fn parse<'a>(
    labels: &Labels,
    words: &'a [String],
    tag: u64,
    lists: &'a mut CommandLists<'a>,
) -> Result<Option<ParsedCommand<'a>>, String> {
    let mut at = WordReader::new(words);
    let mut context = Context { secret: [tag as u8; 32], ..Context::default() };
    let mut line = LineParser { labels, request: Request::tagged(tag), called: None, proof: None };
    let Some(command) = command(&mut line, &mut at, &mut context, lists)? else {
        return Ok(None);
    };
    while !at.is_empty() {
        if !line.option(&mut at)? {
            at.end()?;
        }
    }
    if let Some(id) = &mut line.request.id {
        id.digest = digest(words);
    }
    line.request.proof =
        line.proof.unwrap_or_else(|| caller_proof::of(labels, &line.request, &command, context.lease.as_ref()));
    Ok(Some(ParsedCommand { request: line.request, command, context, called: line.called }))
}

/// Parses the options of every command: request id, presented token, proof and label.
struct LineParser<'a, 'l> {
    labels: &'l Labels,
    request: Request<'static>,
    called: Option<&'a str>,
    /// What the request proves, if the story says so. A caller otherwise presents the secrets of everything that it names.
    proof: Option<Proof>,
}

impl<'a> LineParser<'a, '_> {
    fn option(&mut self, at: &mut WordReader<'a>) -> Result<bool, String> {
        if at.take("request") {
            let sequence = at.number("a sequence")?;
            at.must("of")?;
            let (session, _) = self.labels.session(at.word("a session")?)?;
            let lowest = if at.take("lowest") { at.number("a sequence")? } else { 1 };
            self.request.id = Some(RequestId { session, sequence, lowest, digest: 0 });
        } else if at.take("also showing") {
            self.request.presented = Some(self.presented_token(at)?);
            self.request.proven.presented = at.take("sealed");
        } else if at.take("showing") {
            self.request.observed = Some(self.presented_token(at)?);
            self.request.proven.observed = at.take("sealed");
        } else if at.take("presenting no secret") {
            self.proof = Some(Proof::NONE);
        } else if at.take("presenting the secret of") {
            self.proof = Some(caller_proof::secret(self.labels, at.word("a lease or a session")?)?);
        } else if at.take("on the stream of") {
            self.proof = Some(Proof::of_stream(self.session(at)?));
        } else if at.take("called") {
            self.called = Some(at.word("a label")?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn presented_token(&self, at: &mut WordReader<'a>) -> Result<Token, String> {
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

    /// Parses a reference to a lease: its label, optionally with its resource and holder.
    fn held(&self, at: &mut WordReader<'a>) -> Result<(LeaseRef<'a>, Lease), String> {
        let first = at.word("a lease")?;
        let (selector, label) = if is_label(first) {
            (None, first)
        } else {
            at.must("with")?;
            (Some(first), at.word("a lease")?)
        };
        let lease = self.labels.lease(label)?.clone();
        let number = lease.number;
        let selector = selector.map_or(LeaseSelector::Id(lease.id), LeaseSelector::Resource);
        let mut held = LeaseRef { selector, number, session: None, holder: None };
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

    fn session(&self, at: &mut WordReader<'a>) -> Result<SessionId, String> {
        self.labels.session(at.word("a session")?).map(|(id, _)| id)
    }

    fn selector(&self, at: &mut WordReader<'a>) -> Result<(LeaseSelector<'a>, Option<Lease>), String> {
        let word = at.word("a lease or a resource")?;
        if !is_label(word) {
            return Ok((LeaseSelector::Resource(word), None));
        }
        let lease = self.labels.lease(word)?.clone();
        Ok((LeaseSelector::Id(lease.id), Some(lease)))
    }
}

/// The token that a holder presents to a target.
pub fn token_of(lease: &Lease) -> Token {
    let resource = resource_hash(&lease.resource);
    Token { cluster: CLUSTER, incarnation: lease.incarnation, resource, scope: lease.scope, number: lease.number }
}

/// Tries the groups of commands in order.
fn command<'a>(
    line: &mut LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    context: &mut Context,
    lists: &'a mut CommandLists<'a>,
) -> Result<Option<Command<'a>>, String> {
    if at.take("show token") {
        line.request.observed = Some(line.presented_token(at)?);
        line.request.proven.observed = at.take("sealed");
        return Ok(Some(Command::ObserveToken));
    }
    let CommandLists { resources, leases, reports } = lists;
    if let Some(command) = reports::parse(line, at, reports)? {
        return Ok(Some(command));
    }
    if let Some(command) = payloads::parse(line, at, context)? {
        return Ok(Some(command));
    }
    if let Some(command) = sessions::parse(line, at, context, leases)? {
        return Ok(Some(command));
    }
    if let Some(command) = leases::parse_acquire(line, at, context, resources)? {
        return Ok(Some(command));
    }
    if let Some(command) = leases::parse_lease_command(line, at, context)? {
        return Ok(Some(command));
    }
    operator::parse(line, at, context)
}

pub fn parse_comment<'a>(at: &mut WordReader<'a>) -> Result<&'a str, String> {
    if at.take("because") { at.word("a comment") } else { Ok("") }
}

/// Digest of a command line, without its request id and label.
fn digest(words: &[String]) -> u64 {
    let end = words.iter().position(|word| word == "request").unwrap_or(words.len());
    words[..end]
        .iter()
        .flat_map(|word| word.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
