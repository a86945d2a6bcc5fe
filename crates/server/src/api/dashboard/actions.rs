//! `GET` and `POST /ui/actions/{action}`: a preview, and the action. Only with access rules; otherwise pages are read-only.

use std::collections::BTreeSet;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::access::{Action, Permission};
use leasehold_core::ids::ParseIdError;
use leasehold_core::name::Name;
use leasehold_core::refusal::RefusalSubject;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{Code, lease_bits, v1};
use maud::Markup;
use serde::Deserialize;

use super::super::http::form_fields;
use super::super::queries::invalid_name;
use super::super::{Api, RequestMetadata};
use super::response::{PageProblem, PageQuery, PageReader, PageResult};
use crate::dashboard::Page;
use crate::dashboard::actions::{ActionPreview, MAX_LEASES, OperatorAction, content};
use crate::dashboard::text::resource_path;
use crate::transport::error_layer::invalid;

/// Parameters of a preview.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PreviewQuery {
    resource: String,
}

/// The fields of the form.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ActionForm {
    resource: String,
    /// Ids of leases, separated by spaces.
    leases: String,
    comment: String,
    grace: u64,
}

/// The action of the core whose permission decides.
const fn core_action(action: OperatorAction) -> Action {
    match action {
        OperatorAction::Revoke => Action::Revoke,
        OperatorAction::Handoff => Action::Handoff,
        OperatorAction::Free => Action::Free,
        OperatorAction::Waive => Action::WaiveQuarantine,
    }
}

/// The links to the actions that a reader may take on a resource.
pub fn links(api: &Api, reader: &PageReader, view: Option<&v1::ResourceView>, resource: &str) -> Vec<(String, String)> {
    let Some(view) = view else { return Vec::new() };
    let applies = |action: &OperatorAction| match action {
        OperatorAction::Revoke | OperatorAction::Handoff => view.held > 0,
        OperatorAction::Free => view.held_for_operator,
        OperatorAction::Waive => false,
    };
    let allowed = |action: &OperatorAction| reader.may(api, core_action(*action), resource);
    let link = |action: OperatorAction| (format!("{}\u{2026}", action.title()), action.path(resource));
    OperatorAction::ALL.into_iter().filter(applies).filter(allowed).map(link).collect()
}

/// The page of a preview.
pub async fn preview(
    State(api): State<Api>,
    Path(word): Path<String>,
    PageQuery(PreviewQuery { resource }): PageQuery<PreviewQuery>,
) -> PageResult {
    let reader = PageReader::current(&api);
    let action = known_action(&word)?;
    check(&api, &reader, action, &resource)?;
    let (status, position) = api.status(0).await?;
    let name = || resource.clone();
    let is_of_resource = action != OperatorAction::Waive;
    let view = match is_of_resource {
        true => shown(&api, &resource).await?,
        false => None,
    };
    let request = v1::WaitersRequest { resource: name(), offset: 0, limit: 1 };
    let next = match is_of_resource {
        true => api.waiters(request).await?.0.waiters.into_iter().next(),
        false => None,
    };
    let request = v1::ChartersRequest { resource: name(), after: None, limit: 1 };
    let charter = match is_of_resource {
        true => api.charters(request).await?.0.charters.into_iter().next().and_then(|entry| entry.charter),
        false => None,
    };
    let coverage = match is_of_resource {
        true => api.coverage(v1::CoverageRequest { resource: name(), min_position: 0 }).await.map(|(found, _)| found),
        false => Ok(v1::Coverage::default()),
    };
    let preview =
        ActionPreview { action, resource: name(), view, next, coverage, charter, quarantine_ms: status.quarantine_ms };
    Ok(reader.render(Page {
        view: None,
        title: action.title(),
        live: None,
        fixed: Markup::default(),
        content: content(&preview),
        position: Some(position),
        audit: None,
        principal: "",
        read_only: false,
    }))
}

