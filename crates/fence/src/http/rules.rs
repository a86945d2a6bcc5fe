//! Which requests fall under which resource and slot: by path and method, the most exact rule first.

use std::fmt;

use http::{HeaderMap, Method};
use leasehold_core::name::Name;

use crate::Error;

/// Headers by which a harmless method asks to be taken for another one.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// A resource and a slot of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Under {
    /// The resource's name.
    pub resource: String,
    /// Its slot; 0 under an exclusive lease.
    pub slot: u32,
}

impl Under {
    /// This resource's slot.
    pub fn new(resource: Name<'_>, slot: u32) -> Self {
        Self { resource: resource.as_str().to_owned(), slot }
    }
}

impl fmt::Display for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slot {}", self.resource, self.slot)
    }
}

/// Where requests belong.
///
/// What no rule names falls under the main resource if its method can change something, and passes otherwise.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    places: Vec<Under>,
    reads: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    /// Whole segments, without a slash at the end.
    prefix: String,
    /// Which methods; those that can change something if none is named.
    methods: Vec<Method>,
    /// Which of the places; `None` passes unfenced.
    place: Option<usize>,
}

impl Rules {
    /// Everything that can change something falls under this resource.
    pub fn new(main: Under) -> Self {
        Self { rules: Vec::new(), places: vec![main], reads: false }
    }

    /// Requests below this path fall under this resource: those with these methods, or all that can change something.
    pub fn under(self, prefix: &str, methods: &[Method], place: Under) -> Result<Self, Error> {
        let known = self.places.iter().position(|known| *known == place);
        let index = known.unwrap_or(self.places.len());
        let mut with = self.with(prefix, methods, Some(index))?;
        if known.is_none() {
            with.places.push(place);
        }
        Ok(with)
    }

    /// Requests below this path pass without a token: those with these methods, or all.
    pub fn free(self, prefix: &str, methods: &[Method]) -> Result<Self, Error> {
        self.with(prefix, methods, None)
    }

    /// Methods that only read show a token too.
    pub const fn reads_too(mut self) -> Self {
        self.reads = true;
        self
    }

    fn with(mut self, prefix: &str, methods: &[Method], place: Option<usize>) -> Result<Self, Error> {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let shaped = prefix.is_empty() || (prefix.starts_with('/') && !prefix.contains(['?', '#', '%', ' ']));
        if !shaped || winding(prefix) {
            return Err(Error::Misplaced("a rule's path begins with / and is plain; write it like /orders"));
        }
        self.rules.push(Rule { prefix: prefix.to_owned(), methods: methods.to_vec(), place });
        Ok(self)
    }

    /// Every place that is named, the main one first.
    pub fn places(&self) -> &[Under] {
        &self.places
    }

    /// Which place a request falls under; `None` passes.
    pub(super) fn of(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Option<usize>, Winding> {
        let safe = method.is_safe() && !self.reads && !OVERRIDES.iter().any(|name| headers.contains_key(*name));
        if self.rules.is_empty() {
            return Ok((!safe).then_some(0));
        }
        if winding(path) {
            return Err(Winding);
        }
        let fits = |rule: &&Rule| {
            let named = if rule.methods.is_empty() { !safe } else { rule.methods.contains(method) };
            named && below(path, &rule.prefix)
        };
        // The longest path goes first, then who names its methods, then who came first.
        let best =
            self.rules.iter().rev().filter(fits).max_by_key(|rule| (rule.prefix.len(), !rule.methods.is_empty()));
        Ok(best.map_or_else(|| (!safe).then_some(0), |rule| rule.place))
    }
}

/// A path that a target may read as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Winding;

fn below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path has segments that lead elsewhere, in any spelling: it could be taken for another rule's.
fn winding(path: &str) -> bool {
    let plain =
        path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/").replace('\\', "/");
    plain.contains("//") || plain.split('/').any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Under {
        Under::new(Name::parse(text).expect("a name"), 0)
    }

    fn rules() -> Rules {
        Rules::new(name("shop"))
            .under("/orders", &[], name("shop/orders"))
            .and_then(|rules| rules.under("/orders/archive/", &[Method::GET], name("shop/archive")))
            .and_then(|rules| rules.free("/search", &[Method::POST]))
            .expect("rules")
    }

    fn of(method: Method, path: &str) -> Result<Option<usize>, Winding> {
        rules().of(&method, path, &HeaderMap::new())
    }

    #[test]
    fn the_longest_path_goes_first_and_what_nobody_names_falls_under_the_main_resource() {
        assert_eq!(of(Method::POST, "/orders"), Ok(Some(1)));
        assert_eq!(of(Method::DELETE, "/orders/7"), Ok(Some(1)));
        assert_eq!(of(Method::POST, "/ordersmith"), Ok(Some(0)), "whole segments only");
        assert_eq!(of(Method::GET, "/orders/7"), Ok(None), "reading passes");
        assert_eq!(of(Method::GET, "/orders/archive/7"), Ok(Some(2)), "unless a rule names it");
        assert_eq!(of(Method::POST, "/orders/archive/7"), Ok(Some(1)));
        assert_eq!(of(Method::POST, "/search"), Ok(None));
        assert_eq!(of(Method::DELETE, "/search"), Ok(Some(0)), "only the methods that are named");
        assert_eq!(of(Method::PUT, "/"), Ok(Some(0)));
        assert_eq!(of(Method::PUT, "*"), Ok(Some(0)));
    }

    #[test]
    fn a_path_that_could_be_taken_for_another_one_is_refused() {
        for path in
            ["/search/../orders", "/search/%2e%2E/orders", "/search/..%2forders", "/search/.%2e\\orders", "//orders"]
        {
            assert_eq!(of(Method::POST, path), Err(Winding), "{path}");
        }
        for prefix in ["orders", "/a/../b", "/a?b", "/%6f"] {
            assert_eq!(rules().free(prefix, &[]).expect_err(prefix).code(), "INVALID_ARGUMENT");
        }
    }

    #[test]
    fn one_who_reads_and_asks_to_be_taken_for_a_writer_is_a_writer() {
        let mut headers = HeaderMap::new();
        headers.insert("x-http-method-override", "DELETE".parse().expect("a value"));
        assert_eq!(rules().of(&Method::GET, "/orders/7", &headers), Ok(Some(1)));
        let plain = Rules::new(name("shop"));
        assert_eq!(plain.of(&Method::GET, "/a/../b", &HeaderMap::new()), Ok(None));
        assert_eq!(plain.of(&Method::GET, "/a", &headers), Ok(Some(0)));
        assert_eq!(plain.reads_too().of(&Method::GET, "/a", &HeaderMap::new()), Ok(Some(0)));
    }
}
