//! How a request finds the server that decides: the one that answered last, then the others, then whom they point at.

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use leasehold_wire::headers::{IDEMPOTENCY_KEY, POSITION, STANDBY, TOKEN_SEEN};
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use leasehold_wire::{ANSWER_BYTES, Code, from_status};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{ConnectError, Request, Response, Status};

use crate::{Address, Client, Error};

/// How often a request follows a hint to the leader.
const HINTS: u32 = 3;
/// Servers beyond the endpoints, known by hints, whose connections are kept.
const HINTED: usize = 16;
/// A connection on which a request waits shows that it lives this often.
const PULSE: Duration = Duration::from_secs(10);
/// How long whoever is doubted has to answer.
const DOUBTED: Duration = Duration::from_secs(2);

/// What sending a request a second time would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It changes nothing.
    Look,
    /// It changes something, and no harm comes of asking again.
    Again,
    /// It changes something, perhaps twice.
    Change,
}

/// Who is asked for a stream. A server that stands still takes connections and says nothing, and one that is busy says as
/// little: so the others are asked while whoever is doubted is waited for.
#[derive(Clone, Debug)]
pub(crate) enum Whom {
    /// Everybody, as patiently as for any request.
    Anybody,
    /// Everybody who is not doubted, each for so long.
    Others(Duration),
    /// One who is doubted, for so long.
    Doubted(Address, Duration),
}

/// What came of one attempt.
enum Attempt<A> {
    Told(Result<A, Error>),
    /// Another server decides.
    Elsewhere(Error),
    /// The request never left.
    Unreached(String),
    /// The request may have been heard.
    Broken(String),
}

