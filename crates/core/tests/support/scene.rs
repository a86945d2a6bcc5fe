//! What happens in a story besides asking: time, crashes, copies, clocks, and what is written at targets.

use leasehold_core::command::{Event, Notice};
use leasehold_core::grantor::{NotOpened, Restoring};
use leasehold_core::token::{Cluster, Number};

use super::ask::token_of;
use super::labels::is_label;
use super::target::Target;
use super::told::{self, Heard};
use super::words::Words;
use super::world::World;

/// Plays a line that is no question to a grantor; nothing if it is one.
pub fn play(world: &mut World, words: &[String]) -> Result<Option<Heard>, String> {
    let mut at = Words::new(words);
    let done = || Heard::Exactly(String::new());
    let heard = if at.take("wait") {
        let ms = at.millis("a span")?;
        world.pass(ms)?;
        done()
    } else if at.take("stall") {
        let ms = at.millis("a span")?;
        world.stand(ms);
        done()
    } else if at.take("longest ttl") {
        world.max_ttl = at.millis("a ttl")?;
        done()
    } else if at.take("crash") {
        world.driver = None;
        done()
    } else if at.take("restart") || at.take("failover") {
        let replaced = words[0] == "failover";
        world.zombies.extend(world.driver.take().filter(|_| replaced));
        let served = !at.take("and die unserved");
        opened(world.open(None, served)?)
    } else if at.take("back up as") || at.take("copy the disk as") {
        let batches = world.journal.batches.clone();
        world.copies.insert(at.word("a name")?.to_owned(), batches);
        done()
    } else if at.take("restore") {
        let name = at.word("a backup")?;
        let floor = if at.take("above all but one") {
            Number::new(Number::MAX.get() - 1)
        } else if at.take("above") {
            Some(world.labels.number(at.word("a lease")?)?)
        } else {
            None
        };
        restore(world, name, floor)?
    } else if at.take("put the disk") {
        let name = at.word("a copy")?;
        at.must("back")?;
        let behind = at.take("under a clock that is behind");
        world.put_back(copy(world, name)?, behind)?;
        opened(world.open(None, true)?)
    } else if at.take("clock set back") {
        let ms = at.millis("a span")?;
        world.wall_ms = world.wall_ms.saturating_sub(ms);
        done()
    } else if at.take("clock set forward") {
        world.wall_ms += at.millis("a span")?;
        done()
    } else if at.take("the disk is full") || at.take("the disk has room") {
        let full = words.last().is_some_and(|word| word == "full");
        world.driver.as_mut().ok_or("unavailable")?.grantor.keep_to_endings(full);
        done()
    } else if at.take("target") {
        let name = at.word("a target")?;
        at.must("under")?;
        let resource = at.word("a resource")?;
        let slot = if at.take("slot") { at.number("a slot")? } else { 0 };
        world.targets.insert(name.to_owned(), Target::new(resource, slot)?);
        done()
    } else if let Some(heard) = at_target(world, &mut at)? {
        heard
    } else if let Some(heard) = hears(world, words)? {
        return Ok(Some(heard));
    } else {
        return Ok(None);
    };
    at.end()?;
    Ok(Some(heard))
}

fn opened(result: Result<(), NotOpened>) -> Heard {
    Heard::Exactly(match result {
        Ok(()) => String::new(),
        Err(NotOpened::ClockBehind { .. }) => "refused, the clock is behind".to_owned(),
        Err(NotOpened::FloorTooLow { .. }) => "refused, the floor is too low".to_owned(),
        Err(NotOpened::NothingToRestore) => "refused, nothing to restore".to_owned(),
        Err(NotOpened::TokensExhausted) => "refused, no number is left".to_owned(),
        Err(other) => format!("refused, {other}"),
    })
}

fn copy(world: &World, name: &str) -> Result<Vec<Vec<u8>>, String> {
    world.copies.get(name).cloned().ok_or_else(|| format!("no copy is called {name}"))
}

