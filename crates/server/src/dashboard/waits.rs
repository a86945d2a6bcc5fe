//! Which holders wait for which: a tree of holders and waiters, and past deadlocks as graphs.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_wire::v1;
use maud::{Markup, html};

use super::leases::holder_link;
use super::page;
use super::resource::Part;
use super::text::{self, count, duration, plural};

/// A resource with waiters.
#[derive(Clone, Debug, Default)]
pub struct ContendedResource {
    /// The resource with its first leases.
    pub view: v1::ResourceView,
    /// Its first waiters, in order.
    pub waiters: Vec<v1::WaiterView>,
}

/// What the page shows.
pub struct WaitOverview {
    /// Resources with waiters.
    pub resources: Vec<ContendedResource>,
    /// Where the search continues; none if all resources were read.
    pub next: Option<u32>,
    /// Number of all waiters.
    pub waiters: u64,
    /// The last deadlocks, latest last.
    pub deadlocks: Part<Vec<v1::DeadlockView>>,
    /// Grantor time.
    pub time_ms: u64,
    /// Grantor time of the deadlock that is replayed, if one is.
    pub replay: Option<u64>,
}

/// Levels of the tree; deeper chains are cut with a link.
const MAX_DEPTH: usize = 12;

/// The content of the page.
pub fn content(waits: &WaitOverview) -> Markup {
    html! {
        @if let Some(at_ms) = waits.replay { (replay(waits, at_ms)) }
        section.panel {
            h2 { "Which holders wait for which" }
            @if waits.resources.is_empty() {
                p.empty {
                    @if waits.next.is_some() { "No one waits in this part of the resources." }
                    @else if waits.waiters > 0 { "You may see none of the " (plural(waits.waiters, "wait")) "." }
                    @else { "No one waits." }
                }
            } @else { (tree(&waits.resources)) }
            @if let Some(next) = waits.next {
                div.pager { a.button href=(format!("/ui/waits?cursor={next}")) { "Search further" } span.dim { (plural(waits.waiters, "wait")) " in all" } }
            }
        }
        section.panel {
            h2 { "Deadlocks, latest first" }
            @match &waits.deadlocks {
                Err(problem) => (page::not_allowed(problem)),
                Ok(found) if found.is_empty() => p.empty { "No deadlock is in memory." },
                Ok(found) => div.grid { @for deadlock in found.iter().rev().take(12) { (deadlock_figure(deadlock, waits.time_ms)) } },
            }
        }
    }
}

/// Resources by the names of their holders.
fn by_holder(resources: &[ContendedResource]) -> BTreeMap<&str, Vec<&ContendedResource>> {
    let mut held: BTreeMap<&str, Vec<&ContendedResource>> = BTreeMap::new();
    for resource in resources {
        let names: BTreeSet<&str> = resource.view.leases.iter().map(|lease| lease.holder.as_str()).collect();
        for name in names {
            held.entry(name).or_default().push(resource);
        }
        if resource.view.leases.is_empty() {
            held.entry("").or_default().push(resource);
        }
    }
    held
}

fn tree(resources: &[ContendedResource]) -> Markup {
    let held = by_holder(resources);
    let waiting: BTreeSet<&str> =
        resources.iter().flat_map(|resource| &resource.waiters).map(|waiter| waiter.holder.as_str()).collect();
    let mut shown = BTreeSet::new();
    let mut roots: Vec<&str> = held.keys().filter(|holder| !waiting.contains(**holder)).copied().collect();
    // Holders that wait for each other have no root.
    roots.extend(held.keys().filter(|holder| waiting.contains(**holder)).copied());
    html! {
        ul.tree {
            @for root in roots {
                @if !shown.contains(root) { (holder_node(root, &held, &mut shown, 0)) }
            }
        }
    }
}

fn holder_node<'a>(
    holder: &'a str,
    held: &BTreeMap<&'a str, Vec<&'a ContendedResource>>,
    shown: &mut BTreeSet<&'a str>,
    depth: usize,
) -> Markup {
    let is_first = shown.insert(holder);
    let resources = held.get(holder).filter(|_| is_first && depth < MAX_DEPTH);
    html! {
        li {
            @if holder.is_empty() { span.pill.warn { "no holder" } } @else { (holder_link(holder)) }
            @if !is_first && held.contains_key(holder) { span.dim { " (shown above)" } }
            @if let Some(resources) = resources {
                ul { @for resource in resources { (resource_node(resource, held, shown, depth)) } }
            }
        }
    }
}

