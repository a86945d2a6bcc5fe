//! Principals: the names of identities that grants are given to.

use leasehold_core::limits::PRINCIPAL_BYTES;

use crate::identity::Identity;

/// Fails unless a principal is one that a connection or a bearer token can have.
pub fn check_principal(principal: &str) -> Result<(), String> {
    let forms = "use spiffe://DOMAIN/PATH, dns:NAME, uid:NUMBER, bearer:NAME, jwt:ISSUER#SUBJECT or anonymous";
    if principal.len() > PRINCIPAL_BYTES {
        return Err(format!("{} bytes long; at most {PRINCIPAL_BYTES} are allowed", principal.len()));
    }
    if let Some(id) = principal.strip_prefix("spiffe://") {
        let (domain, path) = id.split_once('/').ok_or_else(|| format!("{principal:?} has no path; {forms}"))?;
        let is_domain_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if domain.is_empty() || !domain.bytes().all(is_domain_byte) {
            return Err(format!(
                "the trust domain of {principal:?} is not made of lower-case letters, digits, '.', '-' and '_'; correct it"
            ));
        }
        let is_path_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_segment = |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_path_byte);
        return match path.split('/').all(is_segment) {
            true => Ok(()),
            false => Err(format!(
                "the path of {principal:?} is not made of segments of letters, digits, '.', '-' and '_'; correct it"
            )),
        };
    }
    if let Some(name) = principal.strip_prefix("dns:") {
        let is_label = |label: &str| {
            let bytes = label.as_bytes();
            let inside =
                |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-' || *byte == b'_';
            !bytes.is_empty()
                && bytes.len() <= 63
                && bytes.iter().all(inside)
                && bytes[0] != b'-'
                && !bytes.ends_with(b"-")
        };
        return match name.len() <= 253 && name.split('.').all(is_label) {
            true => Ok(()),
            false => Err(format!("{principal:?} is not a DNS name in lower case; wildcards are not allowed")),
        };
    }
    if let Some(uid) = principal.strip_prefix("uid:") {
        let is_plain = uid == "0" || (!uid.starts_with('0') && uid.bytes().all(|byte| byte.is_ascii_digit()));
        return match is_plain && uid.parse::<u32>().is_ok() {
            true => Ok(()),
            false => Err(format!("{principal:?} is not a user id; write for example uid:1000")),
        };
    }
    if let Some(name) = principal.strip_prefix("bearer:") {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        return match plain && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            true => Ok(()),
            false => {
                Err(format!("the name of {principal:?} is not made of letters, digits, '.', '-' and '_'; correct it"))
            }
        };
    }
    if let Some(id) = principal.strip_prefix("jwt:") {
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        return match id.split_once('#').is_some_and(|(issuer, subject)| is_plain(issuer) && is_plain(subject)) {
            true => Ok(()),
            false => Err(format!("{principal:?} is not jwt:ISSUER#SUBJECT in printable ASCII; correct it")),
        };
    }
    match principal {
        Identity::ANONYMOUS => Ok(()),
        Identity::LOCAL => Err(
            "with an access file no connection is \"local\"; grant to anonymous, or to uid:NUMBER over the unix socket"
                .to_owned(),
        ),
        _ => Err(format!("{principal:?} is not a principal; {forms}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_of_bearer_tokens_are_accepted_as_they_are_spelled() {
        for valid in ["bearer:ci", "bearer:ci-2.main_x", "jwt:https://issuer.example/a#user", "jwt:issuer#a#b"] {
            assert_eq!(check_principal(valid), Ok(()), "{valid}");
        }
        for invalid in [
            "bearer:",
            "bearer:a/b",
            "bearer:-a",
            "bearer:a b",
            "jwt:issuer",
            "jwt:#a",
            "jwt:issuer#",
            "jwt:a b#c",
            "jwt:a#\u{e4}",
            "Bearer:ci",
        ] {
            assert!(check_principal(invalid).is_err(), "{invalid}");
        }
    }
}
