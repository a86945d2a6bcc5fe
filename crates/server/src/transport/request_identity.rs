//! The identity of each request on a connection: that of the connection, or that of the bearer token it presents (A3).

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};

use crate::bearer::{BearerError, BearerVerifier, PresentedBearer};
use crate::identity::{Identity, Via};

/// Who can read what is sent on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confidentiality {
    /// Only its peer.
    Encrypted,
    /// It does not leave this machine.
    Local,
    /// Every machine on the way.
    Plain,
}

impl Confidentiality {
    /// That of a plain connection from an address.
    pub fn of_plain(peer: IpAddr) -> Self {
        if peer.to_canonical().is_loopback() { Self::Local } else { Self::Plain }
    }
}

/// Finds the identity of each request of one connection.
pub(super) struct RequestIdentities {
    pub connection: Arc<Identity>,
    pub confidentiality: Confidentiality,
    /// The accepted bearer tokens; none if the server is not configured for any.
    pub bearers: Option<Arc<BearerVerifier>>,
}

impl RequestIdentities {
    /// The identity of a request. The token is removed from its headers, so that nothing behind this can show it (A11).
    pub fn of(&self, headers: &mut HeaderMap) -> Result<(Arc<Identity>, Option<Arc<PresentedBearer>>), BearerError> {
        let Some(text) = take_bearer(headers)? else {
            // A connection without a certificate was accepted only because its requests may present tokens (A2).
            let unproven = self.confidentiality == Confidentiality::Encrypted && self.connection.via == Via::Anonymous;
            return if unproven { Err(BearerError::Missing) } else { Ok((self.connection.clone(), None)) };
        };
        if self.confidentiality == Confidentiality::Plain {
            return Err(BearerError::Plain);
        }
        let verifier = self.bearers.as_ref().ok_or(BearerError::NotAccepted)?;
        let bearer = PresentedBearer::verify(verifier, &text)?;
        let identity = bearer.identity(self.connection.peer);
        let proves_another = match self.connection.via {
            Via::Certificate | Via::Uid => self.connection.principal != identity.principal,
            // These prove nothing.
            Via::Local | Via::Anonymous | Via::Bearer => false,
        };
        if proves_another {
            return Err(BearerError::OtherPrincipal);
        }
        Ok((Arc::new(identity), Some(bearer)))
    }
}

