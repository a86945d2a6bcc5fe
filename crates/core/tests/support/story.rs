//! Stories: one command a line with the answer that is expected, played from the first line to the last.

use super::told;
use super::words;
use super::world::{Until, World};

/// One story of a file.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// The file it stands in.
    pub file: &'static str,
    /// Its first line, without the promises.
    pub title: &'static str,
    /// The promises it is about, as they stand before the title.
    pub promises: &'static str,
    /// Its lines.
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../testdata/", $name))),)*]
    };
}

/// Every file of stories.
pub const FILES: &[(&str, &str)] = files![
    "paused-holder.txt",
    "lock-service.txt",
    "states.txt",
    "ends.txt",
    "renewals.txt",
    "tenures.txt",
    "stalls.txt",
    "tokens.txt",
    "restores.txt",
    "handoffs.txt",
    "waiting.txt",
    "deadlocks.txt",
    "priorities.txt",
    "capacity.txt",
    "coverage.txt",
    "deliveries.txt",
    "sessions.txt",
    "caches.txt",
    "leaders.txt",
    "requests.txt",
    "refusals.txt",
];

/// Every story, in the order of files.
pub fn stories() -> Vec<Story> {
    FILES.iter().flat_map(|(file, text)| in_file(file, text)).collect()
}

/// Every story by its title, for those who play them all.
pub fn all() -> Vec<(&'static str, String)> {
    stories().into_iter().map(|story| (story.title, story.text.to_owned())).collect()
}

fn in_file(file: &'static str, text: &'static str) -> Vec<Story> {
    let mut starts: Vec<usize> = text.match_indices("\n# ").map(|(at, _)| at + 1).collect();
    if text.starts_with("# ") {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let story = |(start, end): (usize, usize)| {
        let text = &text[start..end];
        let heading = text[2..].lines().next().unwrap_or_default();
        let (promises, title) = match heading.split_once(": ") {
            Some((promises, title)) if promises.split(' ').all(is_promise) => (promises, title),
            _ => ("", heading),
        };
        Story { file, title, promises, text }
    };
    starts.iter().copied().zip(ends).map(story).collect()
}

fn is_promise(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_uppercase())
        && !chars.as_str().is_empty()
        && chars.all(|c| c.is_ascii_digit())
}

/// Plays a story. Every story begins with a new cluster that serves. The error names the line, what was expected and what was heard.
pub fn run(text: &str) -> Result<(), String> {
    let lines: Vec<Line<'_>> = text.lines().enumerate().filter_map(Line::parse).collect();
    play(&lines).map(drop)
}

/// How lines begin that stand before the first opening of a cluster.
const BEFORE: [&str; 3] = ["longest", "back", "restore"];

fn play(lines: &[Line<'_>]) -> Result<World, String> {
    let mut world = World::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let here = &lines[at..];
        if world.journal.batches.is_empty() && !BEFORE.contains(&line.words[0].as_str()) {
            world.open(None, true)?.map_err(|refused| refused.to_string())?;
        }
        let used = if line.words == ["in", "one", "turn"] {
            let inside = here[1..].iter().take_while(|line| line.is_inside).count();
            together(&mut world, &here[1..=inside]).map(|()| inside + 1)
        } else if let ["put", "the", "machine", name, "back"] = line.plain()[..] {
            let copy = lines.iter().position(|line| line.plain() == ["copy", "the", "machine", "as", name]);
            copy.ok_or_else(|| format!("no machine is called {name}")).and_then(|copy| {
                let before = play(&lines[..copy])?;
                world.resume(before).map(|()| 1)
            })
        } else {
            one(&mut world, line).map(|()| 1)
        };
        at += used.map_err(|why| format!("line {}, `{}`: {why}", line.number, line.text.trim()))?;
        for target in world.targets.values() {
            target.check().map_err(|why| format!("line {}: {why}", line.number))?;
        }
    }
    Ok(world)
}

struct Line<'a> {
    number: usize,
    text: &'a str,
    words: Vec<String>,
    expected: &'a str,
    is_inside: bool,
}

impl<'a> Line<'a> {
    fn parse((at, text): (usize, &'a str)) -> Option<Self> {
        if text.trim().is_empty() || text.trim_start().starts_with('#') {
            return None;
        }
        let (asked, expected) = text.split_once("->").unwrap_or((text, ""));
        let is_inside = text.starts_with("  ");
        Some(Self { number: at + 1, text, words: words::split(asked), expected: expected.trim(), is_inside })
    }

    fn plain(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }
}

fn one(world: &mut World, line: &Line<'_>) -> Result<(), String> {
    if line.plain().starts_with(&["copy", "the", "machine"]) {
        return Ok(());
    }
    if line.words[0] == "old:" {
        return old(world, line);
    }
    if let Some(heard) = super::scene::play(world, &line.words)? {
        return heard.check(line.expected, &mut world.labels);
    }
    if line.expected == "unavailable" {
        return if world.driver.is_none() { Ok(()) } else { Err("a grantor serves".to_owned()) };
    }
    if let Some(heard) = super::look::look(world.grantor()?, &world.labels, &line.words)? {
        return heard.check(line.expected, &mut world.labels);
    }
    let tag = world.ask(&line.words, false)?.ok_or("nobody knows what this line means")?;
    let until = match line.expected {
        "crash before the record" => Until::Stepped,
        "crash before the answer" => Until::Durable,
        _ => Until::Told,
    };
    world.turn(until)?;
    if until != Until::Told {
        return Ok(());
    }
    answered(world, tag, line)
}

fn answered(world: &mut World, tag: u64, line: &Line<'_>) -> Result<(), String> {
    let answer = world.mail.get_mut(&tag).and_then(std::collections::VecDeque::pop_front).ok_or("no answer came")?;
    if line.expected == "lost on the way" {
        return Ok(());
    }
    let context = world.contexts.get(&tag).cloned().unwrap_or_default();
    told::answer(&answer, &context, world.incarnation).check(line.expected, &mut world.labels)
}

/// Everything arrives before the turn begins.
fn together(world: &mut World, lines: &[Line<'_>]) -> Result<(), String> {
    let mut tags = Vec::new();
    for line in lines {
        tags.push(world.ask(&line.words, false)?.ok_or("only questions to the grantor stand in one turn")?);
    }
    world.turn(Until::Told)?;
    for (tag, line) in tags.into_iter().zip(lines) {
        answered(world, tag, line).map_err(|why| format!("line {}, `{}`: {why}", line.number, line.text.trim()))?;
    }
    Ok(())
}

/// A replaced grantor is asked. Whatever it decides, nobody hears it.
fn old(world: &mut World, line: &Line<'_>) -> Result<(), String> {
    if line.expected != "fenced" {
        return Err("a replaced grantor answers nothing; write `-> fenced`".to_owned());
    }
    let zombie = world.zombies.last().ok_or("nobody was replaced")?;
    if super::look::look(&zombie.grantor, &world.labels, &line.words[1..])?.is_none() {
        world.ask(&line.words[1..], true)?.ok_or("nobody knows what this line means")?;
    }
    world.zombie_turn()
}
