//! The check that a request was sent by a program, and not by a browser on behalf of a web page of another site
//! (A15).
//!
//! A browser sends requests of any page to any address, also to loopback. It states the page in `Origin` and `Sec-Fetch-Site`. A page
//! whose own name was made to resolve to this server (DNS rebinding) is of the same origin; only the name in `Host` shows it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use leasehold_wire::{Code, v1};

use super::grpc_detection::{is_grpc, problem_response};
use super::tls::TlsHandle;
use crate::metrics::Metrics;

/// Names under which clients may address this server. IP addresses and `localhost` need none: no page has such a name.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    /// In lower case.
    names: Vec<String>,
    /// The names of the server's certificate are allowed too.
    tls: Option<Arc<TlsHandle>>,
}

impl AllowedHosts {
    /// Allows these names. An address with a port allows its host.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().map(|name| host_of(name).unwrap_or(name).to_ascii_lowercase());
        Self { names: names.collect(), tls: None }
    }

    /// Also allows the names of the server's certificate.
    pub fn with_certificate(self, tls: Option<Arc<TlsHandle>>) -> Self {
        Self { tls, ..self }
    }

    /// Fails if a browser may have sent the request for a page of another site.
    pub fn check(
        &self,
        method: &Method,
        version: Version,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Box<v1::Problem>> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, repeated) = (hosts.next(), hosts.next().is_some());
        if repeated || (host.is_none() && version == Version::HTTP_11) {
            return Err(denied("host", "required exactly once", "Send one Host header."));
        }
        let host = host.map(|host| host.to_str().unwrap_or_default());
        let authority = uri.authority().map(|authority| authority.as_str());
        for host in [authority, host].into_iter().flatten() {
            if !self.allows(host) {
                return Err(unknown_host(host));
            }
        }
        // With TLS a plain page under the name of this server is that of an attacker. Without it, TLS may end at a reverse proxy.
        let schemes: &[&str] = if self.tls.is_some() { &["https"] } else { &["http", "https"] };
        check_site(headers, schemes, authority.or(host).unwrap_or_default(), is_link_to_page(method, uri, headers))
    }

    fn allows(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return address.split('%').next().unwrap_or_default().parse::<Ipv6Addr>().is_ok();
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        host.parse::<Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
            || self.tls.as_ref().is_some_and(|tls| tls.has_host_name(name))
    }
}

/// The host of `host` or `host:port`; `None` if the text is neither.
fn host_of(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(end);
    let has_port = rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_host = !host.is_empty() && !host.contains('@') && (rest.is_empty() || has_port);
    is_host.then_some(host)
}

/// Whether the browser states that a person follows a link to a page of the dashboard, as from a chat. Such a page changes nothing when it
/// is read, cannot be framed, and cannot be read by the page with the link.
fn is_link_to_page(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let is = |name: HeaderName, value: &str| {
        let mut values = headers.get_all(name).iter();
        values.next().is_some_and(|found| found == value) && values.next().is_none()
    };
    let path = uri.path();
    method == Method::GET
        && (path == "/" || path.starts_with("/ui/"))
        && is(SEC_FETCH_MODE, "navigate")
        && is(SEC_FETCH_DEST, "document")
        && is(SEC_FETCH_USER, "?1")
}

