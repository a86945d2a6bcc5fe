//! Checks that no service reads a path as the path of another rule.
//!
//! Services differ in how they read a path: they decode `%6f` once or twice, resolve `..`, remove `;` parameters, merge slashes,
//! trim spaces and dots, or ignore case. A path is therefore forwarded exactly as it was sent, and only if all of these readings
//! lead to the same rule: the segments that rules compare contain plain characters, and no later segment leads out of its place.

/// Characters that every service reads alike, besides letters and digits. `;` and `%` are absent.
const PLAIN: &[u8] = b"-._~!$&'()*+,=:@";

/// Why a path is ambiguous, with the next step.
pub(super) type Ambiguity = &'static str;

/// Fails if services could disagree about the path. Rules compare its first `compared` segments.
pub(super) fn check(path: &str, compared: usize) -> Result<(), Ambiguity> {
    let Some(segments) = path.strip_prefix('/') else {
        // The target of `OPTIONS *`, which belongs to no path.
        return if path == "*" { Ok(()) } else { Err("path: it does not begin with a slash; send it with one") };
    };
    let mut segments = segments.split('/').enumerate().peekable();
    while let Some((index, segment)) = segments.next() {
        if segment.is_empty() {
            if segments.peek().is_some() {
                return Err("path: it has an empty segment; send it without");
            }
        } else if index < compared {
            check_compared(segment)?;
        } else {
            check_later(segment)?;
        }
    }
    Ok(())
}

/// A segment that a rule compares.
fn check_compared(segment: &str) -> Result<(), Ambiguity> {
    if !segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || PLAIN.contains(&byte)) {
        return Err("path: a segment that rules compare has a percent-encoded or special character; send it plainly");
    }
    if segment.ends_with('.') {
        return Err("path: a segment that rules compare ends with a dot; send it without");
    }
    Ok(())
}

/// A segment below those that rules compare: any name, but not a way out of its place.
fn check_later(segment: &str) -> Result<(), Ambiguity> {
    let Some(name) = decode(segment) else {
        return Err("path: a segment is not percent-encoded UTF-8; encode it as UTF-8");
    };
    if name.contains(['/', '\\']) || name.contains(char::is_control) {
        return Err("path: a segment has a slash, a backslash or a control character; send it without");
    }
    if name.split('%').skip(1).any(|rest| rest.starts_with(|next: char| next.is_ascii_alphanumeric())) {
        return Err("path: a segment is percent-encoded twice; encode it once");
    }
    let without_parameters = name.split(';').next().unwrap_or_default();
    if without_parameters.chars().all(|char| char.is_whitespace() || matches!(char, '.' | '+')) {
        return Err("path: a segment is empty or has only dots and spaces; send the path without it");
    }
    Ok(())
}

/// Decodes a segment once; `None` if it is malformed.
fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_rules_compare_must_be_plain() {
        for plain in ["/", "/orders", "/orders/", "/a.b/c~d", "/shop.Orders/Pay", "/v1/orders:pay", "*"] {
            assert_eq!(check(plain, 2), Ok(()), "{plain}");
        }
        for ambiguous in [
            "",
            "orders",
            "//orders",
            "/orders//7",
            "/%6frders",
            "/%6Frders",
            "/orders;x=1",
            "/orders.",
            "/orders%20",
            "/.",
            "/..",
            "/ordérs",
            "/orders%00",
            "/orders\\7",
            "/order%73/7",
        ] {
            assert!(check(ambiguous, 2).is_err(), "{ambiguous}");
        }
    }

    #[test]
    fn later_segments_may_be_encoded_but_not_lead_elsewhere() {
        for harmless in
            ["/search/a%20b", "/search/%C3%A4/7", "/search/100%25", "/search/7;v=1", "/search/.hidden", "/search/a..b"]
        {
            assert_eq!(check(harmless, 1), Ok(()), "{harmless}");
        }
        for ambiguous in [
            "..",
            ".",
            "%2e%2E",
            ".%2e",
            "..;",
            "..;a=b",
            ";",
            "..%3b",
            "..%20",
            "%20",
            "..+",
            "...",
            "%2f",
            "a%2Fb",
            "%5c",
            "a\\b",
            "%00",
            "a%0d%0ab",
            "%252e%252e",
            "%25%32%65",
            "%25u002e",
            "%c0%ae",
            "%ff",
            "%",
            "%2",
            "%zz",
            "%u002e",
        ] {
            let path = format!("/search/{ambiguous}/orders");
            assert!(check(&path, 1).is_err(), "{path}");
        }
    }
}
