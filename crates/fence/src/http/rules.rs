//! Rules that map requests to the fence that guards them, by path and method. The most specific rule applies.

use http::{HeaderMap, Method, header};
use leasehold_core::token::Cluster;
use serde_json::{Value, json};

use super::plain_path::{self, Ambiguity};
use crate::{Error, FenceId};

/// Headers with which some services override the method of a request. Services that pass headers as variables read `_` as `-`.
const METHOD_OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];
/// Headers with which some services override the path of a request, or a part of it.
const PATH_OVERRIDES: [&str; 5] = ["x-original-url", "x-rewrite-url", "x-script-name", "script-name", "path-info"];

/// Maps requests to the fence ids that guard them.
///
/// A request that no rule matches belongs to the main id if its method can change data, and needs no token otherwise.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// The main id first.
    ids: Vec<FenceId>,
    fence_reads: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    /// Complete path segments, without a trailing slash.
    prefix: String,
    /// Empty: all methods that can change data.
    methods: Vec<Method>,
    /// Index of the id; `None` if no token is needed.
    id: Option<usize>,
}

impl Rules {
    /// Creates rules with a main id, for all requests that can change data.
    pub fn new(main: &FenceId) -> Self {
        Self { rules: Vec::new(), ids: vec![main.clone()], fence_reads: false }
    }

    /// Guards requests under a path by another id of the same cluster. Without `methods` the rule covers all that can change
    /// data.
    pub fn route(self, prefix: &str, methods: &[Method], id: &FenceId) -> Result<Self, Error> {
        if id.cluster() != self.cluster() {
            return Err(Error::InvalidArgument("a rule is of another cluster; use the cluster of the main id"));
        }
        let existing = self.ids.iter().position(|existing| existing == id);
        let index = existing.unwrap_or(self.ids.len());
        let mut rules = self.add(prefix, methods, Some(index))?;
        if existing.is_none() {
            rules.ids.push(id.clone());
        }
        Ok(rules)
    }

    /// Lets requests under a path pass without a token. Without `methods` the rule covers all methods.
    pub fn exempt(self, prefix: &str, methods: &[Method]) -> Result<Self, Error> {
        self.add(prefix, methods, None)
    }

    /// Requires a token for read-only methods too.
    pub const fn fence_reads(mut self) -> Self {
        self.fence_reads = true;
        self
    }

    fn add(mut self, prefix: &str, methods: &[Method], id: Option<usize>) -> Result<Self, Error> {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let well_formed =
            prefix.starts_with('/') && !prefix.ends_with('/') && plain_path::check(prefix, usize::MAX).is_ok();
        if !well_formed && !prefix.is_empty() {
            return Err(Error::InvalidArgument("the path of a rule is invalid; write a plain path such as /orders"));
        }
        if self.rules.iter().any(|rule| differs_in_case(prefix, &rule.prefix) || differs_in_case(&rule.prefix, prefix))
        {
            return Err(Error::InvalidArgument("the paths of two rules differ only in case; use one spelling"));
        }
        self.rules.push(Rule { prefix: prefix.to_owned(), methods: methods.to_vec(), id });
        Ok(self)
    }

    /// All ids, the main one first.
    pub fn ids(&self) -> &[FenceId] {
        &self.ids
    }

    /// The rules for a probe: what passes without a token, and which resource guards the rest. The most specific rule applies.
    pub(super) fn report(&self) -> Value {
        let guard = |index: usize| json!({ "resource": self.ids[index].resource(), "slot": self.ids[index].slot() });
        let rule = |rule: &Rule| {
            let path = if rule.prefix.is_empty() { "/" } else { &rule.prefix };
            let methods: Vec<&str> = rule.methods.iter().map(Method::as_str).collect();
            // A rule that lists only methods that read exempts what needs no token anyway.
            let reads = !self.fence_reads && !rule.methods.is_empty() && rule.methods.iter().all(is_read);
            json!({ "path": path, "methods": methods, "guard": rule.id.map(guard), "reads_only": reads })
        };
        let rules: Vec<Value> = self.rules.iter().map(rule).collect();
        json!({ "guard": guard(0), "rules": rules })
    }

    /// The cluster of all ids.
    pub fn cluster(&self) -> Cluster {
        self.ids[0].cluster()
    }

