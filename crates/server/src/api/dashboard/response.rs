//! Pages, problems and files as HTTP responses, with the headers that keep a page to its own origin.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::access::{Action, Permission};
use leasehold_wire::json::ProblemBody;
use leasehold_wire::v1;
use serde::de::DeserializeOwned;

use super::super::Api;
use super::super::http::{PathName, StrictQuery};
use crate::dashboard::{CONTENT_SECURITY_POLICY, Page, asset, page::problem_page};
use crate::identity::{Identity, current_or_local};
use crate::transport::{HttpProblem, ProblemExt};

/// A page as a response.
pub struct PageResponse(pub String);

/// The result of a page.
pub type PageResult = Result<PageResponse, PageProblem>;

/// A problem as a page.
pub struct PageProblem(Box<v1::Problem>);

impl From<v1::Problem> for PageProblem {
    fn from(problem: v1::Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<Box<v1::Problem>> for PageProblem {
    fn from(problem: Box<v1::Problem>) -> Self {
        Self(problem)
    }
}

impl From<HttpProblem> for PageProblem {
    fn from(problem: HttpProblem) -> Self {
        Self(problem.0)
    }
}

impl IntoResponse for PageResponse {
    fn into_response(self) -> Response {
        html(StatusCode::OK, self.0)
    }
}

impl IntoResponse for PageProblem {
    fn into_response(self) -> Response {
        let problem = self.0;
        let status = ProblemBody::from((*problem).clone()).status;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = html(status, problem_page(&problem, &current_or_local().principal));
        // The layer that counts problems leaves the page as it is.
        response.extensions_mut().insert(ProblemExt(problem));
        response
    }
}

/// The query of a page; an invalid one is reported as a page.
pub struct PageQuery<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for PageQuery<T> {
    type Rejection = PageProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageProblem> {
        let StrictQuery(query) = StrictQuery::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}

/// The name in the path of a page; an invalid one is reported as a page.
pub struct PageName(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PageName {
    type Rejection = PageProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageProblem> {
        let PathName(name) = PathName::from_request_parts(parts, state).await?;
        Ok(Self(name))
    }
}

fn html(status: StatusCode, page: String) -> Response {
    let mut response = (status, page).into_response();
    let headers = response.headers_mut();
    let values = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Without any referrer a browser hides the origin of this server's own forms, and the server would refuse them.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in values {
        headers.insert(name, HeaderValue::from_static(value));
    }
    no_sniff(headers);
    response
}

fn no_sniff(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// `GET /ui/assets/{name}`: a file that pages load. Its address has a version, so that a browser stores it.
pub async fn asset_file(Path(name): Path<String>) -> Response {
    let Some(asset) = asset(&name) else { return StatusCode::NOT_FOUND.into_response() };
    let mut response = asset.content.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    no_sniff(headers);
    response
}

/// Who reads a page, and what the page says about that.
pub struct PageReader {
    /// The identity.
    pub identity: Arc<Identity>,
    /// Whether no page acts: the server has no access rules, or stands by.
    pub read_only: bool,
}

impl PageReader {
    /// The reader of the current request.
    pub fn current(api: &Api) -> Self {
        Self { identity: current_or_local(), read_only: !api.access.is_restricted() || api.standby.is_some() }
    }

    /// Whether the access rules let the reader perform an action on a name; the empty name is the whole cluster.
    pub fn may(&self, api: &Api, action: Action, name: &str) -> bool {
        let rules = api.access.rules();
        !self.read_only && rules.caller(&self.identity).rights.permission(action, name) == Permission::Yes
    }

    /// Renders a page for the reader.
    pub fn render(&self, page: Page<'_>) -> PageResponse {
        PageResponse(Page { principal: &self.identity.principal, read_only: self.read_only, ..page }.render())
    }
}
