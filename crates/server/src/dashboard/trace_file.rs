//! The timeline of a resource in one self-contained file, for a post-mortem.

use leasehold_wire::json::AuditEntryBody;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::audit_entry_table;
use super::text::{count, date_time, duration, visible};
use super::timeline::{ResourceTimeline, STYLE, TimelineSvg};

/// What a file contains.
pub struct TraceFile<'a> {
    /// The timeline.
    pub timeline: &'a ResourceTimeline,
    /// The audit entries of the resource, newest first.
    pub entries: &'a [AuditEntryBody],
    /// The last entry of the audit log, and its hash.
    pub head: (u64, &'a str),
    /// The chained entries of the whole log from the first entry of the resource on, as an export has them.
    pub chain: Option<&'a str>,
}

/// Where the chained entries of a file begin and end.
const CHAIN: (&str, &str) = ("<pre id=\"audit-chain\" hidden>", "</pre>");

impl TraceFile<'_> {
    /// The drawing alone.
    pub fn svg(&self) -> String {
        TimelineSvg { standalone: true, ..TimelineSvg::default() }.draw(self.timeline).into_string()
    }

    /// A page with the drawing and the history.
    pub fn html(&self) -> String {
        let title = format!("Timeline of {}", visible(&self.timeline.resource));
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        let style = PreEscaped(include_str!("assets/dashboard.css"));
        let (first, last) = self.timeline.range_ms;
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) }
                    style { (style) (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        h1 { (title) }
                        p.sentence { (date_time(first)) " to " (date_time(last)) " UTC, " (duration(last - first)) ", " (count(self.entries.len() as u64)) " audit entries" }
                        section.panel { div.scroll { (TimelineSvg { has_links: true, ..TimelineSvg::default() }.draw(self.timeline)) } }
                        section.panel { h2 { "History" } (audit_entry_table::resource_table(self.entries, None)) }
                        (self.proof())
                    }
                }
            }
        }
        .into_string()
    }

    fn proof(&self) -> Markup {
        html! {
            p.proof {
                "The audit log ended with entry " (count(self.head.0)) ", hash " code { (self.head.1) } ". "
                @if self.chain.is_some() { "This file contains the chain from the first entry above to that one: " code { "leasehold audit verify FILE.html" } " verifies it without a server." }
                @else { "This file does not contain the chain of the entries." }
            }
            @if let Some(chain) = self.chain { pre #audit-chain hidden { (chain) } }
        }
    }
}

/// The chained entries in a file that [`TraceFile::html`] wrote; none if it contains none.
pub fn chain_of(file: &str) -> Option<String> {
    let (_, rest) = file.rsplit_once(CHAIN.0)?;
    let (chain, _) = rest.split_once(CHAIN.1)?;
    Some(chain.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::timeline::TimelineContext;

    #[test]
    fn the_chain_of_a_file_is_the_one_that_was_written() {
        let chain = "{\"a\":\"</pre><script>&lt;\"}\n{\"b\":1}\n";
        let timeline = ResourceTimeline::new("<pre id=\"audit-chain\" hidden>", &[], TimelineContext::default());
        let file = TraceFile { timeline: &timeline, entries: &[], head: (1, "00"), chain: Some(chain) };
        let html = file.html();
        assert_eq!(chain_of(&html).as_deref(), Some(chain));
        assert!(!html.contains("<script>"), "{html}");
        let without = TraceFile { chain: None, ..file };
        assert_eq!(chain_of(&without.html()), None);
        assert!(without.svg().contains("<style>") && !without.svg().contains("href"), "{}", without.svg());
    }
}