    /// Index of the id that guards a request; `None` if it needs no token. Without rules only the method decides.
    pub(super) fn id_index(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Option<usize>, AmbiguousRequestError> {
        if *method != Method::POST && headers.get_all(header::CONTENT_TYPE).iter().any(is_grpc_type) {
            // Some gRPC servers run a call whatever its method.
            let detail = "method: a gRPC call is a POST; send it as one";
            return Err(AmbiguousRequestError { field: "method", detail });
        }
        let overridden = has_header(headers, &METHOD_OVERRIDES);
        let safe = is_read(method) && !self.fence_reads && !overridden;
        if self.rules.is_empty() {
            return Ok((!safe).then_some(0));
        }
        self.check_unambiguous(method, path, headers, overridden)?;
        let matches = |rule: &&Rule| {
            let method_matches = if rule.methods.is_empty() { !safe } else { rule.lists(method) };
            method_matches && is_under(path, &rule.prefix)
        };
        // The longest path wins, then a rule that lists methods, then the first rule.
        let best =
            self.rules.iter().rev().filter(matches).max_by_key(|rule| (rule.prefix.len(), !rule.methods.is_empty()));
        Ok(best.map_or_else(|| (!safe).then_some(0), |rule| rule.id))
    }

    /// Fails if the service could apply the request to another path, or with another method, than the rules.
    fn check_unambiguous(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        overridden: bool,
    ) -> Result<(), AmbiguousRequestError> {
        let ambiguous = |field, detail| Err(AmbiguousRequestError { field, detail });
        if method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
            return ambiguous("method", "method: it is not in upper case; send it in upper case");
        }
        if overridden && self.rules.iter().any(|rule| !rule.methods.is_empty()) {
            let detail =
                "method: a header overrides it, and rules compare it; send the method itself, without the header";
            return ambiguous("method", detail);
        }
        if has_header(headers, &PATH_OVERRIDES) {
            return ambiguous("path", "path: a header overrides it; send the path itself, without the header");
        }
        let compared = self.rules.iter().map(|rule| rule.compared_segments(path)).max().unwrap_or(0);
        plain_path::check(path, compared).or_else(|detail| ambiguous("path", detail))?;
        if self.rules.iter().any(|rule| differs_in_case(path, &rule.prefix)) {
            return ambiguous("path", "path: it differs from the path of a rule only in case; send it as in the rule");
        }
        Ok(())
    }
}

impl Rule {
    /// Number of leading segments of a path that the rule compares: up to the first that differs.
    fn compared_segments(&self, path: &str) -> usize {
        let own = self.prefix.split('/').skip(1);
        let pairs = own.clone().zip(path.split('/').skip(1));
        let equal = pairs.take_while(|(own, segment)| own.eq_ignore_ascii_case(segment)).count();
        own.count().min(equal + 1)
    }

    /// Whether the rule lists the method. Services answer HEAD as they answer GET.
    fn lists(&self, method: &Method) -> bool {
        self.methods.contains(method) || (*method == Method::HEAD && self.methods.contains(&Method::GET))
    }
}

/// The service could interpret the request as one of another rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AmbiguousRequestError {
    pub(super) field: &'static str,
    pub(super) detail: Ambiguity,
}

/// Whether a method only reads. The list is closed: a method that HTTP adds, such as QUERY, needs a token.
const fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// Whether this is the content type of a gRPC message, in any case.
fn is_grpc_type(kind: &header::HeaderValue) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    kind.as_bytes().trim_ascii_start().get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
}

/// Whether one of these headers is present, also if it is spelled with `_`.
fn has_header(headers: &HeaderMap, names: &[&str]) -> bool {
    headers.keys().any(|have| names.iter().any(|want| spells(have.as_str(), want)))
}

/// Whether the name of a header is another, also if it is spelled with `_`: CGI and WSGI read both as one.
pub(crate) fn spells(have: &str, want: &str) -> bool {
    let same = |(have, want): (u8, u8)| have == want || (have == b'_' && want == b'-');
    have.len() == want.len() && have.bytes().zip(want.bytes()).all(same)
}

fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path is under a prefix for a service that ignores case, and not for others.
fn differs_in_case(path: &str, prefix: &str) -> bool {
    let (path, prefix) = (path.as_bytes(), prefix.as_bytes());
    let ends = matches!(path.get(prefix.len()), None | Some(b'/'));
    ends && path.get(..prefix.len()).is_some_and(|start| start != prefix && start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(resource: &str) -> FenceId {
        FenceId::new(Cluster(*b"testing!"), resource).expect("a name")
    }

    fn rules() -> Rules {
        Rules::new(&id("shop"))
            .route("/orders", &[], &id("shop/orders"))
            .and_then(|rules| rules.route("/orders/archive/", &[Method::GET], &id("shop/archive")))
            .and_then(|rules| rules.exempt("/search", &[Method::POST]))
            .expect("rules")
    }

    fn index_of(method: Method, path: &str) -> Result<Option<usize>, AmbiguousRequestError> {
        rules().id_index(&method, path, &HeaderMap::new())
    }

    #[test]
    fn the_longest_matching_path_wins_and_other_requests_belong_to_the_main_id() {
        assert_eq!(index_of(Method::POST, "/orders"), Ok(Some(1)));
        assert_eq!(index_of(Method::DELETE, "/orders/7"), Ok(Some(1)));
        assert_eq!(index_of(Method::POST, "/ordersmith"), Ok(Some(0)), "whole segments only");
        assert_eq!(index_of(Method::GET, "/orders/7"), Ok(None), "reads need no token");
        assert_eq!(index_of(Method::GET, "/orders/archive/7"), Ok(Some(2)), "unless a rule lists the method");
        assert_eq!(index_of(Method::POST, "/orders/archive/7"), Ok(Some(1)));
        assert_eq!(index_of(Method::POST, "/search"), Ok(None));
        assert_eq!(index_of(Method::DELETE, "/search"), Ok(Some(0)), "only the listed methods are exempt");
        assert_eq!(index_of(Method::PUT, "/"), Ok(Some(0)));
        assert_eq!(index_of(Method::PUT, "*"), Ok(Some(0)));
    }

    #[test]
    fn an_ambiguous_path_is_an_error() {
        for path in [
            "/search/../orders",
            "/search/%2e%2E/orders",
            "/search/..%2forders",
            "/search/.%2e\\orders",
            "//orders",
            "/%6frders/7",
            "/ORDERS/7",
            "/orders;a=b/7",
            "/search/..;/orders",
        ] {
            assert_eq!(index_of(Method::POST, path).map_err(|error| error.field), Err("path"), "{path}");
        }
        for path in ["/other/a%20b", "/orders/archive/a%20b", "/search/%C3%A4"] {
            assert!(index_of(Method::POST, path).is_ok(), "no rule compares the last segment of {path}");
        }
        assert!(index_of(Method::POST, "/orders/a%20b").is_err(), "a rule compares the second segment");
        for prefix in ["orders", "/a/../b", "/a?b", "/%6f", "//", "/a;b", "/ä", "/Search", "/orders/ARCHIVE/x"] {
            assert_eq!(rules().exempt(prefix, &[]).expect_err(prefix).code(), "INVALID_ARGUMENT");
        }
        assert!(rules().exempt("/", &[]).is_ok());
    }

    #[test]
    fn a_method_has_one_spelling_and_head_is_get() {
        assert_eq!(index_of(Method::HEAD, "/orders/archive/7"), Ok(Some(2)));
        let lower = Method::from_bytes(b"post").expect("a method");
        assert_eq!(index_of(lower, "/orders").map_err(|error| error.field), Err("method"));
    }

    #[test]
    fn headers_that_override_path_or_method_are_ambiguous_where_a_rule_compares_them() {
        let with = |name: &'static str| {
            HeaderMap::from_iter([(http::HeaderName::from_static(name), "/orders/7".parse().expect("a value"))])
        };
        let field =
            |rules: &Rules, name| rules.id_index(&Method::POST, "/search", &with(name)).map_err(|error| error.field);
        for name in ["x-original-url", "x_rewrite_url", "script_name"] {
            assert_eq!(field(&rules(), name), Err("path"), "{name}");
        }
        for name in ["x-http-method-override", "x_http_method_override", "x-method_override"] {
            assert_eq!(field(&rules(), name), Err("method"), "{name}");
        }
        let paths_only = Rules::new(&id("shop")).exempt("/search", &[]).expect("rules");
        assert_eq!(field(&paths_only, "x_http_method_override"), Ok(None));
        assert_eq!(
            field(&Rules::new(&id("shop")), "x-original-url"),
            Ok(Some(0)),
            "without rules the path decides nothing"
        );
    }

    #[test]
    fn only_the_four_methods_that_read_need_no_token() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(Rules::new(&id("shop")).id_index(&method, "/a", &HeaderMap::new()), Ok(None), "{method}");
        }
        for method in ["QUERY", "PROPFIND", "SEARCH", "REPORT", "CONNECT", "PURGE", "GETS"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(Rules::new(&id("shop")).id_index(&method, "/a", &HeaderMap::new()), Ok(Some(0)), "{method}");
            assert_eq!(index_of(method.clone(), "/orders"), Ok(Some(1)), "{method}");
        }
    }

    #[test]
    fn a_rule_of_another_cluster_is_an_error() {
        let other = FenceId::new(Cluster(*b"another!"), "shop/orders").expect("a name");
        assert_eq!(rules().route("/orders", &[], &other).expect_err("another cluster").code(), "INVALID_ARGUMENT");
    }

    #[test]
    fn a_method_override_header_makes_a_read_a_write() {
        let mut headers = HeaderMap::new();
        headers.insert("x_http_method_override", "DELETE".parse().expect("a value"));
        let plain = Rules::new(&id("shop"));
        assert_eq!(plain.id_index(&Method::GET, "/a/../b", &HeaderMap::new()), Ok(None));
        assert_eq!(plain.id_index(&Method::GET, "/a", &headers), Ok(Some(0)));
        let routed = plain.clone().route("/orders", &[], &id("shop/orders")).expect("a rule");
        assert_eq!(routed.id_index(&Method::GET, "/orders/7", &headers), Ok(Some(1)));
        assert_eq!(plain.fence_reads().id_index(&Method::GET, "/a", &HeaderMap::new()), Ok(Some(0)));
    }
}