/// A backup comes to life: another journal, another incarnation.
fn restore(world: &mut World, name: &str, floor: Option<Number>) -> Result<Heard, String> {
    world.put_back(copy(world, name)?, false)?;
    let incarnation = world.new_incarnation();
    Ok(opened(world.open(Some(Restoring { incarnation, floor }), true)?))
}

fn at_target(world: &mut World, at: &mut Words<'_>) -> Result<Option<Heard>, String> {
    let said = if at.take("write") {
        let target = at.word("a target")?;
        let value = if at.peek() == Some("with") || at.peek() == Some("without") { "" } else { at.word("a value")? };
        let token = if at.take("without token") {
            None
        } else {
            at.must("with")?;
            let label = at.word("a lease")?;
            let mut token = token_of(world.labels.lease(label)?);
            if at.take("of another cluster") {
                token.cluster = Cluster(*b"elsewher");
            } else if at.take("plus") {
                let ahead = at.millis("a span")? << 22;
                token.number = Number::new(token.number.get() + ahead).ok_or("too large a number")?;
            }
            Some(token)
        };
        let sequence = if at.take("sequence") { Some(at.number("a sequence")?) } else { None };
        let wall = world.wall();
        target_of(world, target)?.write(token.as_ref(), value, sequence, wall)
    } else if at.take("claim") {
        let target = at.word("a target")?;
        at.must("with")?;
        let token = token_of(world.labels.lease(at.word("a lease")?)?);
        let wall = world.wall();
        target_of(world, target)?.claim(&token, wall)
    } else if at.take("the target") {
        let target = at.word("a target")?;
        if at.take("restarts") {
            target_of(world, target)?.restart()?;
            String::new()
        } else if at.take("loses its mark") {
            target_of(world, target)?.lose_mark();
            String::new()
        } else if at.take("holds") {
            target_of(world, target)?.holds().to_owned()
        } else {
            at.must("is armed above all")?;
            let floor = world.grantor()?.status().counter;
            let floor = Number::new(floor).ok_or("no number was given out")?;
            target_of(world, target)?.arm(floor);
            String::new()
        }
    } else if at.take("the unfenced twin of") {
        let target = at.word("a target")?;
        at.must("holds")?;
        target_of(world, target)?.unfenced_holds().to_owned()
    } else {
        return Ok(None);
    };
    Ok(Some(Heard::Exactly(said)))
}

fn target_of<'w>(world: &'w mut World, name: &str) -> Result<&'w mut Target, String> {
    world.targets.get_mut(name).ok_or_else(|| format!("no target is called {name}"))
}

/// `Q is told`: a later answer. `A hears`, `watchers hear`: a notice.
fn hears(world: &mut World, words: &[String]) -> Result<Option<Heard>, String> {
    let (Some(first), rest) = (words.first(), words[1..].join(" ")) else {
        return Ok(None);
    };
    if rest == "is told" {
        let tag = *world.called.get(first).ok_or_else(|| format!("no request is called {first}"))?;
        let Some(answer) = world.mail.get_mut(&tag).and_then(std::collections::VecDeque::pop_front) else {
            return Ok(Some(Heard::Exactly("nothing".to_owned())));
        };
        let context = world.contexts.get(&tag).cloned().unwrap_or_default();
        return Ok(Some(told::answer(&answer, &context, world.incarnation)));
    }
    let to = match (is_label(first), rest.as_str()) {
        (true, "hears") => Some(world.labels.session(first)?.0),
        (false, "hear") if first == "watchers" => None,
        _ => return Ok(None),
    };
    let now = world.grantor()?.time();
    let is_wanted = |notice: &Notice| notice.session == to && (to.is_some() || !is_small(&notice.event));
    let Some(at) = world.notices.iter().position(is_wanted) else {
        return Ok(Some(Heard::Exactly("nothing".to_owned())));
    };
    let notice = world.notices.remove(at).expect("just found");
    Ok(Some(Heard::Begins(told::event(&notice.event, &world.labels, now))))
}

/// Watchers of a story care for what is rare.
const fn is_small(event: &Event) -> bool {
    matches!(event, Event::Granted { .. } | Event::Ended { .. } | Event::Drained { .. })
}
