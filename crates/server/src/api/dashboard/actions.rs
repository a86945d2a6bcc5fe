//! `GET` and `POST /ui/actions/{action}`: a preview, and the action. Only with access rules; otherwise pages are read-only.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::access::{Action, Permission};
use leasehold_core::name::Name;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{Code, v1};
use maud::Markup;
use serde::Deserialize;

use super::super::http::is_percent_encoded;
use super::super::queries::invalid_name;
use super::super::{Api, RequestMetadata};
use super::response::{PageProblem, PageQuery, PageReader, PageResult};
use crate::dashboard::Page;
use crate::dashboard::actions::{ActionPreview, OperatorAction, content};
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
        true => Some(api.show(v1::ShowRequest { resource: name(), min_position: 0 }).await?.0),
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
    let ActionForm { resource, comment, grace } = form(&headers, &body)?;
    check(&api, &reader, action, &resource)?;
    let comment = comment.trim().to_owned();
    if comment.is_empty() {
        return Err(invalid("comment", "a reason is required; it is recorded in the audit log").into());
    }
    let name = || resource.clone();
    let operation = match action {
        OperatorAction::Revoke => Operation::Revoke(v1::Revoke {
            selector: Some(v1::revoke::Selector::Resource(name())),
            reason: v1::EndReason::Operator.into(),
            comment,
            grace_ms: grace.saturating_mul(1_000),
        }),
        OperatorAction::Handoff => {
            // The record of a handoff has no comment.
            tracing::info!(resource, comment, principal = %reader.identity.principal, "handoff requested by an operator");
            Operation::Handoff(v1::Handoff {
                selector: Some(v1::handoff::Selector::Resource(name())),
                ..v1::Handoff::default()
            })
        }
        OperatorAction::Free => Operation::Free(v1::Free { resource: name(), comment }),
        OperatorAction::Waive => Operation::WaiveQuarantine(v1::WaiveQuarantine { comment }),
    };
    match api.call(RequestMetadata::default(), operation).await? {
        (Answer::Refused(problem), _) => Err(problem.into()),
        _ => Ok(see_other(&if resource.is_empty() { "/".to_owned() } else { resource_path(&resource) })),
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

/// The fields of a form of a page.
fn form(headers: &HeaderMap, body: &Bytes) -> Result<ActionForm, PageProblem> {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !kind.starts_with(b"application/x-www-form-urlencoded") {
        return Err(invalid("content-type", "must be application/x-www-form-urlencoded").into());
    }
    // A browser encodes everything else. The library would replace bytes that are not UTF-8, and so act on another name.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"*-._+%&=".contains(byte);
    let text = std::str::from_utf8(body).ok().filter(|text| text.as_bytes().iter().all(is_plain));
    let text = text.filter(|text| is_percent_encoded(text.as_bytes()));
    let text =
        text.ok_or_else(|| invalid("body", "not UTF-8 after decoding as a form; encode it as a browser does"))?;
    let fields = format!("/?{text}").parse::<Uri>().ok();
    let fields = fields.and_then(|uri| Query::try_from_uri(&uri).ok());
    fields.map(|Query(form)| form).ok_or_else(|| invalid("body", "not the fields of this form").into())
}

fn see_other(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    response
}