fn resource_node<'a>(
    resource: &'a ContendedResource,
    held: &BTreeMap<&'a str, Vec<&'a ContendedResource>>,
    shown: &mut BTreeSet<&'a str>,
    depth: usize,
) -> Markup {
    let more = resource.view.waiters.saturating_sub(resource.waiters.len() as u64);
    let others = resource.view.held.saturating_sub(resource.view.leases.len() as u64);
    html! {
        li {
            span.dim { "holds " } (text::resource_link(&resource.view.resource))
            @if others > 0 { span.dim { " with " (plural(others, "other lease")) } }
            span.dim { ", for which " (plural(resource.view.waiters, "waiter")) (if resource.view.waiters == 1 { " waits" } else { " wait" }) }
            ul {
                @for waiter in &resource.waiters {
                    @if held.contains_key(waiter.holder.as_str()) {
                        (holder_node(&waiter.holder, held, shown, depth + 1))
                    } @else {
                        li { (holder_link(&waiter.holder)) span.dim { " gives up in " (duration(waiter.remaining_ms)) } }
                    }
                }
                @if more > 0 { li.dim { "and " (count(more)) " more" } }
            }
        }
    }
}

/// Members of a cycle that are drawn.
const MAX_MEMBERS: usize = 24;
/// Time between two steps of a replay.
const STEP_MS: usize = 1_200;

fn deadlock_figure(deadlock: &v1::DeadlockView, time_ms: u64) -> Markup {
    let cycle = deadlock.cycle.clone().unwrap_or_default();
    html! {
        figure.deadlock {
            figcaption {
                b { (duration(time_ms.saturating_sub(deadlock.at_ms))) " ago" } ": " (plural(cycle.length, "member"))
                @if deadlock.victim.is_empty() { ", only reported: the charter chooses no victim." }
                @else { ", resolved: the wait or lease of " (text::name(&deadlock.victim)) " ended." }
            }
            (cycle_svg(&cycle.members, &deadlock.victim, false))
            a.button href=(format!("/ui/waits?replay={}#replay", deadlock.at_ms)) { "Replay" }
        }
    }
}

/// The members of a cycle, so that the victim is the last one.
fn in_order(members: &[v1::CycleMember], victim: &str) -> Vec<v1::CycleMember> {
    let mut members = members.to_vec();
    if let Some(at) = members.iter().position(|member| !victim.is_empty() && member.holder == victim) {
        members.rotate_left(at + 1);
    }
    members
}

/// A past deadlock, wait by wait.
fn replay(waits: &WaitOverview, at_ms: u64) -> Markup {
    let found = waits.deadlocks.as_deref().unwrap_or_default().iter().find(|deadlock| deadlock.at_ms == at_ms);
    html! {
        section.panel #replay {
            h2 { "Replay of a deadlock" }
            @match found {
                None => p.empty { "This deadlock is not in memory any more. The audit log has its entry." },
                Some(deadlock) => {
                    @let cycle = deadlock.cycle.clone().unwrap_or_default();
                    @let members = in_order(&cycle.members, &deadlock.victim);
                    @let shown = &members[..members.len().min(MAX_MEMBERS)];
                    p.sentence { (duration(waits.time_ms.saturating_sub(at_ms))) " ago, " (plural(cycle.length, "member")) "." }
                    div.replay {
                        (cycle_svg(&members, &deadlock.victim, true))
                        ol {
                            @for (at, member) in shown.iter().enumerate() {
                                @let next = &shown[(at + 1) % shown.len()];
                                li {
                                    (holder_link(&member.holder)) " waits for " (text::resource_link(&member.waits_for))
                                    @if cycle.length as usize == shown.len() || at + 1 < shown.len() { ", which " (text::name(&next.holder)) " holds." } @else { "." }
                                }
                            }
                            @if deadlock.victim.is_empty() { li { "The charter only reports a deadlock, so no one was chosen. It lasts until someone gives up or an operator revokes a lease." } }
                            @else { li { (text::name(&deadlock.victim)) " was the victim: its wait or its lease ended, so that the others could go on." } }
                        }
                    }
                    div.pager {
                        a.button href=(format!("/ui/waits?replay={at_ms}")) { "Again" }
                        a.button href="/ui/waits" { "Back to the waits" }
                    }
                }
            }
        }
    }
}

