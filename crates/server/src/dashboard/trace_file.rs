//! The timeline of a resource in one self-contained file, for a post-mortem: drawing, history and, if its reader may have it, the
//! chained audit entries from which all of it was made.
//!
//! A file with a chain can be verified without a server ([`verify_trace_file`]): the page must be byte for byte the one that this
//! program draws from the chain and the [`TraceParameters`] in the file. So a changed row, bar, word or style is found, not only a
//! changed entry. That needs the same drawing: [`LAYOUT`] is its number.

use std::fmt;

use leasehold_wire::json::AuditEntryBody;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::{Deserialize, Serialize};

use super::audit_entry_table;
use super::text::{count, date_time, duration, plural, visible};
use super::timeline::{ResourceTimeline, STYLE, SilentLease, TimelineContext, TimelineSvg};
use crate::audit::{AuditProof, ExportLineError, HeadCheck, hex, read_export};

/// Number of the drawing. A change of the page that a file contains takes the next one: a file is compared only with its own drawing.
pub const LAYOUT: u32 = 1;

/// What a page is drawn from besides the audit entries. A file contains it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceParameters {
    /// [`LAYOUT`] of the program that drew the page.
    pub layout: u32,
    /// Its version.
    pub version: String,
    /// The resource.
    pub resource: String,
    /// When the page was drawn; held leases extend to it.
    pub now_ms: u64,
    /// Start of the range that is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ms: Option<u64>,
    /// End of the range that is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// A moment that is marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// Targets that are declared or have reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Held leases that were overdue for a renewal: the token number, and the time of the last renewal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<(u64, u64)>,
    /// Older entries of the resource were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_older: bool,
}

impl TraceParameters {
    /// Parameters of a page that this program draws.
    pub fn new(resource: &str, now_ms: u64) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { layout: LAYOUT, version, resource: resource.to_owned(), now_ms, ..Self::default() }
    }

    /// The timeline of these entries, in any order.
    pub fn timeline(&self, entries: &[AuditEntryBody]) -> ResourceTimeline {
        let silent = self.silent.iter().map(|&(token, since_ms)| SilentLease { token, since_ms });
        let (targets, silent) = (self.targets.clone(), silent.collect());
        let context = TimelineContext { now_ms: self.now_ms, targets, silent, renewals: Vec::new() };
        ResourceTimeline::new(&self.resource, entries, context)
    }

    /// The range that is drawn.
    pub fn range_ms(&self, timeline: &ResourceTimeline) -> (u64, u64) {
        let from = self.from_ms.unwrap_or(timeline.range_ms.0);
        (from, self.until_ms.unwrap_or(timeline.range_ms.1).max(from + 1))
    }
}

/// The end of the audit log that a page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceHead {
    /// Number of the last entry.
    pub entry: u64,
    /// Its hash in hexadecimal.
    pub hash: String,
}

/// What a file contains.
pub struct TraceFile<'a> {
    /// What the page is drawn from, besides the entries.
    pub parameters: &'a TraceParameters,
    /// The audit entries of the resource, newest first.
    pub entries: &'a [AuditEntryBody],
    /// The end of the audit log.
    pub head: TraceHead,
    /// The chained entries of the whole log from the first entry of the resource on, as an export has them.
    pub chain: Option<&'a str>,
}

/// Where the parameters and the chained entries of a file begin, and where both end.
const PARAMETERS: &str = "<pre id=\"trace-parameters\" hidden>";
const CHAIN: &str = "<pre id=\"audit-chain\" hidden>";
const END: &str = "</pre>";

