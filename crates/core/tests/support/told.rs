//! What was answered, in the words of stories, and whether that is what the story expected.

use leasehold_core::command::{Answer, Current, Event, Grant};
use leasehold_core::lease::Reason;
use leasehold_core::payload::{cache, delivery};
use leasehold_core::refusal::{Cycle, NotCurrent, Refusal};
use leasehold_core::time::Millis;
use leasehold_core::token::{Incarnation, Number, Reach};

use super::ask::Context;
use super::labels::{Labels, Lease, Thing, is_label};
use super::words::{self, span};

/// An answer as it is compared.
#[derive(Clone, Debug)]
pub enum Heard {
    /// The expected words are how it begins.
    Begins(String),
    /// The expected words are all of it.
    Exactly(String),
    /// A word, what it names, and facts beside it, any of which the story may mention.
    Says { head: &'static str, things: Vec<Thing>, facts: Vec<String> },
}

impl Heard {
    fn says(head: &'static str, things: Vec<Thing>, facts: Vec<String>) -> Self {
        Self::Says { head, things, facts }
    }

    pub fn facts(facts: Vec<String>) -> Self {
        Self::Says { head: "", things: Vec::new(), facts }
    }

    pub fn list(items: impl IntoIterator<Item = String>) -> Self {
        let items: Vec<String> = items.into_iter().collect();
        Self::Exactly(if items.is_empty() { "nothing".to_owned() } else { items.join(", ") })
    }

