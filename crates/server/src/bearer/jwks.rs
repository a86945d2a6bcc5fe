//! The public keys of an issuer, from a JWKS file. The type of a key decides its one algorithm.

use std::collections::BTreeMap;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use sha2::{Digest, Sha256};

/// Most keys of a file.
const MAX_KEYS: usize = 256;
/// Bytes of the modulus of an RSA key: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;
/// Bytes of an uncompressed point of P-256.
const P256_BYTES: usize = 65;
const ED25519_BYTES: usize = 32;

/// One public key.
pub(super) struct JwtKey {
    pub algorithm: Algorithm,
    pub key: DecodingKey,
    /// Digest of algorithm and key: a stream whose key was replaced under the same id ends.
    pub fingerprint: [u8; 32],
}

/// Keys by their id. Never a symmetric one.
pub(super) type JwtKeys = BTreeMap<String, JwtKey>;

/// Parses a JWKS file. Keys for other uses or algorithms are ignored, as issuers publish them in the same file.
pub(super) fn parse(text: &[u8]) -> Result<JwtKeys, String> {
    let set: JwkSet =
        serde_json::from_slice(text).map_err(|error| format!("not a JSON web key set: {error}; export it again"))?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("{} keys; at most {MAX_KEYS} are allowed", set.keys.len()));
    }
    let mut keys = JwtKeys::new();
    for jwk in &set.keys {
        let (Some(algorithm), Some(id)) = (algorithm(jwk), &jwk.common.key_id) else { continue };
        let invalid = || format!("the key {id:?} is invalid; export the keys again");
        let key = DecodingKey::from_jwk(jwk).map_err(|_| invalid())?;
        let mut digest = Sha256::new_with_prefix(format!("{algorithm:?}"));
        let valid = match key.kind() {
            DecodingKeyKind::SecretOrDer(bytes) => {
                digest.update(bytes);
                bytes.len() == if algorithm == Algorithm::ES256 { P256_BYTES } else { ED25519_BYTES }
            }
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                digest.update(n);
                digest.update(e);
                let zeros = n.iter().take_while(|byte| **byte == 0).count();
                RSA_BYTES.contains(&(n.len() - zeros))
            }
        };
        if !valid {
            return Err(invalid());
        }
        let key = JwtKey { algorithm, key, fingerprint: digest.finalize().into() };
        if keys.insert(id.clone(), key).is_some() {
            return Err(format!("two keys have the id {id:?}; remove one of them"));
        }
    }
    match keys.is_empty() {
        true => {
            Err("no key with an id (kid) for RS256, ES256 or EdDSA; export the public keys of the issuer".to_owned())
        }
        false => Ok(keys),
    }
}

/// The algorithm of a key, if it is for signatures and one of those that are accepted.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return None,
    };
    let stated = jwk.common.key_algorithm.is_none_or(|stated| stated == KeyAlgorithm::from(algorithm));
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
    (stated && signs).then_some(algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str = r#""kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;
    const EC: &str = r#""kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#;

    fn ids(keys: &[String]) -> Result<Vec<(String, Algorithm)>, String> {
        let keys: Vec<_> = keys.iter().map(|key| format!("{{{key}}}")).collect();
        let set = format!("{{\"keys\":[{}]}}", keys.join(","));
        parse(set.as_bytes()).map(|keys| keys.into_iter().map(|(id, key)| (id, key.algorithm)).collect())
    }

    #[test]
    fn the_type_of_a_key_decides_its_algorithm_and_other_keys_are_ignored() {
        let keys = [
            format!(r#"{ED},"kid":"a""#),
            format!(r#"{EC},"kid":"b","alg":"ES256","use":"sig""#),
            format!(r#"{EC},"kid":"encrypts","use":"enc""#),
            format!(r#"{EC},"kid":"other-algorithm","alg":"ES384""#),
            format!(r#"{ED},"kid":"not-its-algorithm","alg":"ES256""#),
            ED.to_owned(),
            r#""kty":"oct","kid":"shared","k":"c2VjcmV0"#.to_owned() + "\"",
            r#""kty":"new","kid":"later""#.to_owned(),
        ];
        assert_eq!(ids(&keys), Ok(vec![("a".to_owned(), Algorithm::EdDSA), ("b".to_owned(), Algorithm::ES256)]));
    }

    #[test]
    fn a_file_without_usable_keys_or_with_an_invalid_one_is_refused() {
        let table = [
            (vec![], "no key"),
            (vec![r#""kty":"oct","kid":"shared","k":"c2VjcmV0""#.to_owned()], "no key"),
            (vec![format!(r#"{ED},"kid":"a""#), format!(r#"{EC},"kid":"a""#)], "two keys"),
            (vec![r#""kty":"OKP","crv":"Ed25519","x":"AAAA","kid":"a""#.to_owned()], "is invalid"),
            (vec![r#""kty":"OKP","crv":"Ed25519","x":"*","kid":"a""#.to_owned()], "is invalid"),
            (vec![r#""kty":"RSA","n":"AQAB","e":"AQAB","kid":"short""#.to_owned()], "is invalid"),
        ];
        for (keys, message) in table {
            let error = ids(&keys).expect_err(message);
            assert!(error.contains(message), "{error}");
        }
        assert!(parse(b"{").is_err() && parse(b"[]").is_err() && parse(b"").is_err());
    }
}
