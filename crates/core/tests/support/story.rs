//! Stories: one command per line with its expected answer, run from top to bottom.

use super::expect;
use super::scenario::{Scenario, Until};
use super::tokenizer;

/// One story of a file.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// Name of the file.
    pub file: &'static str,
    /// The heading, without promise ids.
    pub title: &'static str,
    /// Promise ids from the heading.
    pub promises: &'static str,
    /// Text of the story.
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
    "access.txt",
    "limits.txt",
];

/// Every story, in the order of files.
pub fn stories() -> Vec<Story> {
    FILES.iter().flat_map(|(file, text)| in_file(file, text)).collect()
}

/// Every story with its title and text.
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

/// Runs a story on a new cluster. The error names the line, the expected and the actual answer.
pub fn run(text: &str) -> Result<(), String> {
    let lines: Vec<Line<'_>> = text.lines().enumerate().filter_map(Line::parse).collect();
    run_lines(&lines).map(drop)
}

/// First words of lines that run before the cluster is opened.
const BEFORE_OPENING: [&str; 3] = ["longest", "back", "restore"];

fn run_lines(lines: &[Line<'_>]) -> Result<Scenario, String> {
    let mut scenario = Scenario::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let here = &lines[at..];
        if scenario.journal.batches.is_empty() && !BEFORE_OPENING.contains(&line.words[0].as_str()) {
            scenario.open(None, true)?.map_err(|refused| refused.to_string())?;
        }
        let used = if line.words == ["in", "one", "turn"] {
            let inside = here[1..].iter().take_while(|line| line.is_inside).count();
            run_in_one_turn(&mut scenario, &here[1..=inside]).map(|()| inside + 1)
        } else if let ["put", "the", "machine", name, "back"] = line.plain()[..] {
            let copy = lines.iter().position(|line| line.plain() == ["copy", "the", "machine", "as", name]);
            copy.ok_or_else(|| format!("no machine is called {name}")).and_then(|copy| {
                let before = run_lines(&lines[..copy])?;
                scenario.resume(before).map(|()| 1)
            })
        } else {
            run_line(&mut scenario, line).map(|()| 1)
        };
        at += used.map_err(|error| format!("line {}, `{}`: {error}", line.number, line.text.trim()))?;
        for target in scenario.targets.values() {
            target.check().map_err(|error| format!("line {}: {error}", line.number))?;
        }
    }
    Ok(scenario)
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
        let (parsed, expected) = text.split_once("->").unwrap_or((text, ""));
        let is_inside = text.starts_with("  ");
        Some(Self { number: at + 1, text, words: tokenizer::split(parsed), expected: expected.trim(), is_inside })
    }

    fn plain(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }
}

fn run_line(scenario: &mut Scenario, line: &Line<'_>) -> Result<(), String> {
    if line.plain().starts_with(&["copy", "the", "machine"]) {
        return Ok(());
    }
    if line.words[0] == "old:" {
        return run_on_replaced(scenario, line);
    }
    if let Some(actual) = super::story_events::run_line(scenario, &line.words)? {
        return actual.check(line.expected, &mut scenario.labels);
    }
    if line.expected == "unavailable" {
        return if scenario.driver.is_none() { Ok(()) } else { Err("a grantor serves".to_owned()) };
    }
    if let Some(actual) = super::queries::query(scenario.grantor()?, &scenario.labels, &line.words)? {
        return actual.check(line.expected, &mut scenario.labels);
    }
    let tag = scenario.send(&line.words, false)?.ok_or("unknown command")?;
    let until = match line.expected {
        "crash before the record" => Until::Stepped,
        "crash before the answer" => Until::Durable,
        _ => Until::Delivered,
    };
    scenario.turn(until)?;
    if until != Until::Delivered {
        return Ok(());
    }
    check_answer(scenario, tag, line)
}

fn check_answer(scenario: &mut Scenario, tag: u64, line: &Line<'_>) -> Result<(), String> {
    let answer =
        scenario.answers.get_mut(&tag).and_then(std::collections::VecDeque::pop_front).ok_or("there is no answer")?;
    if line.expected == "lost on the way" {
        return Ok(());
    }
    let context = scenario.contexts.get(&tag).cloned().unwrap_or_default();
    expect::answer(&answer, &context, scenario.incarnation).check(line.expected, &mut scenario.labels)
}

/// Runs several requests in one turn.
fn run_in_one_turn(scenario: &mut Scenario, lines: &[Line<'_>]) -> Result<(), String> {
    let mut tags = Vec::new();
    for line in lines {
        tags.push(scenario.send(&line.words, false)?.ok_or("only requests to the grantor can share a turn")?);
    }
    scenario.turn(Until::Delivered)?;
    for (tag, line) in tags.into_iter().zip(lines) {
        check_answer(scenario, tag, line)
            .map_err(|error| format!("line {}, `{}`: {error}", line.number, line.text.trim()))?;
    }
    Ok(())
}

/// Sends a request to a replaced grantor. Its decision is never delivered.
fn run_on_replaced(scenario: &mut Scenario, line: &Line<'_>) -> Result<(), String> {
    if line.expected != "fenced" {
        return Err("a replaced grantor answers nothing; write `-> fenced`".to_owned());
    }
    let zombie = scenario.zombies.last().ok_or("no grantor was replaced")?;
    if super::queries::query(&zombie.grantor, &scenario.labels, &line.words[1..])?.is_none() {
        scenario.send(&line.words[1..], true)?.ok_or("unknown command")?;
    }
    scenario.zombie_turn()
}
