//! Lines of a story that are not requests: time, crashes, copies, clocks and writes to targets.

use leasehold_core::access::Role;
use leasehold_core::command::{Notice, SessionEvent};
use leasehold_core::grantor::{OpenTenureError, RestoreSpec};
use leasehold_core::token::{Cluster, Number};

use super::commands::token_of;
use super::expect::{self, ActualAnswer};
use super::labels::is_label;
use super::scenario::Scenario;
use super::target::Target;
use super::tokenizer::WordReader;

/// Runs a line that is not a request to a grantor; `None` if it is one.
pub fn run_line(scenario: &mut Scenario, words: &[String]) -> Result<Option<ActualAnswer>, String> {
    let mut at = WordReader::new(words);
    let done = || ActualAnswer::Exact(String::new());
    let actual = if at.take("wait") {
        let ms = at.millis("a span")?;
        scenario.advance(ms)?;
        done()
    } else if at.take("stall") {
        let ms = at.millis("a span")?;
        scenario.stall(ms);
        done()
    } else if at.take("longest ttl") {
        scenario.max_ttl = at.millis("a ttl")?;
        done()
    } else if at.take("crash") {
        scenario.driver = None;
        done()
    } else if at.take("restart") || at.take("failover") {
        let replaced = words[0] == "failover";
        scenario.zombies.extend(scenario.driver.take().filter(|_| replaced));
        let served = !at.take("and die unserved");
        open_result(scenario.open(None, served)?)
    } else if at.take("back up as") || at.take("copy the disk as") {
        let batches = scenario.journal.batches.clone();
        scenario.copies.insert(at.word("a name")?.to_owned(), batches);
        done()
    } else if at.take("restore") {
        let name = at.word("a backup")?;
        let floor = if at.take("above all but one") {
            Number::new(Number::MAX.get() - 1)
        } else if at.take("above") {
            Some(scenario.labels.number(at.word("a lease")?)?)
        } else {
            None
        };
        restore(scenario, name, floor)?
    } else if at.take("put the disk") {
        let name = at.word("a copy")?;
        at.must("back")?;
        let behind = at.take("under a clock that is behind");
        scenario.roll_back_to(copy(scenario, name)?, behind)?;
        open_result(scenario.open(None, true)?)
    } else if at.take("clock set back") {
        let ms = at.millis("a span")?;
        scenario.wall_ms = scenario.wall_ms.saturating_sub(ms);
        done()
    } else if at.take("clock set forward") {
        scenario.wall_ms += at.millis("a span")?;
        done()
    } else if at.take("the disk is full") || at.take("the disk has room") {
        let full = words.last().is_some_and(|word| word == "full");
        scenario.driver.as_mut().ok_or("unavailable")?.grantor.set_endings_only(full);
        done()
    } else if at.take("grant") {
        let principal = at.word("an identity")?;
        let role = at.word("a role")?;
        let role = Role::parse(role).ok_or_else(|| format!("{role} is not a role"))?;
        let prefix = if at.take("under") { at.word("a prefix")? } else { "" };
        scenario.access.grant(principal, role, prefix);
        done()
    } else if at.take("withdraw the grants of") {
        scenario.access.withdraw(at.word("an identity")?);
        done()
    } else if at.take("limit") {
        let principal = at.word("an identity")?;
        at.must("to")?;
        let max = at.number("a number")?;
        let what = at.word(
            "sessions, keys, leases, waiters, charters, targets, messages, message_bytes, cache_grants, state_bytes or bytes",
        )?;
        scenario.access.limit(principal, |limits| match what {
            "sessions" => limits.sessions = max,
            "keys" => limits.keys = max,
            "leases" => limits.leases = max,
            "waiters" => limits.waiters = max,
            "charters" => limits.charters = max,
            "targets" => limits.targets = max,
            "messages" => limits.messages = max,
            "message_bytes" => limits.message_bytes = max,
            "cache_grants" => limits.cache_grants = max,
            "state_bytes" => limits.state_bytes = max,
            _ => limits.metadata_bytes = max,
        });
        done()
    } else if at.take("target") {
        let name = at.word("a target")?;
        at.must("under")?;
        let resource = at.word("a resource")?;
        let slot = if at.take("slot") { at.number("a slot")? } else { 0 };
        scenario.targets.insert(name.to_owned(), Target::new(resource, slot)?);
        done()
    } else if let Some(actual) = at_target(scenario, &mut at)? {
        actual
    } else if let Some(actual) = delivery(scenario, words)? {
        return Ok(Some(actual));
    } else {
        return Ok(None);
    };
    at.end()?;
    Ok(Some(actual))
}

fn open_result(result: Result<(), OpenTenureError>) -> ActualAnswer {
    ActualAnswer::Exact(match result {
        Ok(()) => String::new(),
        Err(OpenTenureError::ClockBehind { .. }) => "refused, the clock is behind".to_owned(),
        Err(OpenTenureError::FloorTooLow { .. }) => "refused, the floor is too low".to_owned(),
        Err(OpenTenureError::NothingToRestore) => "refused, nothing to restore".to_owned(),
        Err(OpenTenureError::TokensExhausted) => "refused, no number is left".to_owned(),
        Err(other) => format!("refused, {other}"),
    })
}

