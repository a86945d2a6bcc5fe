//! The frame of every page: head, navigation, the part that changes, and what the page depends on.

use leasehold_wire::v1;
use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::text::{count, visible};

/// A view of the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Counts and charts of the whole server.
    Overview,
    /// Resources with their leases.
    Leases,
    /// Which holders wait for which.
    Waits,
    /// Resources and their targets.
    Coverage,
    /// Changes of holder.
    Handovers,
    /// Servers and the store of the journal.
    Cluster,
    /// The audit log.
    Audit,
}

impl View {
    /// All views, in the order of the navigation.
    pub const ALL: [Self; 7] =
        [Self::Overview, Self::Leases, Self::Waits, Self::Coverage, Self::Handovers, Self::Cluster, Self::Audit];

    /// The name in the navigation, the address, and the key that opens it after `g`.
    const fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Overview => ("Overview", "/", "o"),
            Self::Leases => ("Leases", "/ui/leases", "l"),
            Self::Waits => ("Waits", "/ui/waits", "w"),
            Self::Coverage => ("Coverage", "/ui/coverage", "c"),
            Self::Handovers => ("Handovers", "/ui/handovers", "h"),
            Self::Cluster => ("Cluster", "/ui/cluster", "s"),
            Self::Audit => ("Audit", "/ui/audit", "a"),
        }
    }

    /// The name in the navigation.
    pub const fn title(self) -> &'static str {
        self.row().0
    }

    /// The address.
    pub const fn path(self) -> &'static str {
        self.row().1
    }

    /// The key that opens it after `g`.
    pub const fn key(self) -> &'static str {
        self.row().2
    }
}

/// A page.
pub struct Page<'a> {
    /// The view in the navigation; none for a page that is in no view.
    pub view: Option<View>,
    /// The title of the window.
    pub title: &'a str,
    /// The address of this page with its query, from which the part that changes is read again; none if the page does not change.
    pub live: Option<&'a str>,
    /// What stays when the page changes: forms.
    pub fixed: Markup,
    /// What changes.
    pub content: Markup,
    /// The journal position that the page depends on.
    pub position: Option<u64>,
    /// The last entry of the audit log and its hash, if the page depends on it.
    pub audit: Option<(u64, String)>,
    /// Who reads the page.
    pub principal: &'a str,
    /// Whether the reader may act.
    pub read_only: bool,
}

/// Other sites learn nothing of an address. Within the server a browser must name its origin: under `no-referrer` it would send the forms
/// of a page with `Origin: null`, as a page of another site can.
pub const REFERRER_POLICY: &str = "same-origin";

/// Turns off everything of htmx that the policy refuses or that the pages do not use.
const HTMX_CONFIG: &str = r#"{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,"historyCacheSize":0}"#;

impl Page<'_> {
    /// The whole page.
    pub fn render(&self) -> String {
        let is_live = self.live.is_some();
        let title = format!("{} \u{b7} Leasehold", visible(self.title));
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="referrer" content=(REFERRER_POLICY);
                    meta name="htmx-config" content=(HTMX_CONFIG);
                    title { (title) }
                    link rel="icon" href=(assets::path_of(assets::ICON)) type="image/svg+xml";
                    link rel="stylesheet" href=(assets::path_of(assets::STYLE_SHEET));
                    link rel="stylesheet" href=(assets::path_of(assets::TIMELINE_STYLE_SHEET));
                    script src=(assets::path_of(assets::HTMX)) defer {}
                    script src=(assets::path_of(assets::HTMX_SSE)) defer {}
                    script src=(assets::path_of(assets::SCRIPT)) defer {}
                }
                body hx-ext=[is_live.then_some("sse")] sse-connect=[is_live.then_some("/ui/changes")] {
                    a.skip href="#live" { "Skip to content" }
                    header.top {
                        a.brand href="/" { img src=(assets::path_of(assets::ICON)) alt="" width="20" height="20"; "Leasehold" }
                        nav aria-label="Views" {
                            @for view in View::ALL {
                                a href=(view.path()) data-key=(view.key())
                                    aria-current=[(self.view == Some(view)).then_some("page")] { (view.title()) }
                            }
                        }
                        span.who title="Your identity" { (visible(self.principal)) @if self.read_only { " \u{b7} read-only" } }
                    }
                    main {
                        (self.fixed)
                        (self.live_part())
                    }
                    footer {
                        span { kbd { "?" } " keys" }
                        span { "UTC" }
                    }
                    (key_help())
                }
            }
        };
        page.into_string()
    }

    /// The part that changes. It reads itself again when the server reports a change.
    fn live_part(&self) -> Markup {
        html! {
            div #live tabindex="-1" hx-get=[self.live] hx-select="#live" hx-trigger=[self.live.map(|_| "sse:refresh")]
                hx-swap="outerHTML" {
                (self.content)
                p.proof {
                    @if let Some(position) = self.position { "Journal position " (count(position)) }
                    @if let Some((entry, hash)) = &self.audit {
                        " \u{b7} audit entry " (count(*entry)) ", hash " code title=(hash) { (hash.get(..16).unwrap_or(hash)) }
                    }
                }
            }
        }
    }
}

fn key_help() -> Markup {
    html! {
        dialog #keys aria-label="Keys" {
            h2 { "Keys" }
            dl {
                dt { kbd { "/" } } dd { "search" }
                dt { kbd { "j" } " " kbd { "k" } } dd { "next and previous row" }
                dt { kbd { "Enter" } } dd { "open the row" }
                @for view in View::ALL {
                    dt { kbd { "g" } " " kbd { (view.key()) } } dd { (view.title()) }
                }
                dt { kbd { "p" } } dd { "pause and resume updates" }
                dt { kbd { "?" } } dd { "this list" }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// A page that reports a problem, with its next step.
pub fn problem_page(problem: &v1::Problem, principal: &str) -> String {
    let content = html! {
        section.panel.problem {
            h1 { (problem.code.to_lowercase().replace('_', " ")) }
            p { (visible(&problem.message)) }
            @if !problem.next_step.is_empty() { p { strong { "Next step: " } (visible(&problem.next_step)) } }
            @if !problem.leader.is_empty() { p { "The leader is " code { (visible(&problem.leader)) } "." } }
            p { a href="/" { "Overview" } }
        }
    };
    let page = Page {
        view: None,
        title: "Problem",
        live: None,
        fixed: Markup::default(),
        content,
        position: None,
        audit: None,
        principal,
        read_only: true,
    };
    page.render()
}

/// What a part of a page shows instead of what its reader may not see.
pub fn not_allowed(problem: &v1::Problem) -> Markup {
    html! { p.empty { (visible(&problem.message)) } }
}