/// Fails if the browser states that a page of another origin sends the request, unless a person followed a link.
fn check_site(headers: &HeaderMap, schemes: &[&str], authority: &str, is_link: bool) -> Result<(), Box<v1::Problem>> {
    let is_own = |origin: &HeaderValue| {
        let page = origin.to_str().ok().and_then(|text| text.split_once("://"));
        page.is_some_and(|(scheme, page)| schemes.contains(&scheme) && page.eq_ignore_ascii_case(authority))
    };
    let is_direct = |site: &HeaderValue| site == "same-origin" || site == "none";
    let next_step = "Send it from a program, or open the address directly.";
    if !headers.get_all(header::ORIGIN).iter().all(is_own) {
        return Err(denied("origin", "a web page of another origin may not send requests to this server", next_step));
    }
    if !is_link && !headers.get_all(SEC_FETCH_SITE).iter().all(is_direct) {
        return Err(denied(
            "sec-fetch-site",
            "a web page of another site may not send requests to this server",
            next_step,
        ));
    }
    Ok(())
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_FETCH_USER: HeaderName = HeaderName::from_static("sec-fetch-user");

fn unknown_host(host: &str) -> Box<v1::Problem> {
    let shown: String = host.chars().filter(|c| !c.is_control()).take(100).collect();
    let reason = format!("{shown:?} is not a name of this server");
    denied(
        "host",
        &reason,
        "Connect by IP address, or add the name to the server's setting allowed_hosts (--allowed-hosts).",
    )
}

fn denied(field: &str, reason: &str, next_step: &str) -> Box<v1::Problem> {
    let mut problem = v1::Problem::of(Code::PermissionDenied, format!("{field}: {reason}; {}", lower_first(next_step)));
    (problem.field, problem.reason, problem.next_step) = (field.into(), reason.into(), next_step.into());
    Box::new(problem)
}

/// A next step as the end of a message.
fn lower_first(sentence: &str) -> String {
    let sentence = sentence.strip_suffix('.').unwrap_or(sentence);
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Passes a request on if no page of another site sent it.
pub async fn check_host(
    State((hosts, metrics)): State<(Arc<AllowedHosts>, Arc<Metrics>)>,
    request: Request,
    next: Next,
) -> Response {
    match hosts.check(request.method(), request.version(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            metrics.rejections().problem(&problem);
            problem_response(*problem, is_grpc(request.headers()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], headers: &[(&str, &str)]) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header name");
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a header value"));
        }
        let hosts = AllowedHosts::new(names.iter().copied());
        hosts
            .check(&Method::GET, Version::HTTP_11, &Uri::from_static("/v1/status"), &map)
            .map_err(|problem| problem.field)
    }

    #[test]
    fn an_address_localhost_and_a_configured_name_are_allowed() {
        for host in ["127.0.0.1", "10.0.0.7:7421", "[::1]:7421", "[fe80::1%eth0]", "localhost", "LocalHost.:7421"] {
            assert_eq!(check(&[], &[("host", host)]), Ok(()), "{host}");
        }
        let names = ["Lease.example", "lease-1:7421", "[::1]:7421"];
        for host in ["lease.EXAMPLE", "lease.example:80", "lease.example.", "lease-1:1"] {
            assert_eq!(check(&names, &[("host", host)]), Ok(()), "{host}");
        }
    }

    #[test]
    fn any_other_host_is_refused() {
        let hosts = [
            "evil.test",
            "evil.test:7421",
            "localhost.evil.test",
            "evil.localhost",
            "127.0.0.1.evil.test",
            "127.1",
            "0x7f000001",
            "2130706433",
            "127.0.0.1@evil.test",
            "evil.test@127.0.0.1",
            "localhost:evil",
            "localhost:7421:1",
            "[::1]evil",
            "[evil]",
            "[::1",
            "::1",
            "",
            ":7421",
            ".",
            "lease.example.evil",
            "xlease.example",
            "lease",
            "localhost ",
            "\u{e4}",
        ];
        for host in hosts {
            assert_eq!(check(&["lease.example"], &[("host", host)]), Err("host".to_owned()), "{host:?}");
        }
        assert_eq!(check(&[], &[]), Err("host".to_owned()), "HTTP/1.1 requires the header");
        assert_eq!(check(&[], &[("host", "localhost"), ("host", "localhost")]), Err("host".to_owned()));
    }

    #[test]
    fn the_host_of_an_absolute_request_target_and_of_http_2_is_checked() {
        let mut headers = HeaderMap::new();
        let hosts = AllowedHosts::default();
        let own = Uri::from_static("http://127.0.0.1:7421/v1/status");
        let other = Uri::from_static("http://evil.test/v1/status");
        assert!(hosts.check(&Method::GET, Version::HTTP_2, &own, &headers).is_ok());
        assert!(hosts.check(&Method::GET, Version::HTTP_2, &other, &headers).is_err());
        assert!(
            hosts.check(&Method::GET, Version::HTTP_10, &Uri::from_static("/healthz"), &headers).is_ok(),
            "HTTP/1.0 has no host"
        );
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        assert!(hosts.check(&Method::GET, Version::HTTP_11, &other, &headers).is_err());
        headers.insert(header::HOST, HeaderValue::from_static("evil.test"));
        assert!(hosts.check(&Method::GET, Version::HTTP_2, &own, &headers).is_err());
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let from = |origin: &'static str| check(&[], &[("host", "127.0.0.1:7421"), ("origin", origin)]);
        assert_eq!(from("http://127.0.0.1:7421"), Ok(()));
        assert_eq!(from("https://127.0.0.1:7421"), Ok(()), "TLS ends at a reverse proxy");
        let others = [
            "http://evil.test",
            "http://127.0.0.1:8080",
            "http://127.0.0.1",
            "http://localhost:7421",
            "null",
            "",
            "file://",
            "chrome-extension://127.0.0.1:7421",
            "http://127.0.0.1:7421/",
            "http://127.0.0.1:7421.evil.test",
        ];
        for origin in others {
            assert_eq!(from(origin), Err("origin".to_owned()), "{origin}");
        }
        let both = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.test")];
        assert_eq!(check(&[], &both), Err("origin".to_owned()));
    }

    #[test]
    fn with_tls_a_page_that_was_loaded_without_it_is_refused() {
        let from = |origin: &'static str| {
            let headers = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(origin))]);
            check_site(&headers, &["https"], "lease.example:7421", false).map_err(|problem| problem.field)
        };
        assert_eq!(from("https://lease.example:7421"), Ok(()));
        assert_eq!(from("http://lease.example:7421"), Err("origin".to_owned()));
    }

    #[test]
    fn a_page_of_another_site_is_refused_even_without_an_origin() {
        let from = |site: &'static str| check(&[], &[("host", "localhost:7421"), ("sec-fetch-site", site)]);
        assert_eq!((from("same-origin"), from("none")), (Ok(()), Ok(())));
        for site in ["cross-site", "same-site", "", "later-value"] {
            assert_eq!(from(site), Err("sec-fetch-site".to_owned()), "{site}");
        }
    }

    #[test]
    fn a_person_may_follow_a_link_to_a_page_and_nothing_else_crosses_sites() {
        let hosts = AllowedHosts::default();
        let link = [
            ("host", "localhost"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
            ("sec-fetch-user", "?1"),
        ];
        let check = |method: &Method, path: &'static str, headers: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            hosts.check(method, Version::HTTP_11, &Uri::from_static(path), &map).map_err(|problem| problem.field)
        };
        for path in ["/", "/ui/leases", "/ui/resource/jobs/a?at=1"] {
            assert_eq!(check(&Method::GET, path, &link), Ok(()), "{path}");
            assert!(check(&Method::POST, path, &link).is_err(), "{path}");
        }
        for path in ["/v1/leases", "/metrics", "/uix", "/v1/audit"] {
            assert!(check(&Method::GET, path, &link).is_err(), "{path}");
        }
        // Not a link: a script, a frame, an image, a page that navigates by itself, or another host.
        for (name, value) in [
            ("sec-fetch-mode", "cors"),
            ("sec-fetch-mode", "no-cors"),
            ("sec-fetch-dest", "iframe"),
            ("sec-fetch-dest", "image"),
            ("sec-fetch-user", "?0"),
            ("host", "evil.test"),
        ] {
            let changed = link.map(|(known, old)| (known, if known == name { value } else { old }));
            assert!(check(&Method::GET, "/ui/leases", &changed).is_err(), "{name}: {value}");
        }
        let with_origin: Vec<_> = link.into_iter().chain([("origin", "http://evil.test")]).collect();
        assert_eq!(check(&Method::GET, "/ui/leases", &with_origin), Err("origin".to_owned()));
        let repeated: Vec<_> = link.into_iter().chain([("sec-fetch-mode", "cors")]).collect();
        assert!(check(&Method::GET, "/ui/leases", &repeated).is_err());
    }

    #[test]
    fn the_refusal_of_a_name_names_the_setting() {
        let problem = unknown_host("lease.example\u{7}");
        assert_eq!(
            problem.message,
            "host: \"lease.example\" is not a name of this server; connect by IP address, or add the name to the server's setting \
             allowed_hosts (--allowed-hosts)"
        );
    }
}
