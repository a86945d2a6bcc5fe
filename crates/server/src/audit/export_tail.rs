//! The end of an exported audit log, from one entry on, as an exported log of its own. It is cut while the export arrives.

use std::fmt;

use serde::Deserialize;

use super::export::{ExportHeader, split_hash};
use super::{frame, hex};

/// Why the end of an export was not cut out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportTailError {
    /// A line is not one of an export.
    Line {
        /// Its number, from 1.
        line: u64,
    },
    /// The end is larger than the limit.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The export ended before its last line.
    Incomplete,
}

impl fmt::Display for ExportTailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line } => {
                write!(f, "line {line} is not one of an exported audit log; check the server's version")
            }
            Self::TooLarge { limit } => write!(f, "the audit log from the first entry on has more than {limit} bytes"),
            Self::Incomplete => f.write_str("the export ended early; retry"),
        }
    }
}

impl std::error::Error for ExportTailError {}

/// Cuts the entries from `first` on out of an export, with a first line of their own. It does not verify the chain: verify the result.
#[derive(Debug)]
pub struct ExportTail {
    first: u64,
    limit: usize,
    /// The part of a line that has arrived.
    line: Vec<u8>,
    lines: u64,
    cluster: String,
    /// Hash of the last entry before the first one that is kept.
    before: String,
    out: Vec<u8>,
    ended: bool,
}

/// The fields of a line that decide whether it is kept.
#[derive(Deserialize)]
struct LineNumber {
    entry: Option<u64>,
    end: Option<u64>,
}

impl ExportTail {
    /// Keeps entries from `first` on, up to `limit` bytes.
    pub const fn new(first: u64, limit: usize) -> Self {
        Self {
            first,
            limit,
            line: Vec::new(),
            lines: 0,
            cluster: String::new(),
            before: String::new(),
            out: Vec::new(),
            ended: false,
        }
    }

    /// Reads the next bytes of the export.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), ExportTailError> {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..at]);
            let line = std::mem::take(&mut self.line);
            self.lines += 1;
            self.take_line(&line)?;
            bytes = &bytes[at + 1..];
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > frame::MAX_TEXT_BYTES + 1_024 {
            return Err(ExportTailError::Line { line: self.lines + 1 });
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), ExportTailError> {
        let invalid = ExportTailError::Line { line: self.lines };
        if self.lines == 1 {
            let header: ExportHeader = serde_json::from_slice(line).map_err(|_| invalid)?;
            (self.cluster, self.before) = (header.cluster, header.before);
            // The log may have lost older entries.
            self.first = self.first.max(header.first);
            return Ok(());
        }
        let number: LineNumber = serde_json::from_slice(line).map_err(|_| invalid.clone())?;
        match (number.entry, number.end) {
            (Some(entry), _) if entry < self.first => {
                let (_, hash) = split_hash(line).ok_or(invalid)?;
                self.before = hex(&hash);
                return Ok(());
            }
            (Some(_), _) => {}
            (None, Some(end)) => {
                // A log that ends before the first entry has nothing to keep.
                self.first = self.first.min(end + 1);
                self.ended = true;
            }
            (None, None) => return Err(invalid),
        }
        if self.out.is_empty() {
            let Self { cluster, first, before, .. } = &*self;
            let (cluster, before) = (cluster.clone(), before.clone());
            let header = ExportHeader { version: frame::VERSION, cluster, first: *first, before };
            self.out.extend_from_slice(header.line().as_bytes());
            self.out.push(b'\n');
        }
        if self.out.len() + line.len() + 1 > self.limit {
            return Err(ExportTailError::TooLarge { limit: self.limit });
        }
        self.out.extend_from_slice(line);
        self.out.push(b'\n');
        Ok(())
    }

    /// The end of the export.
    pub fn finish(self) -> Result<Vec<u8>, ExportTailError> {
        if self.ended && self.line.is_empty() { Ok(self.out) } else { Err(ExportTailError::Incomplete) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Hash, HeadCheck, link, read_export, verify_export};
    use super::*;

    /// An exported log of entries `first` to `last`.
    fn export(first: u64, last: u64) -> Vec<u8> {
        let mut hash: Hash = [first as u8; 32];
        let header = ExportHeader { version: 1, cluster: "c".into(), first, before: hex(&hash) };
        let mut out = format!("{}\n", header.line());
        for entry in first..=last {
            let text = format!(
                "{{\"entry\":{entry},\"position\":1,\"step\":0,\"time_ms\":1,\"wall_ms\":1,\"kind\":\"a<\u{e4}>\"}}"
            );
            hash = link(&hash, text.as_bytes());
            out.push_str(&format!("{},\"hash\":\"{}\"}}\n", text.trim_end_matches('}'), hex(&hash)));
        }
        out.push_str(&format!("{{\"end\":{last},\"hash\":\"{}\"}}\n", hex(&hash)));
        out.into_bytes()
    }

    fn cut(export: &[u8], first: u64, limit: usize, step: usize) -> Result<Vec<u8>, ExportTailError> {
        let mut tail = ExportTail::new(first, limit);
        for chunk in export.chunks(step) {
            tail.push(chunk)?;
        }
        tail.finish()
    }

    #[test]
    fn the_end_of_an_export_is_an_intact_export_however_it_arrives() {
        let whole = export(3, 40);
        for step in [1, 7, 1_000_000] {
            for first in [3, 4, 20, 40] {
                let tail = cut(&whole, first, 1 << 20, step).expect("a whole export");
                let mut numbers = Vec::new();
                let proof = read_export(&tail[..], HeadCheck::default(), |text, _| numbers.push(text.len()));
                let proof = proof.expect("the chain continues");
                assert_eq!((proof.first, proof.last, numbers.len() as u64), (first, 40, 41 - first));
                assert_eq!(proof.hash, verify_export(&whole[..]).expect("intact").hash);
            }
        }
        assert_eq!(verify_export(&cut(&whole, 1, 1 << 20, 9).expect("whole")[..]).expect("intact").first, 3);
        assert_eq!(verify_export(&cut(&whole, 99, 1 << 20, 9).expect("whole")[..]).expect("intact").first, 41);
    }

    #[test]
    fn a_large_a_cut_and_an_unknown_export_are_refused() {
        let whole = export(1, 9);
        assert_eq!(cut(&whole, 2, 300, 100), Err(ExportTailError::TooLarge { limit: 300 }));
        assert!(cut(&whole, 9, 600, 100).is_ok(), "only what is kept counts");
        assert_eq!(cut(&whole[..whole.len() - 5], 2, 1 << 20, 100), Err(ExportTailError::Incomplete));
        assert_eq!(cut(b"<html>\n", 2, 1 << 20, 100), Err(ExportTailError::Line { line: 1 }));
        let other = [&whole[..], b"{\"a\":1}\n"].concat();
        assert!(matches!(cut(&other, 2, 1 << 20, 100), Err(ExportTailError::Line { .. })));
    }
}
