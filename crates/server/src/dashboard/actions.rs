//! Actions of operators: what one would do, before it is done.

use leasehold_core::coverage::Hole;
use leasehold_wire::v1;
use maud::{Markup, html};

use super::resource::Part;
use super::text::{self, count, duration, name, plural, query_value};

/// An action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// End the leases of a resource.
    Revoke,
    /// Ask the holder to stop, so that the next waiter follows.
    Handoff,
    /// Free a resource that is blocked after a revocation.
    Free,
    /// End a quarantine.
    Waive,
}

impl OperatorAction {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::Revoke, Self::Handoff, Self::Free, Self::Waive];

    /// The word in addresses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Revoke => "revoke",
            Self::Handoff => "handoff",
            Self::Free => "free",
            Self::Waive => "waive",
        }
    }

    /// The action of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }

    /// The title of its page and button.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Revoke => "Revoke",
            Self::Handoff => "Hand off",
            Self::Free => "Free",
            Self::Waive => "End the quarantine",
        }
    }

    /// The address of its preview.
    pub fn path(self, resource: &str) -> String {
        match self {
            Self::Waive => "/ui/actions/waive".to_owned(),
            _ => format!("/ui/actions/{}?resource={}", self.word(), query_value(resource)),
        }
    }
}

/// What an action would do.
pub struct ActionPreview {
    /// The action.
    pub action: OperatorAction,
    /// The resource; empty for a quarantine.
    pub resource: String,
    /// Its leases.
    pub view: Option<v1::ResourceView>,
    /// The first waiter.
    pub next: Option<v1::WaiterView>,
    /// Its targets.
    pub coverage: Part<v1::Coverage>,
    /// The charter that covers it.
    pub charter: Option<v1::Charter>,
    /// The remaining quarantine.
    pub quarantine_ms: Option<u64>,
}

/// The content of the page.
pub fn content(preview: &ActionPreview) -> Markup {
    let title = preview.action.title();
    html! {
        h1 { (title) @if !preview.resource.is_empty() { " " (name(&preview.resource)) } }
        section.panel {
            h2 { "What would happen" }
            ul.effects { @for effect in effects(preview) { li { (effect) } } }
        }
        @if !preview.resource.is_empty() && preview.action != OperatorAction::Free { (targets(preview)) }
        section.panel {
            h2 { "Do it" }
            form.act method="post" action=(format!("/ui/actions/{}", preview.action.word())) autocomplete="off" {
                input type="hidden" name="resource" value=(preview.resource);
                label { "Reason, for the audit log" input type="text" name="comment" required maxlength="200" placeholder="incident 1042: worker is stuck"; }
                @if preview.action == OperatorAction::Revoke {
                    label { "Grace in seconds, for the holder to stop" input type="number" name="grace" value="0" min="0" max="600"; }
                }
                button.danger { (title) }
                " " a.button href=(if preview.resource.is_empty() { "/".to_owned() } else { text::resource_path(&preview.resource) }) { "Cancel" }
            }
        }
    }
}

fn effects(preview: &ActionPreview) -> Vec<Markup> {
    let leases = preview.view.as_ref().map(|view| view.leases.as_slice()).unwrap_or_default();
    let held = preview.view.as_ref().map_or(0, |view| view.held);
    let next = match &preview.next {
        Some(waiter) => html! { "Next in line is " (name(&waiter.holder)) "." },
        None => html! { "No one waits, so it becomes free." },
    };
    let mut effects = Vec::new();
    match preview.action {
        OperatorAction::Revoke => {
            if leases.is_empty() {
                effects.push(html! { "Nothing is held, so there is nothing to revoke." });
            }
            effects.extend(leases.iter().take(20).map(|lease| {
                html! {
                    (name(&lease.holder)) " loses token " code { (lease.token_number) } ". "
                    @if lease.session.is_some() { "Its session is notified at once." }
                    @else { "It learns of it at its next renewal, in at most " (duration(lease.remaining_ms)) "." }
                }
            }));
            if held > 20 {
                effects.push(html! { "So do " (count(held - 20)) " more." });
            }
            let blocks = preview.charter.as_ref().is_some_and(|charter| {
                charter.after_revocation == i32::from(v1::AfterRevocation::HoldForOperator)
            });
            effects.push(if blocks {
                html! { "The charter then blocks the resource until an operator frees it; no waiter is granted." }
            } else {
                next
            });
        }
        OperatorAction::Handoff => {
            let terms = preview.charter.as_ref().and_then(|charter| charter.handoff);
            let drain = terms.map_or_else(|| "the default drain period".to_owned(), |terms| duration(terms.drain_ms));
            match leases.first() {
                None => effects.push(html! { "Nothing is held, so there is nothing to hand off." }),
                Some(lease) => effects.push(html! { (name(&lease.holder)) " is asked to stop within " (drain) ", and keeps its token until then." }),
            }
            if terms.is_some_and(|terms| terms.mode == i32::from(v1::HandoffMode::Overlap)) {
                effects.push(html! { "The charter overlaps: the successor is granted first." });
            }
            effects.push(next);
        }
        OperatorAction::Free => {
            effects.push(match preview.view.as_ref().is_some_and(|view| view.held_for_operator) {
                true => html! { "The block after the revocation ends." },
                false => html! { "The resource is not blocked, so nothing changes." },
            });
            effects.push(next);
        }
        OperatorAction::Waive => effects.push(match preview.quarantine_ms {
            Some(left) => html! {
                "Leases are granted at once instead of in " (duration(left)) ". Tokens from before the rollback or restore may still be in use: "
                "make sure that no former holder can write."
            },
            None => html! { "There is no quarantine." },
        }),
    }
    effects
}

