//! The filter of a view: a prefix of resources, and the holder of leases. The server applies it.

use std::fmt;

/// What is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Prefix of whole segments; in the audit view, a resource.
    pub prefix: String,
    /// Name of a holder, if only its leases are listed.
    pub holder: Option<String>,
}

impl Filter {
    /// Parses `PREFIX`, `@HOLDER` or `PREFIX @HOLDER`. Names may contain spaces.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let (prefix, holder) = match text.strip_prefix('@') {
            Some(holder) => ("", Some(holder)),
            None => text.split_once(" @").map_or((text, None), |(prefix, holder)| (prefix, Some(holder))),
        };
        let holder = holder.map(str::trim).filter(|holder| !holder.is_empty()).map(str::to_owned);
        Self { prefix: prefix.trim().to_owned(), holder }
    }

    pub fn is_empty(&self) -> bool {
        self.prefix.is_empty() && self.holder.is_none()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)?;
        match &self.holder {
            Some(holder) if self.prefix.is_empty() => write!(f, "@{holder}"),
            Some(holder) => write!(f, " @{holder}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_prefix_a_holder_or_both_and_prints_as_it_is_parsed() {
        let filter =
            |prefix: &str, holder: Option<&str>| Filter { prefix: prefix.into(), holder: holder.map(str::to_owned) };
        let table = [
            ("", filter("", None)),
            ("  jobs/a ", filter("jobs/a", None)),
            ("@w-7", filter("", Some("w-7"))),
            ("jobs @w 7", filter("jobs", Some("w 7"))),
            ("user@host", filter("user@host", None)),
            ("@", filter("", None)),
        ];
        for (text, expected) in table {
            let parsed = Filter::parse(text);
            assert_eq!(parsed, expected, "{text}");
            assert_eq!(Filter::parse(&parsed.to_string()), parsed);
        }
    }
}