impl Client {
    /// Sends a message until a server that decides has answered. `wait` is what the request itself asks to wait.
    pub(crate) async fn call<M, A, S, W>(&self, nature: Nature, wait: Duration, message: M, send: S) -> Result<A, Error>
    where
        M: Clone,
        S: Fn(LeaseholdClient<Channel>, Request<M>) -> W,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let nature = if self.key.is_some() && nature == Nature::Change { Nature::Again } else { nature };
        let asked = self.walk(self.order(), nature, |at| self.patience(at, nature, wait), message, send).await;
        asked.map(|(_, answer)| answer)
    }

    /// Sends a hello until a server has welcomed it. Tells which.
    pub(crate) async fn greet<M, A, S, W>(&self, whom: Whom, hello: M, send: S) -> Result<(Address, A), Error>
    where
        M: Clone,
        S: Fn(LeaseholdClient<Channel>, Request<M>) -> W,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let (queue, most) = match whom {
            Whom::Anybody => (self.order(), None),
            Whom::Others(most) => (self.order().into_iter().filter(|at| !self.doubts(at)).collect(), Some(most)),
            Whom::Doubted(at, most) => ([at].into(), Some(most)),
        };
        let patience = |at: &Address| most.unwrap_or_else(|| self.patience(at, Nature::Again, Duration::ZERO));
        self.walk(queue, Nature::Again, patience, hello, send).await
    }

    /// Asks one server after the other, and whom they point at. Tells who answered.
    async fn walk<M, A, S, W>(
        &self,
        mut queue: VecDeque<Address>,
        nature: Nature,
        patience: impl Fn(&Address) -> Duration,
        message: M,
        send: S,
    ) -> Result<(Address, A), Error>
    where
        M: Clone,
        S: Fn(LeaseholdClient<Channel>, Request<M>) -> W,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let mut hints = HINTS;
        let mut broken_before = false;
        let mut elsewhere = None;
        let mut missed = Vec::new();
        while let Some(at) = queue.pop_front() {
            let sent = send(self.service(&at)?, self.marked(message.clone()));
            match self.attempt(&at, nature, patience(&at), sent).await {
                Attempt::Told(answer) => {
                    self.state().answered = Some(at.clone());
                    return answer.map(|answer| (at, answer));
                }
                Attempt::Elsewhere(error) => {
                    let hint = error.leader().and_then(|leader| Address::parse(leader).ok());
                    // Others may point at one that stands still until they have noticed. Its turn comes in any case.
                    if let Some(leader) = hint.filter(|leader| hints > 0 && !self.doubts(leader)) {
                        hints -= 1;
                        queue.retain(|other| *other != leader);
                        queue.push_front(leader);
                    }
                    elsewhere = Some(error);
                }
                Attempt::Unreached(why) => missed.push(format!("{at}: {why}")),
                Attempt::Broken(why) => {
                    if nature == Nature::Change {
                        return Err(self.unknown(&format!("{at}: {why}")));
                    }
                    missed.push(format!("{at}: {why}"));
                    // Once more where nobody else can be asked: the server may just have been started again. Whoever says
                    // nothing was not.
                    if !broken_before && queue.is_empty() && !self.doubts(&at) {
                        queue.push_back(at);
                    }
                    broken_before = true;
                }
            }
        }
        let missed = missed.join(", ");
        Err(match elsewhere {
            _ if broken_before && nature == Nature::Again => self.unknown(&missed),
            Some(error) => error,
            None => Error::unavailable(format!("no server answers ({missed})")),
        })
    }

    /// The server that answered last, then every other once, and those who are doubted last.
    fn order(&self) -> VecDeque<Address> {
        let state = self.state();
        let (answered, doubted) = (state.answered.as_ref(), &state.doubted);
        let known = self.shared.endpoints.all().iter();
        let others = known.filter(|address| Some(*address) != answered && !doubted.contains(*address));
        answered.into_iter().chain(others).chain(doubted).cloned().collect()
    }

    /// A server says nothing any more.
    pub(crate) fn doubt(&self, silent: &Address) {
        let mut state = self.state();
        state.answered.take_if(|answered| answered == silent);
        state.doubted.insert(silent.clone());
    }

    fn doubts(&self, at: &Address) -> bool {
        self.state().doubted.contains(at)
    }

    /// Those who are doubted.
    pub(crate) fn doubted(&self) -> Vec<Address> {
        self.state().doubted.iter().cloned().collect()
    }

    /// Whether somebody can be asked who is not doubted.
    pub(crate) fn knows_others(&self) -> bool {
        let state = self.state();
        state.doubted.is_empty() || self.shared.endpoints.all().iter().any(|at| !state.doubted.contains(at))
    }

    fn patience(&self, at: &Address, nature: Nature, wait: Duration) -> Duration {
        let patience = self.shared.options.connect + self.shared.options.request + wait;
        // Where another may be asked, and asking again does no harm.
        let brief = nature == Nature::Again && wait.is_zero() && self.knows_others();
        if brief && self.doubts(at) { patience.min(DOUBTED) } else { patience }
    }

    async fn attempt<A>(
        &self,
        at: &Address,
        nature: Nature,
        patience: Duration,
        sent: impl Future<Output = Result<Response<A>, Status>>,
    ) -> Attempt<A> {
        let Ok(answered) = tokio::time::timeout(patience, sent).await else {
            self.doubt(at);
            return Attempt::Broken(format!("no answer within {} ms", patience.as_millis()));
        };
        self.state().doubted.remove(at);
        let status = match answered {
            Ok(response) => {
                let position = response.metadata().get(POSITION).and_then(|text| text.to_str().ok()?.parse().ok());
                if position.is_some() {
                    self.state().position = position;
                }
                return Attempt::Told(Ok(response.into_inner()));
            }
            Err(status) => status,
        };
        if let Some(why) = unconnected(&status) {
            return Attempt::Unreached(why);
        }
        let error = Error::from(from_status(&status));
        match error.code() {
            Some(Code::NotLeader) => Attempt::Elsewhere(error),
            // A server that stops tells it so; a connection that broke tells nothing.
            Some(Code::Indeterminate) if nature != Nature::Change || status.details().is_empty() => {
                Attempt::Broken(cause(&status))
            }
            _ => Attempt::Told(Err(error)),
        }
    }

    fn unknown(&self, why: &str) -> Error {
        let message = format!("the answer did not come, and it may have happened ({why})");
        Error::indeterminate(message, self.key.map(|key| key.to_string()))
    }

    fn marked<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        let mut mark = |name: &'static str, text: String| {
            if let Ok(value) = MetadataValue::try_from(text) {
                request.metadata_mut().insert(name, value);
            }
        };
        if let Some(key) = self.key {
            mark(IDEMPOTENCY_KEY, key.to_string());
        }
        if let Some(least) = self.standby {
            mark(STANDBY, least.to_string());
        }
        if let Some(seen) = self.seen() {
            mark(TOKEN_SEEN, seen.to_string());
        }
        request
    }

    /// The service at an address; its connection is made when it is first used, and again when it broke.
    pub(crate) fn service(&self, at: &Address) -> Result<LeaseholdClient<Channel>, Error> {
        let mut state = self.state();
        if !state.channels.contains_key(at) {
            let endpoint = Endpoint::from_shared(format!("http://{at}"))
                .map_err(|error| Error::config("addr", format!("addr: {at}: {error}; name another")))?
                .connect_timeout(self.shared.options.connect)
                .http2_keep_alive_interval(PULSE)
                .keep_alive_timeout(PULSE);
            let known = self.shared.endpoints.all();
            if state.channels.len() >= known.len() + HINTED {
                state.channels.retain(|address, _| known.contains(address));
            }
            state.channels.insert(at.clone(), endpoint.connect_lazy());
        }
        let channel = state.channels.get(at).expect("just made").clone();
        Ok(LeaseholdClient::new(channel).max_decoding_message_size(ANSWER_BYTES))
    }
}

/// Why no connection was made, if that is what happened: nothing was sent then.
fn unconnected(status: &Status) -> Option<String> {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return Some(deepest(error));
        }
        source = error.source();
    }
    None
}

fn cause(status: &Status) -> String {
    status.source().map_or_else(|| status.message().to_owned(), deepest)
}

/// The last link of a chain of causes: the one that says something.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