/// Which targets refuse the old holder, and which do not.
fn targets(preview: &ActionPreview) -> Markup {
    let Ok(coverage) = &preview.coverage else { return html! {} };
    let (open, fenced): (Vec<_>, Vec<_>) = coverage.targets.iter().partition(|target| !target.hole.is_empty());
    html! {
        section.panel {
            h2 { "The old holder afterwards" }
            @if open.is_empty() {
                p { span.pill.good { "fenced" } " " (plural(fenced.len() as u64, "target")) " refuse" @if fenced.len() == 1 { "s" } " it once the successor has claimed there." }
            } @else {
                p { span.pill.bad { "not fenced everywhere" } " The old holder can still write where there is a hole:" }
            }
            ul.effects {
                @for target in open {
                    li {
                        span.pill.bad { "hole" } " "
                        @if target.name.is_empty() { "an unknown target" } @else { (name(&target.name)) }
                        ": " (Hole::from_word(&target.hole).map_or("unknown", Hole::advice))
                    }
                }
                @for target in fenced { li { span.pill.good { "fenced" } " " (name(&target.name)) ": refuses a stale token (" (target.mode) ")" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(action: OperatorAction) -> ActionPreview {
        let lease = v1::LeaseView { holder: "<w>".into(), token_number: 41, remaining_ms: 9_000, ..Default::default() };
        let target =
            |name: &str, hole: &str| v1::TargetView { name: name.into(), hole: hole.into(), ..Default::default() };
        ActionPreview {
            action,
            resource: "jobs/a".into(),
            view: Some(v1::ResourceView { leases: vec![lease], held: 1, ..Default::default() }),
            next: Some(v1::WaiterView { holder: "w-2".into(), ..Default::default() }),
            coverage: Ok(v1::Coverage {
                resource: "jobs/a".into(),
                targets: vec![target("ledger", ""), target("bucket", "never_reported")],
            }),
            charter: None,
            quarantine_ms: None,
        }
    }

    #[test]
    fn a_preview_names_who_loses_who_is_next_and_which_targets_do_not_refuse() {
        let page = content(&preview(OperatorAction::Revoke)).into_string();
        for part in
            ["&lt;w&gt;", "loses token", "41", "Next in line is", "w-2", "bucket", "not fenced everywhere", "required"]
        {
            assert!(page.contains(part), "no {part} in {page}");
        }
        assert!(!page.contains("<w>"), "{page}");
        let charter =
            v1::Charter { after_revocation: v1::AfterRevocation::HoldForOperator.into(), ..Default::default() };
        let blocked = ActionPreview { charter: Some(charter), ..preview(OperatorAction::Revoke) };
        let page = content(&blocked).into_string();
        assert!(page.contains("blocks the resource") && !page.contains("Next in line"), "{page}");
    }

    #[test]
    fn every_action_has_its_word() {
        for action in OperatorAction::ALL {
            assert_eq!(OperatorAction::from_word(action.word()), Some(action));
        }
        assert_eq!(OperatorAction::Revoke.path("a b"), "/ui/actions/revoke?resource=a%20b");
    }
}
