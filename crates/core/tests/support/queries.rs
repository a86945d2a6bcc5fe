//! Query lines of stories.

use leasehold_core::coverage::{CheckCounts, TargetStatus, TargetView};
use leasehold_core::grantor::{Grantor, Usage};
use leasehold_core::lease::{Access, EndReason};

use super::expect::{ActualAnswer, ended};
use super::labels::{Labels, is_label};
use super::tokenizer::{WordReader, span};

/// Answers a query line; `None` if the line is not a query.
pub fn query(grantor: &Grantor, labels: &Labels, words: &[String]) -> Result<Option<ActualAnswer>, String> {
    let mut at = WordReader::new(words);
    let actual = if at.take("show token") || at.take("get or fill") {
        return Ok(None);
    } else if at.take("state of") {
        let id = labels.lease(at.word("a lease")?)?.id;
        ActualAnswer::Exact(match grantor.state_of(id) {
            None => "forgotten".to_owned(),
            Some((state, None)) => state.word().to_owned(),
            Some((_, Some(reason))) => ended(reason),
        })
    } else if at.take("held by") {
        let leases = grantor.held_by(at.word("a holder")?);
        ActualAnswer::list(leases.into_iter().map(|lease| lease.resource))
    } else if at.take("targets of") {
        ActualAnswer::list(grantor.targets(at.word("a resource")?).iter().flat_map(target))
    } else if at.take("active count") {
        ActualAnswer::Exact(grantor.active_count().to_string())
    } else if at.take("waiters of") {
        let waiters = grantor.waiters(at.word("a resource")?);
        ActualAnswer::list(waiters.into_iter().map(|waiter| match waiter.effective_priority {
            effective if effective == waiter.priority => waiter.holder,
            effective => format!("{} raised to {effective}", waiter.holder),
        }))
    } else if at.take("history of") {
        let ends = grantor.history(at.word("a resource")?, 8);
        ActualAnswer::list(ends.into_iter().map(|end| format!("{} {}", end.holder, ended(end.reason))))
    } else if at.take("usage of") {
        let usage = grantor.usage(at.word("a holder")?).unwrap_or_default();
        ActualAnswer::list(ends_of(&usage))
    } else if at.take("totals") {
        ActualAnswer::list(ends_of(&grantor.status().totals))
    } else if at.take("deadlocks") {
        ActualAnswer::list(grantor.deadlocks().map(|found| {
            let paid =
                if found.victim.is_empty() { "nobody paid".to_owned() } else { format!("{} paid", found.victim) };
            format!("of {} {paid}", found.cycle.length)
        }))
    } else if at.take("show") {
        let word = at.word("a resource or a lease")?;
        if is_label(word) { lease(grantor, labels, word)? } else { resource(grantor, word) }
    } else if at.take("session") {
        let (id, _) = labels.session(at.word("a session")?)?;
        ActualAnswer::facts(match grantor.session(id) {
            None => vec!["gone".to_owned()],
            Some(view) => vec![
                "live".to_owned(),
                format!("for {}", span(view.remaining_ms)),
                if view.suspect { "suspect" } else { "not suspect" }.to_owned(),
                format!("leases {}", view.leases),
                format!("waits {}", view.waits),
            ],
        })
    } else if at.take("quarantine") {
        ActualAnswer::Exact(match grantor.status().quarantine {
            None => "none".to_owned(),
            Some((ms, true)) => format!("rolled back for {}", span(ms)),
            Some((ms, false)) => format!("restored for {}", span(ms)),
        })
    } else if at.take("stalled in all") {
        ActualAnswer::Exact(span(grantor.status().stalled_ms))
    } else if at.take("get") {
        let (name, key) = (at.word("a resource")?, at.word("a key")?);
        let stored = grantor.state().get(name, key);
        stored.map_or_else(|| ActualAnswer::list([]), |stored| value(&stored.bytes, stored.token.get()))
    } else if at.take("newest of") {
        let newest = grantor.state().newest(at.word("a resource")?);
        newest.map_or_else(|| ActualAnswer::list([]), |(_, stored)| value(&stored.bytes, stored.token.get()))
    } else if at.take("queue") {
        let counts = grantor.queues().counts(at.word("a queue")?, grantor.time()).unwrap_or_default();
        ActualAnswer::facts(vec![
            format!("ready {}", counts.ready),
            format!("delayed {}", counts.delayed),
            format!("live {}", counts.live),
            format!("dead {}", counts.dead),
        ])
    } else if at.take("dead letters of") {
        let dead = grantor.queues().dead_letters(at.word("a queue")?, 0, 8);
        ActualAnswer::list(dead.into_iter().map(|view| {
            let body = String::from_utf8_lossy(view.body).into_owned();
            format!("{body} after {}", view.attempts)
        }))
    } else if at.take("cached") {
        let view = grantor.cache().view(at.word("a key")?);
        ActualAnswer::facts(vec![
            if view.version == 0 { "version none".to_owned() } else { format!("version #{}", view.version) },
            if view.filled { "filled" } else { "not filled" }.to_owned(),
            format!("readers {}", view.readers),
        ])
    } else {
        return Ok(None);
    };
    at.end()?;
    Ok(Some(actual))
}

