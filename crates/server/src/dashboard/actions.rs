//! Operator actions on the dashboard: a preview of what one would do, and the form that requests it.

use leasehold_core::coverage::Hole;
use leasehold_core::limits::GRACE_MAX;
use leasehold_wire::v1;
use maud::{Markup, html};

use super::action_effects::{ActionFacts, AffectedLease, AffectedTarget, EffectText};
use super::leases::lease_id_text;
use super::resource::{Part, shell_word};
use super::text::{self, name};

pub use super::action_effects::OperatorAction;

/// The longest grace period of a revocation.
const MAX_GRACE_SECONDS: u64 = GRACE_MAX / 1_000;
/// Leases that one form acts on.
pub const MAX_LEASES: usize = 100;

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

impl ActionPreview {
    /// The ids of the leases that the form acts on; the reason if there can be no form.
    fn form_leases(&self) -> Result<String, Markup> {
        let leases = self.view.as_ref().map(|view| view.leases.as_slice()).unwrap_or_default();
        let held = self.view.as_ref().map_or(0, |view| view.held);
        match self.action {
            OperatorAction::Free | OperatorAction::Waive => Ok(String::new()),
            _ if held == 0 => Err(html! { "There is no lease to act on." }),
            OperatorAction::Handoff if held > 1 => Err(
                html! { "A handoff needs a resource with one lease. A holder can hand its own lease off with its token." },
            ),
            _ if held > MAX_LEASES as u64 || held != leases.len() as u64 => Err(html! {
                "A page acts on " (MAX_LEASES) " leases at most. This command revokes all that are held when it runs:"
                pre { (text::visible(&format!("leasehold revoke {} --comment TEXT", shell_word(&self.resource)))) }
            }),
            _ => Ok(leases.iter().map(|lease| lease_id_text(lease.lease)).collect::<Vec<_>>().join(" ")),
        }
    }
}

/// The content of the page.
pub fn content(preview: &ActionPreview) -> Markup {
    let (title, facts) = (preview.action.title(), facts(preview));
    html! {
        h1 { (title) @if !preview.resource.is_empty() { " " (name(&preview.resource)) } }
        section.panel {
            h2 { "What would happen" }
            ul.effects { @for effect in facts.effects() { li { (sentence(&effect)) } } }
        }
        @if !preview.resource.is_empty() && preview.action != OperatorAction::Free { (targets(&facts)) }
        section.panel {
            h2 { "Do it" }
            @match preview.form_leases() {
                Ok(leases) => form.act method="post" action=(format!("/ui/actions/{}", preview.action.word())) autocomplete="off" {
                    input type="hidden" name="resource" value=(preview.resource);
                    // The action is for these leases, also if others have followed them.
                    @if preview.action.is_of_leases() { input type="hidden" name="leases" value=(leases); }
                    label { "Reason, for the " (preview.action.reason_log()) input type="text" name="comment" required maxlength="200" placeholder="incident 1042: worker is stuck"; }
                    @if preview.action == OperatorAction::Revoke {
                        label { "Grace in seconds, for the holder to stop" input type="number" name="grace" value="0" min="0" max=(MAX_GRACE_SECONDS); }
                    }
                    button.danger { (title) }
                    " " (cancel(preview))
                },
                Err(reason) => { p.empty { (reason) } (cancel(preview)) }
            }
        }
    }
}

fn cancel(preview: &ActionPreview) -> Markup {
    let path = if preview.resource.is_empty() { "/".to_owned() } else { text::resource_path(&preview.resource) };
    html! { a.button href=(path) { "Cancel" } }
}

/// The facts of a preview.
fn facts(preview: &ActionPreview) -> ActionFacts<'_> {
    let leases = preview.view.as_ref().map(|view| view.leases.as_slice()).unwrap_or_default();
    let affected = leases.iter().map(|lease| AffectedLease {
        holder: &lease.holder,
        token: lease.token_number,
        has_session: lease.session.is_some(),
        remaining_ms: lease.remaining_ms,
    });
    let blocks = |charter: &v1::Charter| charter.after_revocation == i32::from(v1::AfterRevocation::HoldForOperator);
    let terms = preview.charter.as_ref().and_then(|charter| charter.handoff);
    let coverage = preview.coverage.as_ref().ok();
    let target = |target: &'_ v1::TargetView| AffectedTarget {
        name: target.name.clone(),
        mode: target.mode.clone(),
        is_open: !target.hole.is_empty(),
        hole: Hole::from_word(&target.hole),
    };
    ActionFacts {
        action: preview.action,
        leases: affected.collect(),
        held: preview.view.as_ref().map_or(0, |view| view.held),
        next: preview.next.as_ref().map(|waiter| waiter.holder.as_str()),
        blocks_after_revocation: preview.charter.as_ref().is_some_and(blocks),
        overlaps: terms.is_some_and(|terms| terms.mode == i32::from(v1::HandoffMode::Overlap)),
        drain_ms: terms.map(|terms| terms.drain_ms),
        held_for_operator: preview.view.as_ref().is_some_and(|view| view.held_for_operator),
        quarantine_ms: preview.quarantine_ms,
        targets: coverage.map(|coverage| coverage.targets.iter().map(target).collect()),
    }
}

/// A sentence with its names and numbers marked.
fn sentence(parts: &[EffectText]) -> Markup {
    html! {
        @for part in parts {
            @match part {
                EffectText::Plain(text) => (text),
                EffectText::Name(text) => (name(text)),
                EffectText::Token(number) => code { (number) },
            }
        }
    }
}

/// Which targets refuse the old holder, and which do not.
fn targets(facts: &ActionFacts<'_>) -> Markup {
    let Some(outcome) = facts.target_outcome() else { return html! {} };
    html! {
        section.panel {
            h2 { "The old holder afterwards" }
            @if outcome.is_fenced {
                p { span.pill.good { "fenced" } " " (outcome.summary) }
            } @else {
                p { span.pill.bad { "not fenced everywhere" } " " (outcome.summary) }
            }
            ul.effects {
                @for (at, line) in outcome.lines.iter().enumerate() {
                    li { @if at < outcome.holes { span.pill.bad { "hole" } } @else { span.pill.good { "fenced" } } " " (sentence(line)) }
                }
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
