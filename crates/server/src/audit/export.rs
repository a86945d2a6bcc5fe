//! Export of the audit log as lines of JSON, and verification of an exported file without a server.
//!
//! The first line is `{"trail":1,"cluster":…,"first":…,"before":…}`, the last `{"end":…,"hash":…}`. Every other line is an
//! entry with its hash as the last field. Without `,"hash":"…"` it is the text that was hashed after the 32 bytes of the previous
//! hash.

use std::fmt;
use std::io::{BufRead, Read};

use serde::Deserialize;

use super::frame::{self, FileHeader};
use super::query::segments;
use super::segment::{read, scan};
use super::verify::is_gap;
use super::{AuditHead, AuditProof, Hash, HeadCheck, hex, link, unhex};
use crate::journal::{AuditFiles, ReadError};

/// An export in progress, file by file.
#[derive(Clone, Debug)]
pub struct AuditExport {
    head: AuditHead,
    /// Number of the next entry.
    next: u64,
    stage: ExportStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportStage {
    Header,
    Entries,
    Done,
}

impl AuditExport {
    /// An export of all retained entries, up to `head`.
    pub fn new(head: AuditHead) -> Self {
        Self { head, next: 0, stage: ExportStage::Header }
    }

    /// The next lines; `None` at the end.
    pub fn lines(&mut self, files: &dyn AuditFiles) -> Result<Option<Vec<u8>>, ReadError> {
        let mut out = Vec::new();
        match self.stage {
            ExportStage::Done => return Ok(None),
            ExportStage::Header => {
                self.stage = ExportStage::Entries;
                let (cluster, first, previous) = oldest(files)?.map_or((String::new(), 1, [0; 32]), |header| {
                    (header.cluster.to_string(), header.first, header.previous)
                });
                self.next = first;
                let header = ExportHeader { version: frame::VERSION, cluster, first, before: hex(&previous) };
                out.extend_from_slice(header.line().as_bytes());
                out.push(b'\n');
            }
            ExportStage::Entries if self.next > self.head.entries => {
                self.stage = ExportStage::Done;
                let line = serde_json::json!({ "end": self.head.entries, "hash": hex(&self.head.hash) });
                out.extend_from_slice(line.to_string().as_bytes());
                out.push(b'\n');
            }
            ExportStage::Entries => self.next_file(files, &mut out)?,
        }
        Ok(Some(out))
    }

    fn next_file(&mut self, files: &dyn AuditFiles, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let segments = segments(files)?;
        let removed = || ReadError::Unreadable { reason: format!("entry {} was removed during the export", self.next) };
        let at = segments.iter().rposition(|(_, _, first)| *first <= self.next).ok_or_else(removed)?;
        let (number, length, _) = segments[at];
        let (from, to) = (self.next, self.head.entries);
        let mut bytes = Vec::new();
        read(files, number, length, &mut bytes)?;
        let scanned = scan(&bytes, false, |frame| {
            if (from..=to).contains(&frame.entry) {
                put_line(frame.text, &frame.hash, out);
            }
        });
        match scanned {
            Ok(scanned) if scanned.next > from => {
                self.next = scanned.next.min(to + 1);
                Ok(())
            }
            _ => {
                Err(ReadError::Unreadable { reason: format!("{}: damaged; verify the audit log", files.label(number)) })
            }
        }
    }
}

fn oldest(files: &dyn AuditFiles) -> Result<Option<FileHeader>, ReadError> {
    for (number, _) in files.files()? {
        let mut header = [0; frame::HEADER_BYTES];
        files.read(number, 0, &mut header)?;
        if let Ok((header, _)) = FileHeader::decode(&header) {
            return Ok(Some(header));
        }
    }
    Ok(None)
}

/// Appends an entry with its hash, as one line.
fn put_line(text: &[u8], hash: &Hash, out: &mut Vec<u8>) {
    out.extend_from_slice(text.strip_suffix(b"}").unwrap_or(text));
    out.extend_from_slice(b",\"hash\":\"");
    out.extend_from_slice(hex(hash).as_bytes());
    out.extend_from_slice(b"\"}\n");
}

/// The first invalid line of an exported file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportLineError {
    /// Its number, from 1.
    pub line: u64,
    /// The error.
    pub reason: String,
}

impl fmt::Display for ExportLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; export again, or compare with the audit log of the server", self.line, self.reason)
    }
}

impl std::error::Error for ExportLineError {}

/// The first line of an exported file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportHeader {
    #[serde(rename = "trail")]
    pub version: u32,
    pub cluster: String,
    pub first: u64,
    pub before: String,
}