/// Removes the token of a request from its headers.
fn take_bearer(headers: &mut HeaderMap) -> Result<Option<String>, BearerError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().map(str::to_owned).map_err(|_| BearerError::Header),
        (Some(_), Some(_)) => Err(BearerError::Header),
    };
    headers.remove(header::AUTHORIZATION);
    let value = value?;
    let (scheme, token) = value.split_once(' ').ok_or(BearerError::Header)?;
    let token = token.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || token.contains(' ') {
        return Err(BearerError::Header);
    }
    Ok(Some(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::bearer::{BearerEntry, BearerFile, BearerSettings, NewToken};

    /// A verifier with one token for each principal.
    fn verifier(principals: &[&str]) -> (Arc<BearerVerifier>, Vec<String>, tempfile::TempDir) {
        use std::os::unix::fs::PermissionsExt;
        let tokens: Vec<NewToken> = principals.iter().map(|_| NewToken::generate()).collect();
        let entry = |(principal, token): (&&str, &NewToken)| BearerEntry {
            id: token.id.clone(),
            principal: (*principal).to_owned(),
            digest: token.digest,
            created: 0,
            expires: 4_000_000_000,
            revoked: None,
        };
        let file = BearerFile { entries: principals.iter().zip(&tokens).map(entry).collect() };
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("bearers.toml");
        std::fs::write(&path, file.to_string()).expect("the file is writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the mode is set");
        let settings = BearerSettings { bearers: Some(path), jwt: Vec::new() };
        let verifier = BearerVerifier::load(settings).expect("the file is valid");
        (verifier, tokens.into_iter().map(|token| token.text).collect(), folder)
    }

    fn identity(principal: &str, via: Via) -> Arc<Identity> {
        Arc::new(Identity { principal: principal.into(), via, ..Identity::anonymous(None) })
    }

    fn of(
        connection: &Arc<Identity>,
        confidentiality: Confidentiality,
        bearers: Option<&Arc<BearerVerifier>>,
        values: &[&str],
    ) -> Result<String, BearerError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a header value"));
        }
        let identities =
            RequestIdentities { connection: connection.clone(), confidentiality, bearers: bearers.cloned() };
        let found = identities.of(&mut headers);
        assert!(!headers.contains_key(header::AUTHORIZATION), "nothing behind this sees a token");
        found.map(|(identity, _)| identity.principal.to_string())
    }

    #[test]
    fn a_token_names_the_caller_only_where_no_one_else_reads_it() {
        let (verifier, tokens, _folder) = verifier(&["bearer:ci"]);
        let bearer = format!("Bearer {}", tokens[0]);
        let anonymous = identity("anonymous", Via::Anonymous);
        let sends = |confidentiality| of(&anonymous, confidentiality, Some(&verifier), &[&bearer]);
        assert_eq!(sends(Confidentiality::Encrypted), Ok("bearer:ci".into()));
        assert_eq!(sends(Confidentiality::Local), Ok("bearer:ci".into()));
        assert_eq!(sends(Confidentiality::Plain), Err(BearerError::Plain));
        assert_eq!(of(&anonymous, Confidentiality::Encrypted, None, &[&bearer]), Err(BearerError::NotAccepted));
        assert_eq!(of(&anonymous, Confidentiality::Plain, None, &[]), Ok("anonymous".into()));
        let without = of(&anonymous, Confidentiality::Encrypted, Some(&verifier), &[]);
        assert_eq!(without, Err(BearerError::Missing), "TLS without any identity is not answered");
    }

    #[test]
    fn a_plain_connection_is_local_only_from_a_loopback_address() {
        let of = |peer: &str| Confidentiality::of_plain(peer.parse().expect("an address"));
        for peer in ["127.0.0.1", "127.200.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(of(peer), Confidentiality::Local, "{peer}");
        }
        for peer in ["10.0.0.1", "128.0.0.1", "::", "::2", "::ffff:10.0.0.1", "fe80::1"] {
            assert_eq!(of(peer), Confidentiality::Plain, "{peer}");
        }
    }

    #[test]
    fn two_identities_that_differ_are_refused() {
        let (verifier, tokens, _folder) = verifier(&["bearer:ci", "spiffe://a/worker", "uid:7"]);
        let connections = [
            identity("spiffe://a/worker", Via::Certificate),
            identity("uid:7", Via::Uid),
            identity("local", Via::Local),
        ];
        let expected = [[false, true, false], [false, false, true], [true, true, true]];
        for (connection, expected) in connections.iter().zip(expected) {
            for (token, accepted) in tokens.iter().zip(expected) {
                let found = of(connection, Confidentiality::Local, Some(&verifier), &[&format!("bearer {token}")]);
                match accepted {
                    true => assert!(found.is_ok(), "{connection:?}"),
                    false => assert_eq!(found, Err(BearerError::OtherPrincipal), "{connection:?}"),
                }
            }
        }
    }

    #[test]
    fn a_header_that_is_not_one_token_is_refused_and_never_ignored() {
        let (verifier, tokens, _folder) = verifier(&["bearer:ci"]);
        let bearer = format!("Bearer {}", tokens[0]);
        let local = identity("local", Via::Local);
        let table: [&[&str]; 8] = [
            &["Basic YTpi"],
            &["Bearer"],
            &["Bearer "],
            &[""],
            &[&tokens[0]],
            &[&format!("{bearer} {}", tokens[0])],
            &[&bearer, &bearer],
            &[&bearer, "Basic YTpi"],
        ];
        for values in table {
            let found = of(&local, Confidentiality::Local, Some(&verifier), values);
            assert_eq!(found, Err(BearerError::Header), "{values:?}");
        }
    }
}