/// The members on an ellipse. Each arrow leads to the member that holds what it waits for. In a replay they appear one after the other.
fn cycle_svg(members: &[v1::CycleMember], victim: &str, is_replay: bool) -> Markup {
    let shown = &members[..members.len().min(MAX_MEMBERS)];
    let (center_x, center_y) = (240.0, 150.0);
    let radius = if shown.len() > 8 { 115.0 } else { 92.0 };
    let place = |at: usize| {
        let angle = at as f64 / shown.len().max(1) as f64 * std::f64::consts::TAU - std::f64::consts::FRAC_PI_2;
        (center_x + radius * angle.cos() * 1.45, center_y + radius * angle.sin())
    };
    let heights = (0..shown.len()).map(|at| place(at).1);
    let (top, bottom) = heights.fold((center_y, center_y), |(top, bottom), y| (top.min(y), bottom.max(y)));
    // Room for the names and for arrows that bend outward.
    let (top, bottom) = (px(top - 42.0), px(bottom + 42.0));
    // An element that appears with the step of this number.
    let appears = |step: usize| {
        html! { @if is_replay && step > 0 { set attributeName="opacity" to="0" begin="0s" dur=(format!("{}ms", step * STEP_MS)) {} } }
    };
    html! {
        svg.cycle viewBox=(format!("0 {top} 480 {}", px(bottom - top))) role="img" aria-label=(format!("Deadlock of {}", plural(members.len() as u64, "member"))) {
            @for (at, member) in shown.iter().enumerate() {
                @let arrow = CycleArrow::between(place(at), place((at + 1) % shown.len()), (center_x, center_y));
                g.wait {
                    (appears(at))
                    path d=(arrow.line) {}
                    polygon.arrow points=(arrow.arrow) {}
                    text.edge x=(arrow.label.0) y=(arrow.label.1) text-anchor=(arrow.label.2) { (text::shortened(&member.waits_for, 22)) }
                }
            }
            @for (at, member) in shown.iter().enumerate() {
                @let (x, y) = place(at);
                @let is_victim = !victim.is_empty() && member.holder == victim;
                @if !is_victim || is_replay {
                    g.member {
                        // A victim is one only at the end.
                        @if is_victim { set attributeName="opacity" to="0" begin=(format!("{}ms", shown.len() * STEP_MS)) fill="freeze" {} }
                        circle cx=(px(x)) cy=(px(y)) r="9" {}
                        (member_name(&member.holder, (x, y), center_y))
                    }
                }
                @if is_victim {
                    g.member.victim {
                        (appears(shown.len()))
                        title { (text::visible(&member.holder)) " waits for " (text::visible(&member.waits_for)) " (victim)" }
                        circle cx=(px(x)) cy=(px(y)) r="9" {}
                        path d=(format!("M{} {} l8 8 m0 -8 l-8 8", px(x - 4.0), px(y - 4.0))) {}
                        (member_name(&member.holder, (x, y), center_y))
                    }
                }
            }
        }
        @if members.len() > shown.len() { p.empty { (count((members.len() - shown.len()) as u64)) " more members" } }
    }
}

/// The name of a member, above or below its circle.
fn member_name(holder: &str, (x, y): (f64, f64), center_y: f64) -> Markup {
    let y = if y < center_y { y - 16.0 } else { y + 26.0 };
    html! { text x=(px(x)) y=(px(y)) text-anchor="middle" { (text::shortened(holder, 18)) } }
}