impl ExportHeader {
    /// The line without its end.
    pub fn line(&self) -> String {
        let Self { version, cluster, first, before } = self;
        serde_json::json!({ "trail": version, "cluster": cluster, "first": first, "before": before }).to_string()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportTrailer {
    end: u64,
    hash: String,
}

/// Verifies an exported file, line by line, without a server.
pub fn verify_export(from: impl BufRead) -> Result<AuditProof, ExportLineError> {
    verify_export_with(from, HeadCheck::default())
}

/// Like [`verify_export`], and the file must agree with what is known of the log from elsewhere. Without that, a file that was cut or
/// rewritten as a whole verifies too: the chain has no key.
pub fn verify_export_with(from: impl BufRead, known: HeadCheck) -> Result<AuditProof, ExportLineError> {
    read_export(from, known, |_, _| {})
}

/// Like [`verify_export_with`], and calls `each` with the text and the hash of every entry, in order. An entry counts only if the whole
/// file is intact.
pub fn read_export(
    mut from: impl BufRead,
    mut known: HeadCheck,
    mut each: impl FnMut(&[u8], &Hash),
) -> Result<AuditProof, ExportLineError> {
    let (mut line, mut at) = (Vec::new(), 1);
    read_line(&mut from, at, &mut line)?;
    let header: ExportHeader =
        serde_json::from_slice(&line).map_err(|_| invalid(at, "not the first line of an exported audit log"))?;
    if header.version != frame::VERSION {
        return Err(invalid(at, "unknown version of the audit log"));
    }
    let mut hash = unhex(&header.before).ok_or_else(|| invalid(at, "`before` is not a hash"))?;
    let mut next = header.first;
    let mut gaps = 0;
    loop {
        if let Some(entry) = next.checked_sub(1).filter(|entry| *entry > 0) {
            known.see(entry, &hash);
        }
        at += 1;
        read_line(&mut from, at, &mut line)?;
        if let Ok(ExportTrailer { end, hash: last }) = serde_json::from_slice(&line) {
            if end.checked_add(1) != Some(next) || unhex(&last) != Some(hash) {
                return Err(invalid(at, "the last line does not match the last entry"));
            }
            expect_end(&mut from, at)?;
            let heads = known.finish(header.first, end).map_err(|mismatch| invalid(at, &mismatch.to_string()))?;
            return Ok(AuditProof { first: header.first, last: end, hash, gaps, heads });
        }
        let (text, entry_hash) = split_hash(&line).ok_or_else(|| invalid(at, "not an entry with a hash"))?;
        let entry = super::AuditEntry::parse(&text).ok_or_else(|| invalid(at, "not an entry"))?;
        if entry.entry != next {
            return Err(invalid(at, &format!("expected entry {next}, got {}", entry.entry)));
        }
        hash = link(&hash, &text);
        if hash != entry_hash {
            return Err(invalid(at, "the hash does not follow the previous entry"));
        }
        gaps += u64::from(is_gap(&text));
        next += 1;
        each(&text, &hash);
    }
}

fn invalid(line: u64, reason: &str) -> ExportLineError {
    ExportLineError { line, reason: reason.to_owned() }
}

/// Reads the next line, up to the longest possible one.
fn read_line(from: &mut impl BufRead, at: u64, line: &mut Vec<u8>) -> Result<(), ExportLineError> {
    line.clear();
    let max = frame::MAX_TEXT_BYTES as u64 + 1_024;
    let got = Read::take(from, max).read_until(b'\n', line).map_err(|error| invalid(at, &error.to_string()))?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        let reason = if got as u64 == max { "line too long" } else { "the file is truncated" };
        return Err(invalid(at, reason));
    }
    Ok(())
}

/// Fails if anything follows the last line.
fn expect_end(from: &mut impl BufRead, at: u64) -> Result<(), ExportLineError> {
    match from.fill_buf() {
        Ok([]) => Ok(()),
        Ok(_) => Err(ExportLineError { line: at + 1, reason: "unexpected line after the end".to_owned() }),
        Err(error) => Err(ExportLineError { line: at + 1, reason: error.to_string() }),
    }
}

/// Splits a line into the text of the entry and its hash.
pub(super) fn split_hash(line: &[u8]) -> Option<(Vec<u8>, Hash)> {
    let at = line.len().checked_sub(b",\"hash\":\"".len() + 64 + 2)?;
    let (text, rest) = line.split_at(at);
    let hash = rest.strip_prefix(b",\"hash\":\"")?.strip_suffix(b"\"}")?;
    let hash = unhex(std::str::from_utf8(hash).ok()?)?;
    Some(([text, b"}"].concat(), hash))
}
