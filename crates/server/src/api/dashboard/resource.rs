//! `GET /ui/resource/{name}`: one resource with its timeline.

use axum::extract::State;
use leasehold_core::name::Name;
use leasehold_wire::json::AuditEntryBody;
use leasehold_wire::{Code, v1};
use maud::Markup;
use serde::Deserialize;

use super::super::Api;
use super::super::queries::invalid_name;
use super::actions;
use super::entry_cache::LatestEntries;
use super::renewal_ages::renewal_ages;
use super::response::{PageName, PageQuery, PageReader, PageResult};
use crate::audit::{AuditQuery, hex};
use crate::clock;
use crate::dashboard::resource::{ResourceDetails, TimelineView, content};
use crate::dashboard::timeline::{ResourceTimeline, SilentLease, TimelineContext};
use crate::dashboard::{Page, RenewalAges, View};

/// Audit entries of one page and its timeline.
const ENTRIES: usize = 200;
/// The last time that has a date with four digits of the year. Later ones in an address mean this one.
const MAX_TIME_MS: u64 = 253_402_300_799_000;
/// Waiters of one page.
const WAITERS: u32 = 20;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceQuery {
    from: Option<u64>,
    until: Option<u64>,
    at: Option<u64>,
    before: Option<u64>,
}

/// The page.
pub async fn page(
    State(api): State<Api>,
    PageName(resource): PageName,
    PageQuery(query): PageQuery<ResourceQuery>,
) -> PageResult {
    let reader = PageReader::current(&api);
    let ResourceQuery { from, until, at, before } = query;
    let [from, until, at] = [from, until, at].map(|time| time.map(|time| time.min(MAX_TIME_MS)));
    let view = TimelineView { from, until, at, before };
    Name::parse(&resource).map_err(invalid_name)?;
    let name = || resource.clone();
    let (status, position) = api.status(0).await?;
    let shown = match api.show(v1::ShowRequest { resource: name(), min_position: 0 }).await {
        Ok((view, _)) => Ok(Some(view)),
        Err(problem) if problem.known_code() == Some(Code::NotFound) => Ok(None),
        Err(problem) => Err(problem),
    };
    let shown_leases = shown.as_ref().ok().and_then(Option::as_ref).map(|view| view.leases.as_slice());
    let renewal_ages = renewal_ages(&api, shown_leases.unwrap_or_default()).await?;
    let waiters = api.waiters(v1::WaitersRequest { resource: name(), offset: 0, limit: WAITERS }).await;
    let coverage = api.coverage(v1::CoverageRequest { resource: name(), min_position: 0 }).await;
    let audit = match before {
        None => api.dashboard.entries.latest(&api, &resource, ENTRIES).await,
        Some(before) => {
            let query = AuditQuery { resource: Some(name()), before, limit: ENTRIES, ..AuditQuery::default() };
            api.audit(query).await.map(|(found, head)| LatestEntries::of(found, head))
        }
    };
    let head = audit.as_ref().ok().map(|found| (found.head.entries, hex(&found.head.hash)));
    let older = audit.as_ref().ok().and_then(|found| found.older);
    let entries: Result<Vec<AuditEntryBody>, v1::Problem> = audit.map(|found| found.entries);
    let now_ms = clock::now().wall.0;
    let shown_view = shown.as_ref().ok().and_then(Option::as_ref);
    let context = context(&api, shown_view, &renewal_ages, coverage.as_ref().ok().map(|(one, _)| one), now_ms);
    let context = if before.is_some() { TimelineContext { now_ms: 0, ..context } } else { context };
    let timeline = ResourceTimeline::new(&resource, entries.as_deref().unwrap_or_default(), context);
    let actions = actions::links(&api, &reader, shown_view, &resource);
    let details = ResourceDetails {
        resource: name(),
        view: shown,
        renewal_ages,
        waiters: waiters.map(|(list, _)| list.waiters),
        coverage: coverage.map(|(coverage, _)| coverage),
        entries,
        older,
        timeline,
        time_ms: status.time_ms,
        actions,
    };
    let path = view.path(&resource);
    Ok(reader.render(Page {
        view: Some(View::Leases),
        title: &resource,
        // A page of the past does not change.
        live: before.is_none().then_some(path.as_str()),
        fixed: Markup::default(),
        content: content(&details, view),
        position: Some(position),
        audit: head,
        principal: "",
        read_only: false,
    }))
}

/// What the timeline shows besides the audit log.
fn context(
    api: &Api,
    view: Option<&v1::ResourceView>,
    ages: &RenewalAges,
    coverage: Option<&v1::Coverage>,
    now_ms: u64,
) -> TimelineContext {
    let renewals = view.map(|view| api.dashboard.renewals.observe(view, ages, now_ms)).unwrap_or_default();
    let silent = view.into_iter().flat_map(|view| &view.leases).filter_map(|lease| {
        let age = ages.of(lease).filter(|_| ages.is_overdue(lease))?;
        Some(SilentLease { token: lease.token_number, since_ms: now_ms.saturating_sub(age) })
    });
    let targets = coverage.into_iter().flat_map(|coverage| &coverage.targets).map(|target| target.name.clone());
    let targets = targets.filter(|name| !name.is_empty()).collect();
    TimelineContext { now_ms, renewals, silent: silent.collect(), targets }
}