/// Formats a target: the reports of its fences by slot, and its hole.
fn target(target: &TargetView) -> Vec<String> {
    let name = if target.name.is_empty() { "nothing" } else { &target.name };
    let hole = target.hole.map_or(String::new(), |hole| format!(" {}", hole.word()));
    if target.reports.is_empty() {
        return vec![format!("{name}{hole}")];
    }
    let report_row = |(slot, seen, counted): &(u32, TargetStatus, Option<CheckCounts>)| {
        let slot = if *slot == 0 { String::new() } else { format!(" slot {slot}") };
        let checks = counted.map_or(0, |counted| counted.checks);
        let who = seen.last.as_ref().map_or("", |last| &last.holder);
        let zombies = if seen.zombies == 0 { String::new() } else { format!(" zombies {} last {who}", seen.zombies) };
        format!("{name}{slot} {} checks {checks}{zombies}{hole}", seen.mode.word())
    };
    target.reports.iter().map(report_row).collect()
}

fn value(bytes: &[u8], number: u64) -> ActualAnswer {
    ActualAnswer::Exact(format!("{} under #{number}", String::from_utf8_lossy(bytes)))
}

fn ends_of(usage: &Usage) -> Vec<String> {
    let counted = EndReason::ALL.into_iter().filter(|reason| usage.ended[*reason as usize] > 0);
    counted
        .map(|reason| {
            let at = reason as usize;
            format!("{} {} in {}", usage.ended[at], reason.word(), span(usage.held_ms[at]))
        })
        .collect()
}

fn resource(grantor: &Grantor, name: &str) -> ActualAnswer {
    let Some(view) = grantor.show(name) else {
        return ActualAnswer::facts(vec!["nobody".to_owned()]);
    };
    let leases = view.leases.iter().filter(|lease| !lease.predecessor).count();
    let used: u64 =
        view.leases.iter().map(|lease| if let Access::Units(units) = lease.access { units.into() } else { 0 }).sum();
    let mut facts = vec![
        format!("capacity {}", view.capacity),
        format!("used {}", view.used),
        format!("held units {used}"),
        format!("confirmed {}", view.confirmed),
        format!("leases {leases}"),
        format!("apart {}", view.leases.len() - leases),
        format!("waiting {}", view.waiters),
        format!("floor {}", view.floor),
    ];
    facts.push(if view.draining { "above capacity" } else { "within capacity" }.to_owned());
    facts.push(if view.held_for_operator { "for an operator" } else { "for anybody" }.to_owned());
    ActualAnswer::facts(facts)
}

fn lease(grantor: &Grantor, labels: &Labels, label: &str) -> Result<ActualAnswer, String> {
    let Some(view) = grantor.lease(labels.lease(label)?.id) else {
        return Ok(ActualAnswer::facts(vec!["over".to_owned()]));
    };
    let mut facts = vec![
        format!("held by {}", view.holder),
        format!("state {}", view.state.sign()),
        format!("validity {}", view.validity.word()),
        format!("for {}", span(view.remaining_ms)),
        format!("priority {}", view.priority),
        format!("metadata {}", String::from_utf8_lossy(&view.metadata)),
    ];
    facts.push(view.draining.map_or("not draining".to_owned(), |(reason, ms)| {
        format!("draining for {} within {}", reason.word(), span(ms))
    }));
    facts.push(view.progress.map_or("no progress".to_owned(), |at| format!("progress {at}")));
    facts.push(if view.predecessor { "apart" } else { "counted" }.to_owned());
    Ok(ActualAnswer::facts(facts))
}
