//! The trail as lines of JSON, and the proof of such a file by anybody who has it.
//!
//! The first line is `{"trail":1,"cluster":…,"first":…,"before":…}`, the last `{"end":…,"hash":…}`. Every other line is an
//! entry with its hash as the last field: cut `,"hash":"…"` out and the rest is the text that was hashed, behind the 32
//! bytes of the hash before it.

use std::fmt;
use std::io::{BufRead, Read};

use serde::Deserialize;

use super::frame::{self, Part};
use super::page::parts;
use super::segment::{read, walk};
use super::{Hash, Head, Verified, hex, link, unhex};
use crate::journal::{NotTold, Rack};

/// An export on its way: one part of the trail after the other.
#[derive(Clone, Debug)]
pub struct Exporting {
    head: Head,
    /// The number of the entry that comes next.
    next: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Beginning,
    Entries,
    Over,
}

impl Exporting {
    /// Everything that is kept, up to where the trail ends.
    pub fn new(head: Head) -> Self {
        Self { head, next: 0, stage: Stage::Beginning }
    }

    /// The next lines; none when all are told.
    pub fn lines(&mut self, rack: &dyn Rack) -> Result<Option<Vec<u8>>, NotTold> {
        let mut out = Vec::new();
        match self.stage {
            Stage::Over => return Ok(None),
            Stage::Beginning => {
                self.stage = Stage::Entries;
                let part = oldest(rack)?;
                let (cluster, first, before) = part
                    .map_or((String::new(), 1, [0; 32]), |part| (part.cluster.to_string(), part.first, part.before));
                self.next = first;
                let line =
                    serde_json::json!({ "trail": 1, "cluster": cluster, "first": first, "before": hex(&before) });
                out.extend_from_slice(line.to_string().as_bytes());
                out.push(b'\n');
            }
            Stage::Entries if self.next > self.head.entries => {
                self.stage = Stage::Over;
                let line = serde_json::json!({ "end": self.head.entries, "hash": hex(&self.head.hash) });
                out.extend_from_slice(line.to_string().as_bytes());
                out.push(b'\n');
            }
            Stage::Entries => self.part(rack, &mut out)?,
        }
        Ok(Some(out))
    }

    fn part(&mut self, rack: &dyn Rack, out: &mut Vec<u8>) -> Result<(), NotTold> {
        let parts = parts(rack)?;
        let gone = || NotTold::Unreadable { why: format!("entry {} was let go while it was told", self.next) };
        let at = parts.iter().rposition(|(_, _, first)| *first <= self.next).ok_or_else(gone)?;
        let (number, length, _) = parts[at];
        let (from, to) = (self.next, self.head.entries);
        let mut bytes = Vec::new();
        read(rack, number, length, &mut bytes)?;
        let walked = walk(&bytes, false, |found| {
            if (from..=to).contains(&found.entry) {
                spell(found.text, &found.hash, out);
            }
        });
        match walked {
            Ok(walked) if walked.next > from => {
                self.next = walked.next.min(to + 1);
                Ok(())
            }
            _ => Err(NotTold::Unreadable { why: format!("{}: damaged; verify the trail", rack.label(number)) }),
        }
    }
}

fn oldest(rack: &dyn Rack) -> Result<Option<Part>, NotTold> {
    for (number, _) in rack.files()? {
        let mut head = [0; frame::HEADER];
        rack.read(number, 0, &mut head)?;
        if let Ok((part, _)) = Part::decode(&head) {
            return Ok(Some(part));
        }
    }
    Ok(None)
}

/// An entry with its hash, as one line.
pub(super) fn spell(text: &[u8], hash: &Hash, out: &mut Vec<u8>) {
    out.extend_from_slice(text.strip_suffix(b"}").unwrap_or(text));
    out.extend_from_slice(b",\"hash\":\"");
    out.extend_from_slice(hex(hash).as_bytes());
    out.extend_from_slice(b"\"}\n");
}

/// The first line of an export that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Which, from 1.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; export it again, or compare it with the server's own trail", self.line, self.why)
    }
}

impl std::error::Error for BadLine {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Beginning {
    trail: u32,
    #[serde(rename = "cluster")]
    _cluster: String,
    first: u64,
    before: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    end: u64,
    hash: String,
}

/// Proves an exported file, line by line, without a server.
pub fn check(mut from: impl BufRead) -> Result<Verified, BadLine> {
    let (mut line, mut at) = (Vec::new(), 1);
    take(&mut from, at, &mut line)?;
    let beginning: Beginning = serde_json::from_slice(&line).map_err(|_| bad(at, "not the beginning of a trail"))?;
    if beginning.trail != frame::VERSION {
        return Err(bad(at, "a trail of a version that is not known here"));
    }
    let mut hash = unhex(&beginning.before).ok_or_else(|| bad(at, "no hash to begin with"))?;
    let mut next = beginning.first;
    loop {
        at += 1;
        take(&mut from, at, &mut line)?;
        if let Ok(End { end, hash: told }) = serde_json::from_slice(&line) {
            if end.checked_add(1) != Some(next) || unhex(&told) != Some(hash) {
                return Err(bad(at, "it ends elsewhere than its entries"));
            }
            nothing_after(&mut from, at)?;
            return Ok(Verified { first: beginning.first, last: end, hash });
        }
        let (text, told) = split(&line).ok_or_else(|| bad(at, "not an entry with its hash"))?;
        let entry = super::Entry::read(&text).ok_or_else(|| bad(at, "not an entry"))?;
        if entry.entry != next {
            return Err(bad(at, &format!("entry {} where {next} follows", entry.entry)));
        }
        hash = link(&hash, &text);
        if hash != told {
            return Err(bad(at, "its hash does not follow on the one before"));
        }
        next += 1;
    }
}

fn bad(line: u64, why: &str) -> BadLine {
    BadLine { line, why: why.to_owned() }
}

/// The next line, if it is not longer than one can be.
fn take(from: &mut impl BufRead, at: u64, line: &mut Vec<u8>) -> Result<(), BadLine> {
    line.clear();
    let most = frame::TEXT as u64 + 1_024;
    let got = Read::take(from, most).read_until(b'\n', line).map_err(|error| bad(at, &error.to_string()))?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        let why = if got as u64 == most { "longer than an entry can be" } else { "the file is cut short here" };
        return Err(bad(at, why));
    }
    Ok(())
}

/// Nothing may follow on the end.
fn nothing_after(from: &mut impl BufRead, at: u64) -> Result<(), BadLine> {
    match from.fill_buf() {
        Ok([]) => Ok(()),
        Ok(_) => Err(BadLine { line: at + 1, why: "lines after the end".to_owned() }),
        Err(error) => Err(BadLine { line: at + 1, why: error.to_string() }),
    }
}

/// The text of an entry and the hash that its line tells.
fn split(line: &[u8]) -> Option<(Vec<u8>, Hash)> {
    let at = line.len().checked_sub(b",\"hash\":\"".len() + 64 + 2)?;
    let (text, rest) = line.split_at(at);
    let hash = rest.strip_prefix(b",\"hash\":\"")?.strip_suffix(b"\"}")?;
    let hash = unhex(std::str::from_utf8(hash).ok()?)?;
    Some(([text, b"}"].concat(), hash))
}