impl TraceFile<'_> {
    /// The drawing alone.
    pub fn svg(&self) -> String {
        let timeline = self.parameters.timeline(self.entries);
        TimelineSvg { standalone: true, has_links: false, ..self.drawing(&timeline) }.draw(&timeline).into_string()
    }

    /// A page with the drawing and the history.
    pub fn html(&self) -> String {
        let timeline = self.parameters.timeline(self.entries);
        let range = self.parameters.range_ms(&timeline);
        let is_shown = |entry: &&AuditEntryBody| (range.0..=range.1).contains(&entry.wall_ms);
        let shown: Vec<AuditEntryBody> = self.entries.iter().filter(is_shown).cloned().collect();
        let title = format!("Timeline of {}", visible(&self.parameters.resource));
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        let style = PreEscaped(include_str!("assets/trace.css"));
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="generator" content=(format!("leasehold {}", self.parameters.version));
                    title { (title) }
                    style { (style) (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        h1 { (title) }
                        p.sentence {
                            (date_time(range.0)) " to " (date_time(range.1)) " UTC, " (duration(range.1 - range.0)) ", "
                            (entries_text(shown.len()))
                            @if shown.len() < self.entries.len() { " of " (count(self.entries.len() as u64)) }
                        }
                        @if self.parameters.has_older { p.empty { "Older entries of this resource were left out." } }
                        section.panel { div.scroll { (self.drawing(&timeline).draw(&timeline)) } }
                        section.panel { h2 { "History" } (audit_entry_table::resource_table(&shown, self.parameters.at_ms)) }
                        (self.proof())
                    }
                }
            }
        }
        .into_string()
    }

    fn drawing(&self, timeline: &ResourceTimeline) -> TimelineSvg {
        let range_ms = Some(self.parameters.range_ms(timeline));
        TimelineSvg { range_ms, moment_ms: self.parameters.at_ms, has_links: true, standalone: false }
    }

    fn proof(&self) -> Markup {
        let parameters = serde_json::to_string(self.parameters).expect("texts and numbers are JSON");
        html! {
            p.proof {
                "Drawn " (date_time(self.parameters.now_ms)) " UTC by leasehold " (self.parameters.version) ". "
                "The audit log ended with entry " (count(self.head.entry)) ", hash " code { (self.head.hash) } ". "
                @if self.chain.is_some() {
                    "This file contains the chain of all entries from the first one above to that one. "
                    code { "leasehold audit verify FILE.html" }
                    " verifies without a server that the chain is unbroken and that this page shows its entries. The time of the drawing, \
                     silence of leases that were still held, and targets that had not reported are not in the audit log."
                } @else { "This file does not contain the chain of the entries, so it cannot be verified." }
            }
            pre #trace-parameters hidden { (parameters) }
            @if let Some(chain) = self.chain { pre #audit-chain hidden { (chain) } }
        }
    }
}

fn entries_text(entries: usize) -> String {
    plural(entries as u64, "audit entry").replace("entrys", "entries")
}

/// The chained entries in a file that [`TraceFile::html`] wrote; none if it contains none.
pub fn chain_of(file: &str) -> Option<String> {
    part_of(file, CHAIN)
}

fn part_of(file: &str, start: &str) -> Option<String> {
    let (_, rest) = file.rsplit_once(start)?;
    let (part, _) = rest.split_once(END)?;
    Some(part.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
}

/// Why a file does not verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceFileError {
    /// It is not a file that [`TraceFile::html`] wrote.
    Unknown,
    /// Its end is missing.
    Cut,
    /// It contains no chain.
    NoChain,
    /// The chain is broken, or not the known one. Lines count from its first one.
    Chain(ExportLineError),
    /// The chain is intact, and another version drew the page.
    OtherLayout {
        /// The version that drew it.
        version: String,
    },
    /// The chain is intact, and the page is not the one that follows from it.
    Page {
        /// The audit entry in whose row the first difference is, if it is in one.
        entry: Option<u64>,
        /// The text that follows from the chain.
        expected: String,
        /// The text in the file.
        found: String,
    },
}

impl fmt::Display for TraceFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("not a page of `leasehold trace --html`; check the path"),
            Self::Cut => f.write_str("the page is cut: its end is missing; copy it again, or trace again"),
            Self::NoChain => f.write_str(
                "the page contains no audit chain, so nothing proves it; trace again as an identity that may export the audit log",
            ),
            Self::Chain(error) => write!(f, "audit chain of the page, {error}"),
            Self::OtherLayout { version } => write!(
                f,
                "the audit chain is intact, but leasehold {version} drew the page, which this version draws differently; verify it \
                 with that version, or trace again"
            ),
            Self::Page { entry, expected, found } => {
                write!(f, "the audit chain is intact, but the page was changed")?;
                if let Some(entry) = entry {
                    write!(f, " in the row of entry {entry}")?;
                }
                write!(f, ": \"{found}\" instead of \"{expected}\"; do not trust the page, trace again")
            }
        }
    }
}

impl std::error::Error for TraceFileError {}

/// What a verification has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceProof {
    /// The proof of the chain.
    pub chain: AuditProof,
    /// The resource.
    pub resource: String,
    /// Number of its entries in the chain; the page was drawn from all of them.
    pub entries: u64,
}

