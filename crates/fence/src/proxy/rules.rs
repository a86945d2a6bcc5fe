//! Rules of the proxy as text: optional methods, a path, and the resource and slot that guard it.

use std::str::FromStr;

use http::Method;
use leasehold_core::name::Name;

use crate::http::Rules;
use crate::{Error, FenceId};

/// A path and its methods, written as `[METHOD,METHOD... ]PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// Path prefix of complete segments.
    pub path: String,
    /// Empty if no methods are listed.
    pub methods: Vec<Method>,
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (methods, path) = match text.split_once(' ') {
            Some((methods, path)) => (methods.split(',').collect(), path),
            None => (Vec::new(), text),
        };
        let parse_method = |word: &str| {
            let well_formed = word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') && !word.is_empty();
            let method = well_formed.then(|| Method::from_bytes(word.as_bytes()).ok()).flatten();
            method.ok_or_else(|| format!("{word:?} is not a method; write for example 'POST,PUT /orders'"))
        };
        let methods = methods.into_iter().map(parse_method).collect::<Result<_, _>>()?;
        if !path.starts_with('/') {
            return Err(format!("{path:?} is not a path; write for example /orders"));
        }
        Ok(Self { path: path.to_owned(), methods })
    }
}

/// Fences a path by another resource, written as `[METHOD,METHOD... ]PATH=RESOURCE[@SLOT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRule {
    /// The requests.
    pub pattern: PathPattern,
    /// Name of the resource that guards them.
    pub resource: String,
    /// Slot of the resource.
    pub slot: u32,
}

impl RouteRule {
    /// Adds this rule to `rules`, for the cluster of their main id.
    pub fn apply(&self, rules: Rules) -> Result<Rules, Error> {
        let id = FenceId::new(rules.cluster(), &self.resource)?.with_slot(self.slot);
        rules.route(&self.pattern.path, &self.pattern.methods, &id)
    }
}

impl FromStr for RouteRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, guard) =
            text.split_once('=').ok_or("the resource is missing; write for example '/orders=shop/orders@0'")?;
        let (name, slot) = match guard.rsplit_once('@') {
            Some((name, slot)) => (name, slot.parse().map_err(|_| format!("{slot:?} is not a slot; write a number"))?),
            None => (guard, 0),
        };
        let name = Name::parse(name).map_err(|error| error.to_string())?;
        Ok(Self { pattern: pattern.parse()?, resource: name.as_str().to_owned(), slot })
    }
}

/// Lets requests pass without a token, written as `[METHOD,METHOD... ]PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExemptRule(pub PathPattern);

impl ExemptRule {
    /// Adds this rule to `rules`.
    pub fn apply(&self, rules: Rules) -> Result<Rules, Error> {
        rules.exempt(&self.0.path, &self.0.methods)
    }
}

impl FromStr for ExemptRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_methods_a_path_and_a_resource() {
        let RouteRule { pattern, resource, slot } = "POST,PUT /orders=shop/orders@3".parse().expect("a rule");
        assert_eq!(pattern, PathPattern { path: "/orders".to_owned(), methods: vec![Method::POST, Method::PUT] });
        assert_eq!((resource.as_str(), slot), ("shop/orders", 3));
        let RouteRule { pattern, slot, .. } = "/orders=shop".parse().expect("a rule");
        assert_eq!((pattern.methods.len(), slot), (0, 0));
    }

    #[test]
    fn an_invalid_rule_is_an_error_with_a_message() {
        for invalid in
            ["/orders", "orders=shop", "post /orders=shop", "/orders=a//b", "/orders=shop@x", "POST, /orders=shop"]
        {
            let message = invalid.parse::<RouteRule>().expect_err(invalid);
            assert!(!message.is_empty(), "{invalid}");
        }
        assert!("search".parse::<ExemptRule>().is_err());
    }
}
