//! Expectations of stories: prints actual answers in the story format and compares them.

use leasehold_core::command::{Answer, CurrentLease, Grant, SessionEvent};
use leasehold_core::lease::EndReason;
use leasehold_core::payload::{cache, delivery};
use leasehold_core::refusal::{Cycle, NotCurrent, Refusal};
use leasehold_core::time::GrantorTime;
use leasehold_core::token::{Incarnation, Number, TokenScope};

use super::commands::Context;
use super::labels::{Entity, Labels, Lease, is_label};
use super::tokenizer::{self, span};

/// An actual answer, in the form in which it is compared.
#[derive(Clone, Debug)]
pub enum ActualAnswer {
    /// The expected text must be a prefix.
    Prefix(String),
    /// The expected text must be equal.
    Exact(String),
    /// A head word, the entities it names, and facts, of which the story may mention any.
    Structured { head: &'static str, entities: Vec<Entity>, facts: Vec<String> },
}

impl ActualAnswer {
    fn structured(head: &'static str, entities: Vec<Entity>, facts: Vec<String>) -> Self {
        Self::Structured { head, entities, facts }
    }

    pub fn facts(facts: Vec<String>) -> Self {
        Self::Structured { head: "", entities: Vec::new(), facts }
    }

    pub fn list(items: impl IntoIterator<Item = String>) -> Self {
        let items: Vec<String> = items.into_iter().collect();
        Self::Exact(if items.is_empty() { "nothing".to_owned() } else { items.join(", ") })
    }

