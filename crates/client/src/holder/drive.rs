//! The holder's thread: what is asked, heard and due goes into the line, and what the line wants sent goes out.

use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt;
use leasehold_core::time::Instant;

use super::inbox::Inbox;
use super::line::Line;
use crate::clock::Clock;
use crate::route::Whom;
use crate::stream::{Asking, Heard, Hearing};
use crate::{Address, Client, Error, Opened};

/// How soon a full connection is tried again, in milliseconds.
const FULL_RETRY: u64 = 5;

/// A stream on its way.
type Connecting = Pin<Box<dyn Future<Output = (Instant, Made)> + Send>>;

/// Runs until nobody needs it any more.
pub(super) async fn drive(mut line: Line, clock: Clock, inbox: Arc<Inbox>) {
    let mut stream: Option<(Asking, Hearing)> = None;
    // A silent stream is used until there is another: whoever is only busy hears every renewal, and answers it.
    let mut walking: Option<Connecting> = None;
    let mut knocking = Knocking::default();
    let mut asks = Vec::new();
    let _ended = Ended { inbox: &inbox, clock: &clock };
    while !line.over {
        let now = clock.now();
        let closed = inbox.drain(&mut asks);
        asks.drain(..).for_each(|ask| line.take(now, ask));
        if closed && line.closing.is_none() {
            line.close(now, None);
        }
        line.turn(now);
        if !line.connected {
            stream = None;
        }
        if line.lacks_stream(now) {
            if let Some(silent) = stream.as_ref().and_then(|(_, hearing)| hearing.from()) {
                line.client.doubt(silent);
            }
            if line.may_connect(now) {
                if walking.is_none() && line.client.knows_others() {
                    walking = Some(connect(&line, &clock, Whom::Others(line.welcome_within())));
                }
                knocking.begin(&line, &clock);
            }
        }
        let mut full = false;
        if let Some((asking, _)) = &stream {
            while asking.has_room() {
                // The clock was read before, so that every deadline counts from before the sending.
                let Some(batch) = line.flush(now) else { break };
                if asking.send(batch).await.is_err() {
                    break;
                }
            }
            full = !asking.has_room();
        }
        // Where nobody else can be asked, those who are doubted are waited for.
        let asking = walking.is_some() || !(knocking.0.is_empty() || line.client.knows_others());
        let due = line.next_due(asking);
        let due = if full { due.min(now.plus_millis(FULL_RETRY)) } else { due };
        let woke = tokio::select! {
            biased;
            never = clock.look() => match never {},
            heard = hear(&mut stream), if stream.is_some() => Woke::Heard(heard),
            (sent, made) = made(&mut walking), if walking.is_some() => {
                walking = None;
                Woke::Made(sent, made)
            }
            (sent, made) = knocking.made(), if !knocking.0.is_empty() => Woke::Made(sent, made),
            () = inbox.arrived.notified() => Woke::Asked,
            () = clock.sleep_until(due) => Woke::Due,
        };
        clock.gate().await;
        match woke {
            Woke::Heard(Ok(heard)) => line.hear(clock.now(), heard),
            Woke::Heard(Err(error)) => {
                tracing::debug!("{error}");
                stream = None;
                line.broken(clock.now());
            }
            Woke::Made(sent, made) => {
                if made.is_ok() {
                    hear_out(&mut line, &clock, &mut stream);
                }
                if let Some(begun) = begun(&mut line, clock.now(), sent, made) {
                    (stream, walking, knocking) = (Some(begun), None, Knocking::default());
                }
            }
            Woke::Asked | Woke::Due => {}
        }
    }
}

/// However the thread ends, whoever asks it something is told.
struct Ended<'a> {
    inbox: &'a Inbox,
    clock: &'a Clock,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.inbox.end();
        self.clock.left();
    }
}

/// A stream that was made, or why not.
type Made = Result<(Opened, Asking, Hearing), Error>;

/// What woke the thread.
enum Woke {
    Heard(Result<Heard, Error>),
    Made(Instant, Made),
    Asked,
    Due,
}

async fn hear(stream: &mut Option<(Asking, Hearing)>) -> Result<Heard, Error> {
    match stream {
        Some((_, hearing)) => hearing.next().await,
        None => std::future::pending().await,
    }
}

async fn made(connecting: &mut Option<Connecting>) -> (Instant, Made) {
    match connecting {
        Some(connecting) => connecting.await,
        None => std::future::pending().await,
    }
}

/// What a silent stream has said by now, before another takes its place.
fn hear_out(line: &mut Line, clock: &Clock, stream: &mut Option<(Asking, Hearing)>) {
    if let Some((_, hearing)) = stream {
        while let Some(Ok(heard)) = hearing.next().now_or_never() {
            line.hear(clock.now(), heard);
        }
    }
}

/// Hellos to those who are doubted, side by side: each may be the one that is only slow.
#[derive(Default)]
struct Knocking(Vec<(Address, Connecting)>);

impl Knocking {
    fn begin(&mut self, line: &Line, clock: &Clock) {
        for at in line.client.doubted() {
            if self.0.iter().all(|(other, _)| *other != at) {
                let whom = Whom::Doubted(at.clone(), line.welcome_at_last_within());
                self.0.push((at, connect(line, clock, whom)));
            }
        }
    }

    /// The first that ends.
    async fn made(&mut self) -> (Instant, Made) {
        let all = self.0.iter_mut().map(|(_, knocking)| knocking);
        let (made, index, _) = futures::future::select_all(all).await;
        drop(self.0.swap_remove(index));
        made
    }
}

/// Opens a stream, or comes back to the session on a new one.
fn connect(line: &Line, clock: &Clock, whom: Whom) -> Connecting {
    let clock = clock.clone();
    let (client, holder, resume): (Client, String, _) =
        (line.client.clone(), line.settings.holder.clone(), line.resume());
    let ttl_ms = line.settings.timing.ttl_ms();
    Box::pin(async move {
        let sent = clock.now();
        (sent, client.stream_with(whom, &holder, ttl_ms, resume.as_ref()).await)
    })
}

fn begun(line: &mut Line, now: Instant, sent: Instant, made: Made) -> Option<(Asking, Hearing)> {
    match made {
        Ok((opened, asking, hearing)) => match line.connected(now, sent, &opened) {
            Ok(()) => return Some((asking, hearing)),
            Err(error) => {
                tracing::warn!("{error}");
                line.connect_later(now);
            }
        },
        Err(error) => {
            tracing::debug!("{error}");
            let denied = error.code() == Some(crate::Code::PermissionDenied);
            if line.session.is_some() && (denied || error.session_over()) {
                line.session_over(now);
            } else {
                line.unreached = Some(error);
                line.connect_later(now);
            }
        }
    }
    None
}