    /// Compares with what the story expects; new labels are given to what they name.
    pub fn check(&self, expected: &str, labels: &mut Labels) -> Result<(), String> {
        let wrong = |labels: &Labels| {
            Err(format!("expected `{expected}`, got `{}` ({})", self.text(), labels.normal(expected)))
        };
        match self {
            Self::Begins(text) => {
                let expected = labels.normal(expected);
                let begins = text.strip_prefix(expected.as_str());
                if begins.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ','])) {
                    Ok(())
                } else {
                    wrong(labels)
                }
            }
            Self::Exactly(text) => {
                if *text == labels.normal(expected) {
                    Ok(())
                } else {
                    wrong(labels)
                }
            }
            Self::Says { head, things, facts } => {
                let mut parts = expected.split(',').map(str::trim);
                if !head.is_empty() {
                    let first = parts.next().unwrap_or_default();
                    let rest = match first.strip_prefix(head) {
                        Some(rest) if rest.is_empty() || rest.starts_with(' ') => rest,
                        _ => return wrong(labels),
                    };
                    name(rest, things, labels)
                        .map_err(|why| format!("expected `{expected}`, got `{}`: {why}", self.text()))?;
                }
                for part in parts {
                    if !facts.contains(&labels.normal(part)) {
                        return wrong(labels);
                    }
                }
                Ok(())
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Begins(text) | Self::Exactly(text) => text.clone(),
            Self::Says { head, things, facts } => {
                let things = things.iter().map(Thing::sign);
                let first = std::iter::once((*head).to_owned()).chain(things).collect::<Vec<_>>().join(" ");
                std::iter::once(first).chain(facts.iter().cloned()).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// Gives labels to what was told, in order, and compares numbers: `W2 above W1`.
fn name(rest: &str, things: &[Thing], labels: &mut Labels) -> Result<(), String> {
    let words = words::split(rest);
    let mut things_left = things.iter();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "and" | "under" => {}
            "above" | "below" => {
                let other = labels.number(words.next().ok_or("the line ends early")?)?;
                let numbers = things.iter().filter_map(Thing::number);
                if !numbers.clone().all(|number| (number > other) == (word == "above")) {
                    return Err(format!("not {word} {other}"));
                }
            }
            label if is_label(label) => {
                labels.bind(label, things_left.next().ok_or_else(|| format!("nothing is left for {label}"))?)?;
            }
            other => return Err(format!("nobody knows what {other} means here")),
        }
    }
    Ok(())
}

/// An answer in the words of stories.
pub fn answer(answer: &Answer, context: &Context, incarnation: Incarnation) -> Heard {
    match answer {
        Answer::Done => Heard::says("done", Vec::new(), Vec::new()),
        Answer::Session(grant) => {
            let thing = Thing::Session { id: grant.session, secret: context.secret };
            let mut facts = vec![format!("for {}", span(grant.remaining_ms))];
            facts.push(if grant.mismatch { "mismatch" } else { "match" }.to_owned());
            Heard::says("session", vec![thing], facts)
        }
        Answer::Granted(grant) => granted(&[*grant], context, incarnation),
        Answer::GrantedAll(grants) => granted(grants, context, incarnation),
        Answer::Current(current) => still(current, context),
        Answer::Waiting { position } => Heard::Exactly(format!("waiting {position}")),
        Answer::CollectBelow(below) => Heard::Exactly(format!("below {below}")),
        Answer::Stored { revision } => Heard::Exactly(format!("stored {revision}")),
        Answer::Delivery(answer) => delivered(answer, context),
        Answer::Cache(answer) => reading(answer, context),
        Answer::Refused(refusal) => Heard::Begins(refused(refusal)),
        other => Heard::Begins(format!("{other:?}")),
    }
}

fn granted(grants: &[Grant], context: &Context, incarnation: Incarnation) -> Heard {
    let things = grants.iter().zip(&context.names).map(|(grant, name)| {
        Thing::Lease(Lease {
            id: grant.lease,
            number: grant.number,
            resource: name.clone(),
            reach: grant.reach,
            incarnation,
        })
    });
    let mut facts = Vec::new();
    for grant in grants {
        facts.push(format!("for {}", span(grant.remaining_ms)));
        facts.push(format!("depth {}", grant.depth));
        facts.push(format!("rung {}", grant.rung.word()));
        facts.push(format!("drain period {}", span(grant.drain_ms)));
        facts.push(grant.overlaps_ms.map_or("no overlap".to_owned(), |ms| format!("overlapping {}", span(ms))));
        facts.push(match grant.reach {
            Reach::Slot(slot) => format!("slot {slot}"),
            Reach::Shared => "shared".to_owned(),
            Reach::Units => "units".to_owned(),
        });
    }
    Heard::says("granted", things.collect(), facts)
}

fn still(current: &Current, context: &Context) -> Heard {
    let thing = context.lease.clone().map(|lease| Thing::Lease(Lease { number: current.number, ..lease }));
    let mut facts = vec![format!("for {}", span(current.remaining_ms))];
    facts.push(current.drain_ms.map_or("not draining".to_owned(), |ms| format!("draining {}", span(ms))));
    facts.push(current.overlaps_ms.map_or("no overlap".to_owned(), |ms| format!("overlapping {}", span(ms))));
    Heard::says("current", thing.into_iter().collect(), facts)
}

fn delivered(answer: &delivery::Answer, context: &Context) -> Heard {
    use delivery::Answer::{Acked, Dropped, Enqueued, Extended, Received, Redriven, Returned};
    let queue = || context.names.first().cloned().unwrap_or_default();
    match answer {
        Enqueued { item } => Heard::says("message", vec![Thing::Message { queue: queue(), item: *item }], Vec::new()),
        Received(items) if items.is_empty() => Heard::Exactly("received nothing".to_owned()),
        Received(items) => {
            let mut things = Vec::new();
            let mut facts = Vec::new();
            for one in items {
                things.push(Thing::Message { queue: queue(), item: one.item });
                things.push(Thing::Receipt { queue: queue(), item: one.item, receipt: one.receipt });
                facts.push(format!("attempt {}", one.attempt));
                facts.push(format!("saying {}", String::from_utf8_lossy(&one.body)));
                facts.push(format!("for {}", span(one.remaining_ms)));
            }
            Heard::says("received", things, facts)
        }
        Extended { remaining_ms } => Heard::Exactly(format!("extended for {}", span(*remaining_ms))),
        Acked => Heard::Exactly("acked".to_owned()),
        Returned { dead } => Heard::Exactly(if *dead { "returned dead" } else { "returned" }.to_owned()),
        Redriven => Heard::Exactly("redriven".to_owned()),
        Dropped => Heard::Exactly("dropped".to_owned()),
    }
}

fn reading(answer: &cache::Answer, context: &Context) -> Heard {
    use cache::Answer::{Aborted, Committed, Dropped, Fill, Filled, Intended, Reading, Wait};
    let thing =
        |number: Number| vec![Thing::Cached { key: context.names.first().cloned().unwrap_or_default(), number }];
    let version = |version: u64| if version == 0 { "version none".to_owned() } else { format!("version #{version}") };
    match answer {
        Reading { version: at, lease, remaining_ms } => {
            Heard::says("reading", thing(*lease), vec![version(*at), format!("for {}", span(*remaining_ms))])
        }
        Dropped => Heard::Exactly("dropped".to_owned()),
        Intended { intent, waiting_for, .. } => {
            Heard::says("intends", thing(*intent), vec![format!("waiting for {waiting_for}")])
        }
        Committed { version: at } => Heard::says("committed", Vec::new(), vec![version(*at)]),
        Aborted => Heard::Exactly("aborted".to_owned()),
        Fill { token, remaining_ms } => {
            Heard::says("fill", thing(*token), vec![format!("for {}", span(*remaining_ms))])
        }
        Wait { remaining_ms } => Heard::Exactly(format!("wait {}", span(*remaining_ms))),
        Filled { version: at } => Heard::says("filled", Vec::new(), vec![version(*at)]),
    }
}

/// A refusal: its stable code, then what tells it apart.
pub fn refused(refusal: &Refusal) -> String {
    let detail = match refusal {
        Refusal::Invalid { field, .. } => (*field).to_owned(),
        Refusal::Name(error) => error.field.to_owned(),
        Refusal::Token(error) => error.why().to_owned(),
        Refusal::NotFound(what) | Refusal::Conflict(what) => what.word().to_owned(),
        Refusal::Lost(reason) => ended(*reason),
        Refusal::NotCurrent(NotCurrent::Unknown) => "unknown".to_owned(),
        Refusal::NotCurrent(NotCurrent::NotHolder) => "not_holder".to_owned(),
        Refusal::NotCurrent(NotCurrent::Superseded) => "superseded".to_owned(),
        Refusal::Stale { mark, .. } => format!("behind #{mark}"),
        Refusal::Busy { position } => position.to_string(),
        Refusal::Deadlock(cycle) => cycle_told(cycle),
        Refusal::Exhausted { limit, max, got } => format!("{} {max} {got}", limit.word()),
        Refusal::TooOld { lowest } => lowest.to_string(),
        Refusal::Quarantined { remaining, .. } => span(*remaining),
        _ => String::new(),
    };
    format!("{} {detail}", refusal.code()).trim_end().to_owned()
}

pub fn ended(reason: Reason) -> String {
    format!("{} {}", reason.state().word(), reason.word())
}

fn cycle_told(cycle: &Cycle) -> String {
    let members = cycle.members.iter().map(|member| format!("{} for {}", member.holder, member.waits_for));
    format!("of {}, {}", cycle.length, members.collect::<Vec<_>>().join(", "))
}

/// A notice in the words of stories.
pub fn event(event: &Event, labels: &Labels, now: Millis) -> String {
    match event {
        Event::Granted { number, .. } => format!("granted #{number}"),
        Event::Ended { number, reason, .. } => format!("ended #{number} {}", ended(*reason)),
        Event::Draining { lease, until } => {
            format!("draining {} within {}", labels.sign_of(*lease), span(now.until(*until)))
        }
        Event::Drained { lease } => format!("drained {}", labels.sign_of(*lease)),
        Event::Invalidate { key, lease } => format!("invalidate {key} #{lease}"),
        Event::Ready { queue } => format!("ready {queue}"),
        Event::Clear { key, intent } => format!("clear {key} #{intent}"),
        Event::Deadlock(cycle) => format!("deadlock {}", cycle_told(cycle)),
        Event::RolledBack { shown } => format!("rolled back #{shown}"),
        Event::Zombie(zombie) => {
            let who = if zombie.holder.is_empty() { "nobody known" } else { &zombie.holder };
            let (target, presented, mark) = (&zombie.target, zombie.presented, zombie.mark);
            format!("zombie {who} at {target} #{presented} below #{mark} times {}", zombie.times)
        }
        other => format!("{other:?}"),
    }
}
