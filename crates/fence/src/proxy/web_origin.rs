//! Refuses requests that a web page of another origin makes a browser send, and names that an attacker can point to this address (A15).

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::{HeaderName, Request};

use crate::http::FenceProblem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Fails unless the host is an IP address, `localhost` or one of `names`. With `any_name`, only a host that is no host at all
/// fails. A request without a host is not from a browser.
pub(super) fn check_host<B>(request: &Request<B>, names: &[String], any_name: bool) -> Result<(), FenceProblem> {
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Err(denied("host", "host: the header occurs more than once; send it once"));
    }
    let Some(host) = host(request) else { return Ok(()) };
    let name = name(&host);
    let allowed = any_name
        || name.eq_ignore_ascii_case("localhost")
        || without_brackets(name).parse::<IpAddr>().is_ok()
        || names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    if allowed {
        return Ok(());
    }
    Err(denied("host", "host: it is not an IP address, localhost or an allowed name; use one, or allow this name"))
}

/// Fails if a browser sent the request for a page of another origin.
pub(super) fn check_origin<B>(request: &Request<B>) -> Result<(), FenceProblem> {
    let headers = request.headers();
    let other_site = headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none");
    let own = host(request);
    let other_origin = headers.get_all(ORIGIN).iter().any(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.zip(own.as_deref()).is_none_or(|(theirs, own)| !theirs.eq_ignore_ascii_case(own))
    });
    if other_site || other_origin {
        return Err(denied("origin", "origin: a web page of another origin sent this request; send it from a program"));
    }
    Ok(())
}

fn denied(field: &str, detail: &str) -> FenceProblem {
    FenceProblem::new("PERMISSION_DENIED", detail).with_field(field, "not allowed")
}

/// Host and port of a request: in HTTP/2 a part of its address, in HTTP/1 a header. One that is not text has no name.
fn host<B>(request: &Request<B>) -> Option<String> {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    authority.or_else(|| request.headers().get(HOST).map(|host| host.to_str().unwrap_or("?").to_owned()))
}

/// The host without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !is_open_bracket(name) => name,
        _ => host,
    }
}

/// An IPv6 address without its brackets, or the text as it is.
fn without_brackets(name: &str) -> &str {
    name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name)
}

/// Whether the text ends inside of an IPv6 address.
fn is_open_bracket(text: &str) -> bool {
    text.starts_with('[') && !text.ends_with(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let request =
            headers.iter().fold(Request::get("/metrics"), |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("a request")
    }

    #[test]
    fn a_host_is_an_address_localhost_or_an_allowed_name() {
        let names = ["proxy.internal".to_owned()];
        for host in
            ["127.0.0.1:7423", "127.0.0.1", "[::1]:7423", "[::1]", "localhost:7423", "LOCALHOST", "Proxy.Internal:80"]
        {
            assert!(check_host(&request(&[("host", host)]), &names, false).is_ok(), "{host}");
        }
        for host in
            ["evil.example:7423", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::1", "proxy.internal."]
        {
            let refused = check_host(&request(&[("host", host)]), &names, false).expect_err(host);
            assert_eq!(refused.code(), "PERMISSION_DENIED");
            assert!(check_host(&request(&[("host", host)]), &names, true).is_ok(), "{host}");
        }
        assert!(check_host(&request(&[]), &names, false).is_ok());
        assert!(check_host(&request(&[("host", "localhost"), ("host", "evil.example")]), &names, true).is_err());
    }

    #[test]
    fn a_request_for_a_page_of_another_origin_is_refused() {
        let own = ("host", "127.0.0.1:7423");
        for headers in [
            &[own][..],
            &[own, ("origin", "http://127.0.0.1:7423"), ("sec-fetch-site", "same-origin")],
            &[own, ("sec-fetch-site", "none")],
        ] {
            assert!(check_origin(&request(headers)).is_ok(), "{headers:?}");
        }
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:8080"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(check_origin(&request(&[own, foreign])).is_err(), "{foreign:?}");
        }
    }
}
