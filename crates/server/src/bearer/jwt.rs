//! Verifies a JWT: the issuer selects the keys, the key decides the algorithm, and every claim that counts is required.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, dangerous, decode, decode_header};
use leasehold_core::limits::PRINCIPAL_BYTES;
use serde::Deserialize;

use super::error::BearerError;
use super::jwks::JwtKeys;

/// Longest text.
const MAX_TEXT: usize = 8 << 10;
/// Difference between the clocks of an issuer and of this server.
const SKEW: Duration = Duration::from_secs(30);
/// Longest time from `iat` to `exp`.
const MAX_LIFETIME: f64 = 86_400.0;
/// Later times are not distinguished from mistakes, and would not fit the system's.
const MAX_TIME: f64 = 253_402_300_800.0;

/// An issuer of JWT, as an operator configures it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtIssuer {
    /// Its name, exactly as in the claim `iss`.
    pub issuer: String,
    /// The name of this server in the claim `aud`.
    pub audience: String,
    /// File with its public keys, as a JSON web key set.
    pub jwks: PathBuf,
}

/// An issuer and its keys.
pub(super) struct LoadedIssuer {
    pub audience: String,
    pub keys: JwtKeys,
}

/// Issuers by their name.
pub(super) type JwtIssuers = BTreeMap<String, LoadedIssuer>;

/// A verified JWT: what it proves, and what must stay true while a stream uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerifiedJwt {
    pub principal: String,
    pub not_after: SystemTime,
    pub issuer: String,
    pub audiences: Vec<String>,
    pub key_id: String,
    pub fingerprint: [u8; 32],
}

#[derive(Deserialize)]
struct IssuerClaim {
    iss: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audiences,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

/// The principal of a subject. An issuer contains no `#`, so that no other issuer and subject have the same one.
fn principal(issuer: &str, subject: &str) -> Option<String> {
    let principal = format!("jwt:{issuer}#{subject}");
    let printable = subject.bytes().all(|byte| byte.is_ascii_graphic());
    (!subject.is_empty() && printable && principal.len() <= PRINCIPAL_BYTES).then_some(principal)
}

/// Verifies a text at the given time.
pub(super) fn verify(text: &str, issuers: &JwtIssuers, now: SystemTime) -> Result<VerifiedJwt, BearerError> {
    if text.len() > MAX_TEXT {
        return Err(BearerError::Malformed);
    }
    let header = decode_header(text).map_err(|error| match error.kind() {
        // `none` and every other name that the library does not implement.
        ErrorKind::Json(error) if error.to_string().contains("variant") => BearerError::Algorithm,
        _ => BearerError::Malformed,
    })?;
    if header.crit.is_some() {
        return Err(BearerError::Claim("crit"));
    }
    // Not verified yet: it only selects the keys.
    let named: IssuerClaim = dangerous::insecure_decode_claims(text).map_err(|_| BearerError::Claim("iss"))?;
    let issuer = issuers.get(&named.iss).ok_or(BearerError::Issuer)?;
    let key_id = header.kid.ok_or(BearerError::Key)?;
    let key = issuer.keys.get(&key_id).ok_or(BearerError::Key)?;
    if header.alg != key.algorithm {
        return Err(BearerError::Algorithm);
    }
    let mut validation = Validation::new(key.algorithm);
    // Checked below, with their own errors.
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_aud) = (false, false);
    let claims: Claims = decode(text, &key.key, &validation)
        .map_err(|error| match error.kind() {
            ErrorKind::Json(error) => BearerError::Claim(claim_name(&error.to_string())),
            ErrorKind::InvalidSignature => BearerError::Signature,
            ErrorKind::InvalidAlgorithm => BearerError::Algorithm,
            _ => BearerError::Malformed,
        })?
        .claims;
    if claims.iss != named.iss {
        return Err(BearerError::Issuer);
    }
    let audiences = match claims.aud {
        Audiences::One(one) => vec![one],
        Audiences::Many(many) => many,
    };
    if !audiences.contains(&issuer.audience) {
        return Err(BearerError::Audience);
    }
    let not_after = check_times(claims.exp, claims.iat, claims.nbf, now)?;
    let principal = principal(&claims.iss, &claims.sub).ok_or(BearerError::Claim("sub"))?;
    let fingerprint = key.fingerprint;
    Ok(VerifiedJwt { principal, not_after, issuer: claims.iss, audiences, key_id, fingerprint })
}

