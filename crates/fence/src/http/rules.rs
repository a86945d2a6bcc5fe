//! Rules that map requests to the fence that guards them, by path and method. The most specific rule applies.

use http::{HeaderMap, Method};
use leasehold_core::token::Cluster;

use crate::{Error, FenceId};

/// Headers that override the method of a request.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

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
        let well_formed = prefix.is_empty() || (prefix.starts_with('/') && !prefix.contains(['?', '#', '%', ' ']));
        if !well_formed || is_ambiguous(prefix) {
            return Err(Error::InvalidArgument("the path of a rule is invalid; write a plain path such as /orders"));
        }
        self.rules.push(Rule { prefix: prefix.to_owned(), methods: methods.to_vec(), id });
        Ok(self)
    }

    /// All ids, the main one first.
    pub fn ids(&self) -> &[FenceId] {
        &self.ids
    }

    /// The cluster of all ids.
    pub fn cluster(&self) -> Cluster {
        self.ids[0].cluster()
    }

    /// Index of the id that guards a request; `None` if it needs no token.
    pub(super) fn id_index(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Option<usize>, AmbiguousPathError> {
        let safe = method.is_safe() && !self.fence_reads && !OVERRIDES.iter().any(|name| headers.contains_key(*name));
        if self.rules.is_empty() {
            return Ok((!safe).then_some(0));
        }
        if is_ambiguous(path) {
            return Err(AmbiguousPathError);
        }
        let matches = |rule: &&Rule| {
            let method_matches = if rule.methods.is_empty() { !safe } else { rule.methods.contains(method) };
            method_matches && is_under(path, &rule.prefix)
        };
        // The longest path wins, then a rule that lists methods, then the first rule.
        let best =
            self.rules.iter().rev().filter(matches).max_by_key(|rule| (rule.prefix.len(), !rule.methods.is_empty()));
        Ok(best.map_or_else(|| (!safe).then_some(0), |rule| rule.id))
    }
}

/// The service could interpret the path as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AmbiguousPathError;

fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path has `.`, `..` or empty segments, in any encoding. The service could interpret it as the path of another rule.
fn is_ambiguous(path: &str) -> bool {
    let plain =
        path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/").replace('\\', "/");
    plain.contains("//") || plain.split('/').any(|segment| matches!(segment, "." | ".."))
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

    fn index_of(method: Method, path: &str) -> Result<Option<usize>, AmbiguousPathError> {
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
        for path in
            ["/search/../orders", "/search/%2e%2E/orders", "/search/..%2forders", "/search/.%2e\\orders", "//orders"]
        {
            assert_eq!(index_of(Method::POST, path), Err(AmbiguousPathError), "{path}");
        }
        for prefix in ["orders", "/a/../b", "/a?b", "/%6f"] {
            assert_eq!(rules().exempt(prefix, &[]).expect_err(prefix).code(), "INVALID_ARGUMENT");
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
        headers.insert("x-http-method-override", "DELETE".parse().expect("a value"));
        assert_eq!(rules().id_index(&Method::GET, "/orders/7", &headers), Ok(Some(1)));
        let plain = Rules::new(&id("shop"));
        assert_eq!(plain.id_index(&Method::GET, "/a/../b", &HeaderMap::new()), Ok(None));
        assert_eq!(plain.id_index(&Method::GET, "/a", &headers), Ok(Some(0)));
        assert_eq!(plain.fence_reads().id_index(&Method::GET, "/a", &HeaderMap::new()), Ok(Some(0)));
    }
}