/// Takes the action and leads back to the resource.
pub async fn act(
    State(api): State<Api>,
    Path(word): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, PageProblem> {
    let reader = PageReader::current(&api);
    let action = known_action(&word)?;
    let ActionForm { resource, leases, comment, grace } = form_fields(&headers, &body)?;
    check(&api, &reader, action, &resource)?;
    let comment = comment.trim().to_owned();
    if comment.is_empty() {
        let reason = format!("a reason is required; it is recorded in the {}", action.reason_log());
        return Err(invalid("comment", &reason).into());
    }
    let leases = form_leases(action, &leases)?;
    match action {
        OperatorAction::Revoke => {
            let revoke = |lease| {
                Operation::Revoke(v1::Revoke {
                    selector: Some(v1::revoke::Selector::Lease(lease)),
                    reason: v1::EndReason::Operator.into(),
                    comment: comment.clone(),
                    grace_ms: grace.saturating_mul(1_000),
                })
            };
            act_on_leases(&api, &resource, &leases, revoke).await?;
        }
        OperatorAction::Handoff => {
            let handoff = |lease| {
                let selector = Some(v1::handoff::Selector::Lease(lease));
                Operation::Handoff(v1::Handoff { selector, ..v1::Handoff::default() })
            };
            act_on_leases(&api, &resource, &leases, handoff).await?;
            // The record of a handoff has no comment.
            tracing::info!(resource, comment, principal = %reader.identity.principal, "operator stated the reason of a handoff");
        }
        OperatorAction::Free => {
            execute(&api, Operation::Free(v1::Free { resource: resource.clone(), comment })).await?
        }
        OperatorAction::Waive => execute(&api, Operation::WaiveQuarantine(v1::WaiveQuarantine { comment })).await?,
    }
    Ok(see_other(&if resource.is_empty() { "/".to_owned() } else { resource_path(&resource) }))
}

/// The leases that the preview showed.
fn form_leases(action: OperatorAction, text: &str) -> Result<BTreeSet<u64>, PageProblem> {
    let ids: Result<BTreeSet<u64>, ParseIdError> =
        text.split_ascii_whitespace().map(|id| id.parse().map(lease_bits)).collect();
    let expected = match action {
        OperatorAction::Revoke => 1..=MAX_LEASES,
        OperatorAction::Handoff => 1..=1,
        OperatorAction::Free | OperatorAction::Waive => 0..=0,
    };
    let found = ids.ok().filter(|ids| expected.contains(&ids.len()));
    found.ok_or_else(|| {
        invalid("leases", "not the ids of the leases that a preview showed; open the preview again").into()
    })
}

/// Acts on each of the leases, and on no other one. Nothing happens if the resource has other leases by now.
async fn act_on_leases(
    api: &Api,
    resource: &str,
    leases: &BTreeSet<u64>,
    operation: impl Fn(u64) -> Operation,
) -> Result<(), v1::Problem> {
    let held = shown(api, resource).await?.map(|view| view.leases).unwrap_or_default();
    if held.iter().map(|lease| lease.lease).collect::<BTreeSet<u64>>() != *leases {
        return Err(leases_changed(0, leases.len()));
    }
    let (mut done, mut proposals, mut is_changed) = (0, Vec::new(), false);
    for lease in leases {
        match execute(api, operation(*lease)).await {
            Ok(()) => done += 1,
            Err(problem) => match problem.known_code() {
                Some(Code::ApprovalRequired) => proposals.push(problem),
                // It ended since it was compared. An overlap handoff that no one waits for is another subject.
                Some(Code::LeaseLost | Code::NotCurrent) => is_changed = true,
                Some(Code::NotFound) if problem.subject == RefusalSubject::Lease.word() => is_changed = true,
                _ if done == 0 => return Err(problem),
                _ => {
                    let message = format!("after {done} of {} leases: {}", leases.len(), problem.message);
                    return Err(v1::Problem { message, ..problem });
                }
            },
        }
    }
    let numbers = || proposals.iter().filter_map(|problem| problem.proposal).map(|number| number.to_string());
    match &proposals[..] {
        [] if is_changed => Err(leases_changed(done, leases.len())),
        [] => Ok(()),
        [problem] => Err(problem.clone()),
        [problem, ..] => {
            let numbers = numbers().collect::<Vec<_>>().join(", ");
            let message =
                format!("a second identity must approve proposals {numbers}, one for each lease; nothing happened yet");
            Err(v1::Problem { message, ..problem.clone() })
        }
    }
}

/// A resource; none if nothing is held there and no one waits.
async fn shown(api: &Api, resource: &str) -> Result<Option<v1::ResourceView>, v1::Problem> {
    match api.show(v1::ShowRequest { resource: resource.to_owned(), min_position: 0 }).await {
        Ok((view, _)) => Ok(Some(view)),
        Err(problem) if problem.known_code() == Some(Code::NotFound) => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// The leases are not those of the preview.
fn leases_changed(done: usize, of: usize) -> v1::Problem {
    let happened = match done {
        0 => "nothing happened".to_owned(),
        _ => format!("the action was taken for {done} of {of}"),
    };
    let message =
        format!("the leases of the resource have changed since the preview, {happened}; open the preview again");
    v1::Problem { subject: RefusalSubject::Lease.word().into(), ..v1::Problem::of(Code::Conflict, message) }
}

async fn execute(api: &Api, operation: Operation) -> Result<(), v1::Problem> {
    match api.call(RequestMetadata::default(), operation).await? {
        (Answer::Refused(problem), _) => Err(*problem),
        _ => Ok(()),
    }
}

fn known_action(word: &str) -> Result<OperatorAction, PageProblem> {
    let unknown = || invalid("action", "unknown; use revoke, handoff, free or waive");
    OperatorAction::from_word(word).ok_or_else(|| unknown().into())
}

/// Fails if the pages are read-only, or if the reader may not act there. The core checks again.
fn check(api: &Api, reader: &PageReader, action: OperatorAction, resource: &str) -> Result<(), PageProblem> {
    if reader.read_only {
        let message = "this server has no access rules or does not lead, so its pages are read-only; use the command line, or start the \
                       server with an access file";
        return Err(v1::Problem::of(Code::PermissionDenied, message).into());
    }
    if action != OperatorAction::Waive {
        Name::parse(resource).map_err(invalid_name)?;
    }
    let core_action = core_action(action);
    let rules = api.access.rules();
    let rights = rules.caller(&reader.identity).rights;
    let permission = match action {
        OperatorAction::Waive => rights.permission_everywhere(core_action),
        _ => rights.permission(core_action, resource),
    };
    if permission != Permission::Yes {
        let message = format!("not allowed: {}", core_action.missing_role());
        return Err(v1::Problem::of(Code::PermissionDenied, message).into());
    }
    Ok(())
}

fn see_other(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    response
}