/// Whether a verified JWT would be accepted now too, except for its end.
pub(super) fn is_current(verified: &VerifiedJwt, issuers: &JwtIssuers) -> Result<(), BearerError> {
    let issuer = issuers.get(&verified.issuer).ok_or(BearerError::Issuer)?;
    if !verified.audiences.contains(&issuer.audience) {
        return Err(BearerError::Audience);
    }
    match issuer.keys.get(&verified.key_id).is_some_and(|key| key.fingerprint == verified.fingerprint) {
        true => Ok(()),
        false => Err(BearerError::Key),
    }
}

/// Checks the times, in seconds since 1970, and returns the end.
fn check_times(exp: f64, iat: f64, nbf: Option<f64>, now: SystemTime) -> Result<SystemTime, BearerError> {
    let skew = SKEW.as_secs_f64();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    for (claim, value) in [("exp", exp), ("iat", iat), ("nbf", nbf.unwrap_or_default())] {
        if !(0.0..MAX_TIME).contains(&value) {
            return Err(BearerError::Claim(claim));
        }
    }
    if exp <= iat {
        return Err(BearerError::Claim("exp"));
    }
    if exp - iat > MAX_LIFETIME {
        return Err(BearerError::Lifetime);
    }
    if now >= exp + skew {
        return Err(BearerError::Expired);
    }
    if iat > now + skew || nbf.is_some_and(|nbf| nbf > now + skew) {
        return Err(BearerError::NotYetValid);
    }
    Ok(UNIX_EPOCH + Duration::from_secs_f64(exp) + SKEW)
}

/// The claim that the library's text names; never a value of the token.
fn claim_name(text: &str) -> &'static str {
    let known = ["iss", "sub", "aud", "exp", "iat", "nbf"];
    known.into_iter().find(|claim| text.contains(&format!("`{claim}`"))).unwrap_or("type of a claim")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_checked_with_the_skew_and_the_longest_life() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let check = |exp: f64, iat: f64, nbf: Option<f64>, now: u64| check_times(exp, iat, nbf, at(now));
        assert_eq!(check(2_000.0, 1_000.0, None, 1_500), Ok(at(2_030)));
        assert_eq!(check(2_000.0, 1_000.0, Some(1_000.5), 971), Ok(at(2_030)), "within the skew");
        assert_eq!(check(2_000.0, 1_000.0, None, 2_029), Ok(at(2_030)));
        assert_eq!(check(2_000.0, 1_000.0, None, 2_030), Err(BearerError::Expired));
        assert_eq!(check(2_000.0, 1_000.0, None, 969), Err(BearerError::NotYetValid));
        assert_eq!(check(2_000.0, 1_000.0, Some(1_600.0), 1_569), Err(BearerError::NotYetValid));
        assert_eq!(check(90_000.0, 3_600.0, None, 4_000), Ok(at(90_030)), "24 hours");
        assert_eq!(check(90_001.0, 3_600.0, None, 4_000), Err(BearerError::Lifetime));
        for (exp, iat, nbf) in [
            (1_000.0, 1_000.0, None),
            (-1.0, -2.0, None),
            (f64::NAN, 1.0, None),
            (f64::INFINITY, 1.0, None),
            (2.0, f64::NAN, None),
            (2.0, 1.0, Some(f64::NEG_INFINITY)),
        ] {
            assert!(matches!(check(exp, iat, nbf, 1), Err(BearerError::Claim(_))), "{exp} {iat} {nbf:?}");
        }
    }

    #[test]
    fn a_principal_has_no_two_readings() {
        assert_eq!(principal("https://a", "b#c").as_deref(), Some("jwt:https://a#b#c"));
        for subject in ["", "a b", "a\n", "\u{e4}", &"x".repeat(PRINCIPAL_BYTES)] {
            assert_eq!(principal("https://a", subject), None, "{subject:?}");
        }
    }
}
