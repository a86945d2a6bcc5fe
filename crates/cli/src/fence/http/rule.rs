//! A rule as it is typed: methods if it is not about all, a path, and what it falls under.

use std::str::FromStr;

use hyper::Method;
use leasehold_core::name::Name;
use leasehold_fence::http::Under;

/// A path and the methods that are meant; all that can change something if there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub path: String,
    pub methods: Vec<Method>,
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (methods, path) = match text.split_once(' ') {
            Some((methods, path)) => (methods.split(',').collect(), path),
            None => (Vec::new(), text),
        };
        let read = |word: &str| {
            let known = word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') && !word.is_empty();
            let method = known.then(|| Method::from_bytes(word.as_bytes()).ok()).flatten();
            method.ok_or_else(|| format!("{word:?} is not a method; write them like POST,PUT and then the path"))
        };
        let methods = methods.into_iter().map(read).collect::<Result<_, _>>()?;
        if !path.starts_with('/') {
            return Err(format!("{path:?} is not a path; write it like /orders"));
        }
        Ok(Self { path: path.to_owned(), methods })
    }
}

/// `[METHODS ]PATH=RESOURCE[@SLOT]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderRule(pub Way, pub Under);

impl FromStr for UnderRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (way, place) = text.split_once('=').ok_or("no resource is named; write it like '/orders=shop/orders@0'")?;
        let (name, slot) = match place.rsplit_once('@') {
            Some((name, slot)) => (name, slot.parse().map_err(|_| format!("{slot:?} is not a slot; write a number"))?),
            None => (place, 0),
        };
        let name = Name::parse(name).map_err(|error| error.to_string())?;
        Ok(Self(way.parse()?, Under::new(name, slot)))
    }
}

/// `[METHODS ]PATH`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeRule(pub Way);

impl FromStr for FreeRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_methods_a_path_and_a_place() {
        let UnderRule(way, place) = "POST,PUT /orders=shop/orders@3".parse().expect("a rule");
        assert_eq!(way, Way { path: "/orders".to_owned(), methods: vec![Method::POST, Method::PUT] });
        assert_eq!((place.resource.as_str(), place.slot), ("shop/orders", 3));
        let UnderRule(way, place) = "/orders=shop".parse().expect("a rule");
        assert_eq!((way.methods.len(), place.slot), (0, 0));
    }

    #[test]
    fn what_is_no_rule_says_how_one_is_written() {
        for bad in
            ["/orders", "orders=shop", "post /orders=shop", "/orders=a//b", "/orders=shop@x", "POST, /orders=shop"]
        {
            let why = bad.parse::<UnderRule>().expect_err(bad);
            assert!(!why.is_empty(), "{bad}");
        }
        assert!("search".parse::<FreeRule>().is_err());
    }
}