/// An arrow between two members.
struct CycleArrow {
    line: String,
    arrow: String,
    /// The place of the label, and which end of it is there.
    label: (f64, f64, &'static str),
}

impl CycleArrow {
    /// An arrow that bends away from the center, so that the two arrows of a pair stay apart.
    fn between(from: (f64, f64), to: (f64, f64), center: (f64, f64)) -> Self {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = (dx * dx + dy * dy).sqrt().max(1.0);
        let (ux, uy) = (dx / length, dy / length);
        let (middle_x, middle_y) = (f64::midpoint(from.0, to.0) + uy * 26.0, f64::midpoint(from.1, to.1) - ux * 26.0);
        // The curve reaches half of the bend. The label is outside of it.
        let curve = (f64::midpoint(from.0, to.0) + uy * 13.0, f64::midpoint(from.1, to.1) - ux * 13.0);
        let (out_x, out_y) = (curve.0 - center.0, curve.1 - center.1);
        let out = (out_x * out_x + out_y * out_y).sqrt().max(1.0);
        let (side_x, side_y) = (out_x / out, out_y / out);
        let anchor = match side_x {
            x if x > 0.35 => "start",
            x if x < -0.35 => "end",
            _ => "middle",
        };
        let label = (px(curve.0 + side_x * 10.0), px(curve.1 + side_y * 14.0 + 4.0), anchor);
        let (start_x, start_y) = (from.0 + ux * 10.0, from.1 + uy * 10.0);
        let (back_x, back_y) = (to.0 - middle_x, to.1 - middle_y);
        let back = (back_x * back_x + back_y * back_y).sqrt().max(1.0);
        let (vx, vy) = (back_x / back, back_y / back);
        let (tip_x, tip_y) = (to.0 - vx * 10.0, to.1 - vy * 10.0);
        let (left_x, left_y) = (tip_x - vx * 8.0 - vy * 4.0, tip_y - vy * 8.0 + vx * 4.0);
        let (right_x, right_y) = (tip_x - vx * 8.0 + vy * 4.0, tip_y - vy * 8.0 - vx * 4.0);
        let line =
            format!("M{} {} Q{} {} {} {}", px(start_x), px(start_y), px(middle_x), px(middle_y), px(tip_x), px(tip_y));
        let arrow =
            format!("{},{} {},{} {},{}", px(tip_x), px(tip_y), px(left_x), px(left_y), px(right_x), px(right_y));
        Self { line, arrow, label }
    }
}

fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contended(resource: &str, holder: &str, waiters: &[&str]) -> ContendedResource {
        let lease = v1::LeaseView { holder: holder.into(), ..Default::default() };
        let waiting = waiters.iter().map(|name| v1::WaiterView { holder: (*name).into(), ..Default::default() });
        let view = v1::ResourceView {
            resource: resource.into(),
            leases: vec![lease],
            waiters: waiters.len() as u64,
            ..Default::default()
        };
        ContendedResource { view, waiters: waiting.collect() }
    }

    #[test]
    fn a_chain_is_one_tree_and_each_holder_is_expanded_once() {
        let resources = [contended("r1", "a", &["b"]), contended("r2", "b", &["c", "<d>"])];
        let page = tree(&resources).into_string();
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text} in {page}"));
        assert!(place("holder=a") < place("/resource/r1") && place("/resource/r1") < place("holder=b"), "{page}");
        assert!(place("holder=b") < place("/resource/r2") && place("/resource/r2") < place("holder=c"), "{page}");
        assert!(page.contains("&lt;d&gt;") && !page.contains("<d>"), "{page}");
        assert_eq!(page.matches("/resource/r2").count(), 1, "{page}");
    }

    #[test]
    fn holders_that_wait_for_each_other_are_shown_once() {
        let resources = [contended("r1", "a", &["b"]), contended("r2", "b", &["a"])];
        let page = tree(&resources).into_string();
        assert!(page.contains("(shown above)"), "{page}");
        assert_eq!(page.matches("/resource/r1").count(), 1, "{page}");
    }

    #[test]
    fn a_cycle_names_its_members_and_marks_the_victim() {
        let member =
            |holder: &str, waits_for: &str| v1::CycleMember { holder: holder.into(), waits_for: waits_for.into() };
        for length in [1, 2, 5, 40] {
            let members: Vec<_> = (0..length).map(|at| member(&format!("w{at}<"), &format!("r{at}"))).collect();
            let svg = cycle_svg(&members, "w0<", false).into_string();
            assert!(!svg.contains("NaN") && !svg.contains("w0<<"), "{svg}");
            assert_eq!(svg.matches("class=\"member victim\"").count(), 1, "{svg}");
            assert!(!svg.contains("<set "), "{svg}");
            let replayed = cycle_svg(&members, "w0<", true).into_string();
            assert_eq!(
                replayed.matches("<set ").count(),
                length.min(MAX_MEMBERS) + 1,
                "all but the first wait, and the victim twice"
            );
            let last = in_order(&members, "w0<").last().map(|member| member.holder.clone());
            assert_eq!(last.as_deref(), Some("w0<"));
            assert_eq!(svg.contains("more members"), length > MAX_MEMBERS);
        }
    }
}