fn copy(scenario: &Scenario, name: &str) -> Result<Vec<Vec<u8>>, String> {
    scenario.copies.get(name).cloned().ok_or_else(|| format!("no copy is called {name}"))
}

/// Restores a backup: another journal and a new incarnation.
fn restore(scenario: &mut Scenario, name: &str, floor: Option<Number>) -> Result<ActualAnswer, String> {
    scenario.roll_back_to(copy(scenario, name)?, false)?;
    let incarnation = scenario.new_incarnation();
    Ok(open_result(scenario.open(Some(RestoreSpec { incarnation, floor, uid: None }), true)?))
}

fn at_target(scenario: &mut Scenario, at: &mut WordReader<'_>) -> Result<Option<ActualAnswer>, String> {
    let outcome = if at.take("write") {
        let target = at.word("a target")?;
        let value = if at.peek() == Some("with") || at.peek() == Some("without") { "" } else { at.word("a value")? };
        let token = if at.take("without token") {
            None
        } else {
            at.must("with")?;
            let label = at.word("a lease")?;
            let mut token = token_of(scenario.labels.lease(label)?);
            if at.take("of another cluster") {
                token.cluster = Cluster(*b"elsewher");
            } else if at.take("plus") {
                let ahead = at.millis("a span")? << 22;
                token.number = Number::new(token.number.get() + ahead).ok_or("too large a number")?;
            }
            Some(token)
        };
        let sequence = if at.take("sequence") { Some(at.number("a sequence")?) } else { None };
        let wall = scenario.wall();
        target_of(scenario, target)?.write(token.as_ref(), value, sequence, wall)
    } else if at.take("claim") {
        let target = at.word("a target")?;
        at.must("with")?;
        let token = token_of(scenario.labels.lease(at.word("a lease")?)?);
        let wall = scenario.wall();
        target_of(scenario, target)?.claim(&token, wall)
    } else if at.take("the target") {
        let target = at.word("a target")?;
        if at.take("restarts") {
            target_of(scenario, target)?.restart()?;
            String::new()
        } else if at.take("loses its mark") {
            target_of(scenario, target)?.lose_mark();
            String::new()
        } else if at.take("holds") {
            target_of(scenario, target)?.holds().to_owned()
        } else {
            at.must("is armed above all")?;
            let floor = scenario.grantor()?.status().counter;
            let floor = Number::new(floor).ok_or("no number was issued")?;
            target_of(scenario, target)?.arm(floor);
            String::new()
        }
    } else if at.take("the unfenced twin of") {
        let target = at.word("a target")?;
        at.must("holds")?;
        target_of(scenario, target)?.unfenced_holds().to_owned()
    } else {
        return Ok(None);
    };
    Ok(Some(ActualAnswer::Exact(outcome)))
}

fn target_of<'w>(scenario: &'w mut Scenario, name: &str) -> Result<&'w mut Target, String> {
    scenario.targets.get_mut(name).ok_or_else(|| format!("no target is called {name}"))
}

/// Delivery lines: `Q is told` expects a later answer; `A hears` and `watchers hear` expect a notice.
fn delivery(scenario: &mut Scenario, words: &[String]) -> Result<Option<ActualAnswer>, String> {
    let (Some(first), rest) = (words.first(), words[1..].join(" ")) else {
        return Ok(None);
    };
    if rest == "is told" {
        let tag = *scenario.called.get(first).ok_or_else(|| format!("no request is called {first}"))?;
        let Some(answer) = scenario.answers.get_mut(&tag).and_then(std::collections::VecDeque::pop_front) else {
            return Ok(Some(ActualAnswer::Exact("nothing".to_owned())));
        };
        let context = scenario.contexts.get(&tag).cloned().unwrap_or_default();
        return Ok(Some(expect::answer(&answer, &context, scenario.incarnation)));
    }
    let to = match (is_label(first), rest.as_str()) {
        (true, "hears") => Some(scenario.labels.session(first)?.0),
        (false, "hear") if first == "watchers" => None,
        _ => return Ok(None),
    };
    let now = scenario.grantor()?.time();
    let is_wanted = |notice: &Notice| notice.session == to && (to.is_some() || !is_ignored_by_watchers(&notice.event));
    let Some(at) = scenario.notices.iter().position(is_wanted) else {
        return Ok(Some(ActualAnswer::Exact("nothing".to_owned())));
    };
    let notice = scenario.notices.remove(at).expect("just found");
    Ok(Some(ActualAnswer::Prefix(expect::event(&notice.event, &scenario.labels, now))))
}

/// Whether the watchers of a story ignore an event because it is too frequent.
const fn is_ignored_by_watchers(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Granted { .. } | SessionEvent::Ended { .. } | SessionEvent::Drained { .. })
}