/// Verifies a file without a server: its chain, and that its page is the one that follows from the chain.
pub fn verify_trace_file(file: &str, known: HeadCheck) -> Result<TraceProof, TraceFileError> {
    let parameters = part_of(file, PARAMETERS).and_then(|text| serde_json::from_str::<TraceParameters>(&text).ok());
    let parameters = parameters.ok_or(TraceFileError::Unknown)?;
    if !file.ends_with("</html>") {
        return Err(TraceFileError::Cut);
    }
    let chain = chain_of(file).ok_or(TraceFileError::NoChain)?;
    let (proof, entries) = read_chain(&chain, &parameters.resource, known).map_err(TraceFileError::Chain)?;
    if parameters.layout != LAYOUT {
        return Err(TraceFileError::OtherLayout { version: parameters.version });
    }
    let head = TraceHead { entry: proof.last, hash: hex(&proof.hash) };
    let page = TraceFile { parameters: &parameters, entries: &entries, head, chain: Some(&chain) }.html();
    if page != file {
        return Err(difference(&page, file));
    }
    Ok(TraceProof { chain: proof, resource: parameters.resource, entries: entries.len() as u64 })
}

/// Verifies a chain and returns the entries of one resource, newest first.
pub fn read_chain(
    chain: &str,
    resource: &str,
    known: HeadCheck,
) -> Result<(AuditProof, Vec<AuditEntryBody>), ExportLineError> {
    let mut entries = Vec::new();
    let proof = read_export(chain.as_bytes(), known, |text, hash| {
        let entry = AuditEntryBody::of(String::from_utf8_lossy(text).into_owned(), hash);
        if entry.resource.as_deref() == Some(resource) {
            entries.push(entry);
        }
    })?;
    entries.reverse();
    Ok((proof, entries))
}

/// Characters of a difference that are shown.
const SHOWN: usize = 48;

/// Start of the attribute of a row that contains the number of its audit entry.
const ROW_ID: &str = " id=\"e";