    /// Compares with the expected text, and binds new labels.
    pub fn check(&self, expected: &str, labels: &mut Labels) -> Result<(), String> {
        let wrong = |labels: &Labels| {
            Err(format!("expected `{expected}`, got `{}` ({})", self.text(), labels.normal(expected)))
        };
        match self {
            Self::Prefix(text) => {
                let expected = labels.normal(expected);
                let rest = text.strip_prefix(expected.as_str());
                if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ','])) {
                    Ok(())
                } else {
                    wrong(labels)
                }
            }
            Self::Exact(text) => {
                if *text == labels.normal(expected) {
                    Ok(())
                } else {
                    wrong(labels)
                }
            }
            Self::Structured { head, entities, facts } => {
                let mut parts = expected.split(',').map(str::trim);
                if !head.is_empty() {
                    let first = parts.next().unwrap_or_default();
                    let rest = match first.strip_prefix(head) {
                        Some(rest) if rest.is_empty() || rest.starts_with(' ') => rest,
                        _ => return wrong(labels),
                    };
                    bind_labels(rest, entities, labels)
                        .map_err(|error| format!("expected `{expected}`, got `{}`: {error}", self.text()))?;
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
            Self::Prefix(text) | Self::Exact(text) => text.clone(),
            Self::Structured { head, entities, facts } => {
                let entities = entities.iter().map(Entity::sign);
                let first = std::iter::once((*head).to_owned()).chain(entities).collect::<Vec<_>>().join(" ");
                std::iter::once(first).chain(facts.iter().cloned()).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// Binds labels to the entities of an answer, in order, and compares numbers: `W2 above W1`.
fn bind_labels(rest: &str, entities: &[Entity], labels: &mut Labels) -> Result<(), String> {
    let words = tokenizer::split(rest);
    let mut entities_left = entities.iter();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "and" | "under" => {}
            "above" | "below" => {
                let other = labels.number(words.next().ok_or("the line ends early")?)?;
                let numbers = entities.iter().filter_map(Entity::number);
                if !numbers.clone().all(|number| (number > other) == (word == "above")) {
                    return Err(format!("not {word} {other}"));
                }
            }
            label if is_label(label) => {
                labels.bind(label, entities_left.next().ok_or_else(|| format!("nothing is left for {label}"))?)?;
            }
            other => return Err(format!("unknown word {other}")),
        }
    }
    Ok(())
}

/// Formats an answer.
pub fn answer(answer: &Answer, context: &Context, incarnation: Incarnation) -> ActualAnswer {
    match answer {
        Answer::Done => ActualAnswer::structured("done", Vec::new(), Vec::new()),
        Answer::Session(grant) => {
            let entity = Entity::Session { id: grant.session, secret: context.secret };
            let mut facts = vec![format!("for {}", span(grant.remaining_ms))];
            facts.push(if grant.mismatch { "mismatch" } else { "match" }.to_owned());
            ActualAnswer::structured("session", vec![entity], facts)
        }
        Answer::Granted(grant) => granted(&[*grant], context, incarnation),
        Answer::GrantedAll(grants) => granted(grants, context, incarnation),
        Answer::Current(current) => current_lease(current, context),
        Answer::Waiting { position } => ActualAnswer::Exact(format!("waiting {position}")),
        Answer::CollectBelow(below) => ActualAnswer::Exact(format!("below {below}")),
        Answer::Stored { revision } => ActualAnswer::Exact(format!("stored {revision}")),
        Answer::Delivery(answer) => delivered(answer, context),
        Answer::Cache(answer) => reading(answer, context),
        Answer::Refused(refusal) => ActualAnswer::Prefix(refused(refusal)),
        other => ActualAnswer::Prefix(format!("{other:?}")),
    }
}

fn granted(grants: &[Grant], context: &Context, incarnation: Incarnation) -> ActualAnswer {
    let entities = grants.iter().zip(&context.names).map(|(grant, name)| {
        Entity::Lease(Lease {
            id: grant.lease,
            number: grant.number,
            resource: name.clone(),
            scope: grant.scope,
            incarnation,
        })
    });
    let mut facts = Vec::new();
    for grant in grants {
        facts.push(format!("for {}", span(grant.remaining_ms)));
        facts.push(format!("depth {}", grant.depth));
        facts.push(format!("validity {}", grant.validity.word()));
        facts.push(format!("drain period {}", span(grant.drain_ms)));
        facts.push(grant.overlaps_ms.map_or("no overlap".to_owned(), |ms| format!("overlapping {}", span(ms))));
        facts.push(match grant.scope {
            TokenScope::Slot(slot) => format!("slot {slot}"),
            TokenScope::Shared => "shared".to_owned(),
            TokenScope::Units => "units".to_owned(),
        });
    }
    ActualAnswer::structured("granted", entities.collect(), facts)
}

fn current_lease(current: &CurrentLease, context: &Context) -> ActualAnswer {
    let entity = context.lease.clone().map(|lease| Entity::Lease(Lease { number: current.number, ..lease }));
    let mut facts = vec![format!("for {}", span(current.remaining_ms))];
    facts.push(current.drain_ms.map_or("not draining".to_owned(), |ms| format!("draining {}", span(ms))));
    facts.push(current.overlaps_ms.map_or("no overlap".to_owned(), |ms| format!("overlapping {}", span(ms))));
    ActualAnswer::structured("current", entity.into_iter().collect(), facts)
}

fn delivered(answer: &delivery::DeliveryAnswer, context: &Context) -> ActualAnswer {
    use delivery::DeliveryAnswer::{Acked, Dropped, Enqueued, Extended, Received, Redriven, Returned};
    let queue = || context.names.first().cloned().unwrap_or_default();
    match answer {
        Enqueued { item } => {
            ActualAnswer::structured("message", vec![Entity::Message { queue: queue(), item: *item }], Vec::new())
        }
        Received(items) if items.is_empty() => ActualAnswer::Exact("received nothing".to_owned()),
        Received(items) => {
            let mut entities = Vec::new();
            let mut facts = Vec::new();
            for one in items {
                entities.push(Entity::Message { queue: queue(), item: one.item });
                entities.push(Entity::Receipt { queue: queue(), item: one.item, receipt: one.receipt });
                facts.push(format!("attempt {}", one.attempt));
                facts.push(format!("saying {}", String::from_utf8_lossy(&one.body)));
                facts.push(format!("for {}", span(one.remaining_ms)));
            }
            ActualAnswer::structured("received", entities, facts)
        }
        Extended { remaining_ms } => ActualAnswer::Exact(format!("extended for {}", span(*remaining_ms))),
        Acked => ActualAnswer::Exact("acked".to_owned()),
        Returned { dead } => ActualAnswer::Exact(if *dead { "returned dead" } else { "returned" }.to_owned()),
        Redriven => ActualAnswer::Exact("redriven".to_owned()),
        Dropped => ActualAnswer::Exact("dropped".to_owned()),
    }
}

fn reading(answer: &cache::CacheAnswer, context: &Context) -> ActualAnswer {
    use cache::CacheAnswer::{Aborted, Committed, Dropped, Fill, Filled, Intended, Reading, Wait};
    let entity =
        |number: Number| vec![Entity::Cached { key: context.names.first().cloned().unwrap_or_default(), number }];
    let version = |version: u64| if version == 0 { "version none".to_owned() } else { format!("version #{version}") };
    match answer {
        Reading { version: at, lease, remaining_ms } => ActualAnswer::structured(
            "reading",
            entity(*lease),
            vec![version(*at), format!("for {}", span(*remaining_ms))],
        ),
        Dropped => ActualAnswer::Exact("dropped".to_owned()),
        Intended { intent, waiting_for, .. } => {
            ActualAnswer::structured("intends", entity(*intent), vec![format!("waiting for {waiting_for}")])
        }
        Committed { version: at } => ActualAnswer::structured("committed", Vec::new(), vec![version(*at)]),
        Aborted => ActualAnswer::Exact("aborted".to_owned()),
        Fill { token, remaining_ms } => {
            ActualAnswer::structured("fill", entity(*token), vec![format!("for {}", span(*remaining_ms))])
        }
        Wait { remaining_ms } => ActualAnswer::Exact(format!("wait {}", span(*remaining_ms))),
        Filled { version: at } => ActualAnswer::structured("filled", Vec::new(), vec![version(*at)]),
    }
}

/// Formats a refusal: its stable code, then its details.
pub fn refused(refusal: &Refusal) -> String {
    let detail = match refusal {
        Refusal::Invalid { field, .. } | Refusal::OutOfRange { field, .. } => (*field).to_owned(),
        Refusal::Name(error) => error.field.to_owned(),
        Refusal::Token(error) => error.reason().to_owned(),
        Refusal::NotFound(what) | Refusal::Conflict(what) => what.word().to_owned(),
        Refusal::Lost(reason) => ended(*reason),
        Refusal::NotCurrent(NotCurrent::Unknown) => "unknown".to_owned(),
        Refusal::NotCurrent(NotCurrent::NotHolder) => "not_holder".to_owned(),
        Refusal::NotCurrent(NotCurrent::Superseded) => "superseded".to_owned(),
        Refusal::Stale { mark, .. } => format!("behind #{mark}"),
        Refusal::Busy { position, holder: None } => position.to_string(),
        Refusal::Busy { position, holder: Some(by) } => {
            let others = if by.others == 0 { String::new() } else { format!(" and {}", by.others) };
            format!("{position} {}{others} for {}, {} left", by.holder, span(by.held_ms), span(by.remaining_ms))
        }
        Refusal::AccessChange { held, requested } => format!("{} to {}", held.word(), requested.word()),
        Refusal::Deadlock(cycle) => cycle_text(cycle),
        Refusal::Exhausted { limit, max, got } => format!("{} {max} {got}", limit.word()),
        Refusal::TooOld { lowest } => lowest.to_string(),
        Refusal::Quarantined { remaining, .. } => span(*remaining),
        _ => String::new(),
    };
    format!("{} {detail}", refusal.code()).trim_end().to_owned()
}

pub fn ended(reason: EndReason) -> String {
    format!("{} {}", reason.state().word(), reason.word())
}

fn cycle_text(cycle: &Cycle) -> String {
    let members = cycle.members.iter().map(|member| format!("{} for {}", member.holder, member.waits_for));
    format!("of {}, {}", cycle.length, members.collect::<Vec<_>>().join(", "))
}

/// Formats a notice.
pub fn event(event: &SessionEvent, labels: &Labels, now: GrantorTime) -> String {
    match event {
        SessionEvent::Granted { number, .. } => format!("granted #{number}"),
        SessionEvent::Ended { number, reason, .. } => format!("ended #{number} {}", ended(*reason)),
        SessionEvent::Draining { lease, until } => {
            format!("draining {} within {}", labels.sign_of(*lease), span(now.until(*until)))
        }
        SessionEvent::Drained { lease } => format!("drained {}", labels.sign_of(*lease)),
        SessionEvent::Invalidate { key, lease } => format!("invalidate {key} #{lease}"),
        SessionEvent::Ready { queue } => format!("ready {queue}"),
        SessionEvent::Clear { key, intent } => format!("clear {key} #{intent}"),
        SessionEvent::Deadlock(cycle) => format!("deadlock {}", cycle_text(cycle)),
        SessionEvent::RolledBack { presented } => format!("rolled back #{presented}"),
        SessionEvent::Zombie(zombie) => {
            let who = if zombie.holder.is_empty() { "nobody known" } else { &zombie.holder };
            let (target, presented, mark) = (&zombie.target, zombie.presented, zombie.mark);
            format!("zombie {who} at {target} #{presented} below #{mark} times {}", zombie.times)
        }
        other => format!("{other:?}"),
    }
}