/// The first difference between the page that was expected and the one in a file.
fn difference(expected: &str, found: &str) -> TraceFileError {
    let same: usize = expected
        .chars()
        .zip(found.chars())
        .take_while(|(one, other)| one == other)
        .map(|(one, _)| one.len_utf8())
        .sum();
    let (before, rest) = expected.split_at(same);
    // The row that began last and has not ended.
    let entry = before.rfind(ROW_ID).filter(|row| !before[*row..].contains("</tr>"));
    let entry = entry.and_then(|row| {
        let digits: String = expected[row + ROW_ID.len()..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    let shown = |text: &str| text.chars().take(SHOWN).collect::<String>();
    TraceFileError::Page { entry, expected: shown(rest), found: shown(&found[same..]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Hash, link};

    const RESOURCE: &str = "<pre id=\"audit-chain\" hidden>";

    /// The chain of a story: two holders, one of another resource, a hostile comment.
    fn chain() -> String {
        let entry = |number: u64, rest: &str| {
            format!(
                "{{\"entry\":{number},\"position\":{number},\"step\":0,\"time_ms\":{number}000,\"wall_ms\":170000000{number}000,{rest}}}"
            )
        };
        let ours = serde_json::to_string(RESOURCE).expect("a text");
        let texts = [
            entry(
                5,
                &format!(
                    "\"kind\":\"granted\",\"resource\":{ours},\"holder\":\"a\",\"lease\":\"1.0\",\"token_number\":\"10\",\"access\":\"exclusive\",\"slot\":0,\"ttl_ms\":1000"
                ),
            ),
            entry(
                6,
                "\"kind\":\"granted\",\"resource\":\"other\",\"holder\":\"x\",\"lease\":\"2.0\",\"token_number\":\"11\"",
            ),
            entry(
                7,
                &format!(
                    "\"kind\":\"ended\",\"resource\":{ours},\"holder\":\"a\",\"lease\":\"1.0\",\"token_number\":\"10\",\"state\":\"revoked\",\"reason\":\"operator\",\"why\":\"</pre><script>alert(1)</script>\""
                ),
            ),
            entry(
                8,
                &format!(
                    "\"kind\":\"granted\",\"resource\":{ours},\"holder\":\"b\",\"lease\":\"3.0\",\"token_number\":\"12\",\"access\":\"exclusive\",\"slot\":0,\"ttl_ms\":1000"
                ),
            ),
        ];
        let mut hash: Hash = [4; 32];
        let mut out = format!("{{\"before\":\"{}\",\"cluster\":\"c\",\"first\":5,\"trail\":1}}\n", hex(&hash));
        for text in texts {
            hash = link(&hash, text.as_bytes());
            out.push_str(&format!("{},\"hash\":\"{}\"}}\n", &text[..text.len() - 1], hex(&hash)));
        }
        out.push_str(&format!("{{\"end\":8,\"hash\":\"{}\"}}\n", hex(&hash)));
        out
    }

    fn parameters() -> TraceParameters {
        TraceParameters { at_ms: Some(1_700_000_006_000), ..TraceParameters::new(RESOURCE, 1_700_000_009_000) }
    }

    fn file(parameters: &TraceParameters, chain: &str) -> String {
        let (proof, entries) = read_chain(chain, RESOURCE, HeadCheck::default()).expect("intact");
        let head = TraceHead { entry: proof.last, hash: hex(&proof.hash) };
        TraceFile { parameters, entries: &entries, head, chain: Some(chain) }.html()
    }

    #[test]
    fn a_file_contains_its_chain_and_verifies() {
        let chain = chain();
        let html = file(&parameters(), &chain);
        assert_eq!(chain_of(&html).as_deref(), Some(chain.as_str()));
        assert!(!html.contains("<script>"), "{html}");
        let proof = verify_trace_file(&html, HeadCheck::default()).expect("untouched");
        assert_eq!((proof.entries, proof.chain.first, proof.chain.last), (3, 5, 8));
        let ranged = TraceParameters { from_ms: Some(1_700_000_006_500), ..parameters() };
        let html = file(&ranged, &chain);
        assert!(html.contains("2 audit entries of 3") && !html.contains("id=\"e5\""), "{html}");
        verify_trace_file(&html, HeadCheck::default()).expect("untouched");
    }

    #[test]
    fn every_change_of_the_page_is_found() {
        let html = file(&parameters(), &chain());
        let page = |error| match error {
            TraceFileError::Page { entry, found, .. } => (entry, found),
            other => panic!("{other:?}"),
        };
        let changed = |from: &str, to: &str| {
            assert_ne!(html, html.replacen(from, to, 1), "the file contains {from}");
            verify_trace_file(&html.replacen(from, to, 1), HeadCheck::default()).expect_err(to)
        };
        // A word of a visible row, a whole row, the drawing, the style, a comment, text at the end.
        assert_eq!(page(changed("<bdi class=\"name\">a</bdi>", "<bdi class=\"name\">z</bdi>")).0, Some(7));
        let row = &html[html.find(" id=\"e7\"").expect("a row")..];
        let row = &row[..row.find("</tr>").expect("its end") + 5];
        page(changed(row, ""));
        page(changed("tl-bar-open\"", "tl-bar\""));
        page(changed("--tl-refused: #c62828", "--tl-refused: #ffffff"));
        page(changed("<main>", "<!-- x --><main>"));
        page(changed("</body>", "<p>all clear</p></body>"));
        for end in [html.len() - 7, html.len() - 40] {
            assert_eq!(verify_trace_file(&html[..end], HeadCheck::default()), Err(TraceFileError::Cut));
        }
        // An entry of the chain, of this resource or another one.
        for (from, to) in [
            ("&quot;holder&quot;:&quot;a&quot;", "&quot;holder&quot;:&quot;z&quot;"),
            ("&quot;x&quot;", "&quot;y&quot;"),
        ] {
            assert!(matches!(changed(from, to), TraceFileError::Chain(_)), "{from}");
        }
        assert!(matches!(changed("&quot;layout&quot;:1", "&quot;layout&quot;:9"), TraceFileError::OtherLayout { .. }));
        page(changed("&quot;now_ms&quot;:1700000009000", "&quot;now_ms&quot;:1700000008000"));
    }

    #[test]
    fn a_file_without_a_chain_and_another_file_say_so() {
        let (parameters, entries) = (parameters(), Vec::new());
        let without = TraceFile { parameters: &parameters, entries: &entries, head: TraceHead::default(), chain: None };
        assert_eq!(chain_of(&without.html()), None);
        assert!(without.html().contains("cannot be verified"));
        assert_eq!(verify_trace_file(&without.html(), HeadCheck::default()), Err(TraceFileError::NoChain));
        assert_eq!(verify_trace_file("<!DOCTYPE html>", HeadCheck::default()), Err(TraceFileError::Unknown));
        assert!(without.svg().contains("<style>") && !without.svg().contains("href"), "{}", without.svg());
    }

    /// Fails when the page is drawn differently than the files that users keep.
    #[test]
    fn the_drawing_has_not_changed_without_a_new_layout() {
        let html = file(&TraceParameters { version: "0".to_owned(), ..parameters() }, &chain());
        let digest = hex(&link(&[0; 32], html.as_bytes()));
        assert_eq!(
            (LAYOUT, digest.as_str()),
            (1, "8df8cc322afd90b9fc821a4408c5be7987b0eef3c356d6bfcf8275f2cde8b435"),
            "after a release, also take the next LAYOUT"
        );
    }
}
