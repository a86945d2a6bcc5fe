//! Own tokens and JWT against a verifier with files, over reloads.

use std::os::unix::fs::PermissionsExt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::Ed25519KeyPair;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::super::NewToken;
use super::*;

const ISSUER: &str = "https://issuer.example";
const OTHER: &str = "https://other.example";
const AUDIENCE: &str = "leasehold";

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn write(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).expect("the file is writable");
    std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o600)).expect("the mode is set");
    std::fs::rename(&next, path).expect("the file is replaced");
}

fn entry(token: &NewToken, principal: &str) -> BearerEntry {
    let principal = principal.to_owned();
    BearerEntry { id: token.id.clone(), principal, digest: token.digest, created: 1_000, expires: 2_000, revoked: None }
}

struct OwnTokens {
    verifier: Arc<BearerVerifier>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl OwnTokens {
    fn new(entries: Vec<BearerEntry>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("bearers.toml");
        write(&path, &BearerFile { entries }.to_string());
        let settings = BearerSettings { bearers: Some(path.clone()), jwt: Vec::new() };
        Self { verifier: BearerVerifier::load(settings).expect("the file is valid"), path, _folder: folder }
    }

    fn replace(&self, entries: Vec<BearerEntry>) {
        write(&self.path, &BearerFile { entries }.to_string());
        self.verifier.reload().expect("the file is valid");
    }

    fn verify(&self, text: &str, now: u64) -> Result<String, BearerError> {
        self.verifier.verify(text, at(now)).map(|bearer| bearer.principal.to_string())
    }
}

#[test]
fn an_own_token_counts_until_it_ends_and_another_secret_never() {
    let (token, other) = (NewToken::generate(), NewToken::generate());
    let own = OwnTokens::new(vec![entry(&token, "bearer:ci")]);
    assert_eq!(own.verify(&token.text, 1_500), Ok("bearer:ci".into()));
    assert_eq!(own.verify(&token.text, 2_000), Err(BearerError::Expired));
    assert_eq!(own.verify(&other.text, 1_500), Err(BearerError::Unknown), "another id");
    let same_id = BearerEntry { digest: other.digest, ..entry(&token, "bearer:ci") };
    own.replace(vec![same_id.clone()]);
    assert_eq!(own.verify(&token.text, 1_500), Err(BearerError::Unknown), "another secret");
    own.replace(vec![BearerEntry { revoked: Some(1), expires: 1_000, ..same_id }]);
    assert_eq!(
        own.verify(&token.text, 1_500),
        Err(BearerError::Unknown),
        "a stranger does not learn that it was revoked"
    );
    own.replace(vec![BearerEntry { revoked: Some(1_400), ..entry(&token, "bearer:ci") }]);
    assert_eq!(own.verify(&token.text, 1_500), Err(BearerError::Revoked));
    assert_eq!(own.verify("lhb1_", 1_500), Err(BearerError::Malformed));
    assert_eq!(own.verify("a.b.c", 1_500), Err(BearerError::NotAccepted), "no issuer is configured");
}

#[test]
fn a_presented_token_ends_with_its_entry_and_not_with_an_unrelated_reload() {
    let (token, other) = (NewToken::generate(), NewToken::generate());
    let own = OwnTokens::new(vec![entry(&token, "bearer:ci")]);
    let presented = own.verifier.verify(&token.text, at(1_500)).expect("a valid token");
    let again = |now| own.verifier.verify_again(&presented, at(now));
    own.replace(vec![entry(&other, "bearer:other"), entry(&token, "bearer:ci")]);
    assert_eq!((again(1_999), again(2_000)), (Ok(()), Err(BearerError::Expired)));
    own.replace(vec![entry(&token, "bearer:renamed")]);
    assert_eq!(again(1_999), Err(BearerError::Unknown), "it names another principal now");
    own.replace(vec![BearerEntry { revoked: Some(1_600), ..entry(&token, "bearer:ci") }]);
    assert_eq!(again(1_999), Err(BearerError::Revoked));
    own.replace(Vec::new());
    assert_eq!(again(1_999), Err(BearerError::Unknown));
}

#[test]
fn an_invalid_missing_or_readable_file_changes_nothing_and_is_reported_once() {
    let token = NewToken::generate();
    let own = OwnTokens::new(vec![entry(&token, "bearer:ci")]);
    assert!(own.verifier.reload_if_changed().is_none(), "an unchanged file is not read again");
    write(&own.path, "[[bearer]]\nid = 1\n");
    let error = own.verifier.reload_if_changed().expect("the file changed").expect_err("invalid");
    assert_eq!((error.setting, error.line), ("bearers", Some(2)), "{error}");
    assert!(own.verifier.reload_if_changed().is_none(), "reported once");
    assert_eq!(own.verify(&token.text, 1_500), Ok("bearer:ci".into()));
    std::fs::remove_file(&own.path).expect("the file exists");
    assert!(own.verifier.reload_if_changed().is_some_and(|result| result.is_err()), "missing");
    write(&own.path, "");
    std::fs::set_permissions(&own.path, std::fs::Permissions::from_mode(0o640)).expect("the mode is set");
    let error = own.verifier.reload().expect_err("others can read it");
    assert!(error.to_string().contains("chmod 0600"), "{error}");
    assert_eq!(own.verify(&token.text, 1_500), Ok("bearer:ci".into()));
    std::fs::set_permissions(&own.path, std::fs::Permissions::from_mode(0o600)).expect("the mode is set");
    assert_eq!(own.verifier.reload_if_changed(), Some(Ok(())), "a corrected mode takes effect");
    assert_eq!(own.verify(&token.text, 1_500), Err(BearerError::Unknown));
    assert_eq!(own.verifier.valid_tokens(at(1_500)), 0);
}

/// An issuer with one Ed25519 key.
struct Signer {
    key: EncodingKey,
}

impl Signer {
    fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).expect("a key");
        Self { key: EncodingKey::from_ed_der(document.as_ref()) }
    }

    fn jwks(&self, key_id: &str) -> String {
        let mut jwk = Jwk::from_encoding_key(&self.key, Algorithm::EdDSA).expect("a public key");
        jwk.common.key_id = Some(key_id.to_owned());
        serde_json::to_string(&JwkSet { keys: vec![jwk] }).expect("JSON")
    }

    fn sign(&self, key_id: &str, claims: &Value) -> String {
        let header = Header { kid: Some(key_id.to_owned()), ..Header::new(Algorithm::EdDSA) };
        encode(&header, claims, &self.key).expect("a signed text")
    }
}

fn claims(changes: Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "sub": "alice", "aud": AUDIENCE, "iat": 1_000, "exp": 2_000 });
    for (name, value) in changes.as_object().expect("an object") {
        claims[name] = value.clone();
        if value.is_null() {
            claims.as_object_mut().expect("an object").remove(name);
        }
    }
    claims
}

fn issuers(one: &Signer, other: &Signer) -> (Arc<BearerVerifier>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a directory");
    let issuer = |name: &str, file: &str, keys: String| {
        let jwks = folder.path().join(file);
        write(&jwks, &keys);
        JwtIssuer { issuer: name.to_owned(), audience: AUDIENCE.to_owned(), jwks }
    };
    let jwt = vec![issuer(ISSUER, "one", one.jwks("k1")), issuer(OTHER, "other", other.jwks("k2"))];
    let verifier = BearerVerifier::load(BearerSettings { bearers: None, jwt }).expect("the files are valid");
    (verifier, folder)
}

#[test]
fn a_jwt_counts_only_with_all_its_claims_and_the_key_of_its_issuer() {
    let (one, other) = (Signer::new(), Signer::new());
    let (verifier, _folder) = issuers(&one, &other);
    let verify = |text: &str| verifier.verify(text, at(1_500)).map(|bearer| bearer.principal.to_string());
    let by = |signer: &Signer, key_id: &str, changes: Value| verify(&signer.sign(key_id, &claims(changes)));
    let alice = || Ok(format!("jwt:{ISSUER}#alice"));
    assert_eq!(by(&one, "k1", json!({})), alice());
    assert_eq!(by(&one, "k1", json!({ "aud": ["other", AUDIENCE], "nbf": 1_499.5 })), alice());
    assert_eq!(by(&other, "k2", json!({ "iss": OTHER })), Ok(format!("jwt:{OTHER}#alice")));
    let table = [
        (by(&other, "k2", json!({})), BearerError::Key, "a key of another issuer"),
        (by(&other, "k1", json!({})), BearerError::Signature, "another key under the id of this one"),
        (by(&one, "k1", json!({ "iss": OTHER })), BearerError::Key, "the issuer of another key"),
        (
            by(&one, "k1", json!({ "iss": format!("{ISSUER}/") })),
            BearerError::Issuer,
            "an issuer that only looks like it",
        ),
        (by(&one, "k1", json!({ "iss": null })), BearerError::Claim("iss"), "no issuer"),
        (by(&one, "k1", json!({ "aud": "other" })), BearerError::Audience, "another audience"),
        (by(&one, "k1", json!({ "aud": [] })), BearerError::Audience, "no audience in the list"),
        (by(&one, "k1", json!({ "aud": null })), BearerError::Claim("aud"), "no audience"),
        (by(&one, "k1", json!({ "exp": null })), BearerError::Claim("exp"), "no end"),
        (by(&one, "k1", json!({ "iat": null })), BearerError::Claim("iat"), "no begin"),
        (by(&one, "k1", json!({ "sub": null })), BearerError::Claim("sub"), "no subject"),
        (by(&one, "k1", json!({ "sub": "" })), BearerError::Claim("sub"), "an empty subject"),
        (by(&one, "k1", json!({ "sub": "a b" })), BearerError::Claim("sub"), "a subject with a space"),
        (by(&one, "k1", json!({ "sub": "x".repeat(3_000) })), BearerError::Claim("sub"), "a subject that is too long"),
        (by(&one, "k1", json!({ "exp": 1_470 })), BearerError::Expired, "over, beyond the skew"),
        (by(&one, "k1", json!({ "nbf": 1_531 })), BearerError::NotYetValid, "not valid yet"),
        (by(&one, "k1", json!({ "iat": 1_531 })), BearerError::NotYetValid, "issued in the future"),
        (by(&one, "k1", json!({ "exp": 87_401 })), BearerError::Lifetime, "longer than 24 hours"),
        (by(&one, "k1", json!({ "iat": 2_000 })), BearerError::Claim("exp"), "over before it was issued"),
        (by(&one, "k1", json!({ "exp": 1e12, "iat": 1e12 - 1.0 })), BearerError::Claim("exp"), "beyond all times"),
        (by(&one, "k1", json!({ "exp": "2000" })), BearerError::Claim("type of a claim"), "a text as a time"),
    ];
    assert_refused(table);
}

/// Fails with all rows that were not refused as expected, so that a rule that is missing shows which rows depend on it.
#[track_caller]
fn assert_refused(table: impl IntoIterator<Item = (Result<String, BearerError>, BearerError, &'static str)>) {
    let wrong: Vec<_> = table.into_iter().filter(|(found, expected, _)| found.as_ref() != Err(expected)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_jwt_with_another_algorithm_than_its_key_is_refused() {
    let (one, other) = (Signer::new(), Signer::new());
    let (verifier, _folder) = issuers(&one, &other);
    let verify = |text: &str| verifier.verify(text, at(1_500)).map(|bearer| bearer.principal.to_string());
    let signed = one.sign("k1", &claims(json!({})));
    let payload = signed.split('.').nth(1).expect("three parts");
    // {"alg":"none","kid":"k1"}
    let none = "eyJhbGciOiJub25lIiwia2lkIjoiazEifQ";
    let signature = signed.rsplit('.').next().expect("a signature");
    let mut table = vec![
        (verify(&format!("{none}.{payload}.")), BearerError::Algorithm, "no algorithm and no signature"),
        (verify(&format!("{none}.{payload}.{signature}")), BearerError::Algorithm, "no algorithm"),
    ];
    let public: JwkSet = serde_json::from_str(&one.jwks("k1")).expect("JSON");
    let public = jsonwebtoken::DecodingKey::from_jwk(&public.keys[0]).expect("a key");
    let secret = EncodingKey::from_secret(public.try_get_as_bytes().expect("32 bytes"));
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        let header = Header { kid: Some("k1".to_owned()), ..Header::new(algorithm) };
        let text = encode(&header, &claims(json!({})), &secret).expect("a signed text");
        table.push((verify(&text), BearerError::Algorithm, "the public key as a secret"));
    }
    let header = Header { kid: None, ..Header::new(Algorithm::EdDSA) };
    let without_key = encode(&header, &claims(json!({})), &one.key).expect("a signed text");
    table.push((verify(&without_key), BearerError::Key, "no id of a key"));
    let header = Header { kid: Some("k1".into()), crit: Some(vec!["b64".into()]), ..Header::new(Algorithm::EdDSA) };
    let critical = encode(&header, &claims(json!({})), &one.key).expect("a signed text");
    table.push((verify(&critical), BearerError::Claim("crit"), "a critical header"));
    assert_refused(table);
    for text in ["", "a", "a.b", "a.b.c", "a.b.c.d", "..", &"x".repeat(9_000), &signed[1..], &format!("{signed}.")] {
        assert!(verify(text).is_err(), "{text}");
    }
}

#[test]
fn a_jwt_ends_with_its_key_and_its_audience() {
    let (one, other, next) = (Signer::new(), Signer::new(), Signer::new());
    let (verifier, folder) = issuers(&one, &other);
    let presented = verifier.verify(&one.sign("k1", &claims(json!({}))), at(1_500)).expect("valid");
    let again = |now| verifier.verify_again(&presented, at(now));
    verifier.reload().expect("the files are valid");
    assert_eq!((again(2_029), again(2_030)), (Ok(()), Err(BearerError::Expired)));
    write(&folder.path().join("one"), &next.jwks("k1"));
    assert_eq!(verifier.reload_if_changed(), Some(Ok(())));
    assert_eq!(again(1_500), Err(BearerError::Key), "another key under the same id");
    write(&folder.path().join("one"), "{}");
    assert!(verifier.reload_if_changed().is_some_and(|result| result.is_err()));
    assert!(
        verifier.verify(&next.sign("k1", &claims(json!({}))), at(1_500)).is_ok(),
        "an invalid file changes nothing"
    );
}

#[test]
fn an_issuer_is_configured_once_and_has_a_name_and_an_audience() {
    let signer = Signer::new();
    let folder = tempfile::tempdir().expect("a directory");
    let jwks = folder.path().join("keys");
    write(&jwks, &signer.jwks("k1"));
    let issuer = |issuer: &str, audience: &str| JwtIssuer {
        issuer: issuer.to_owned(),
        audience: audience.to_owned(),
        jwks: jwks.clone(),
    };
    let table = [
        (vec![issuer("https://a#b", AUDIENCE)], "issuer"),
        (vec![issuer("", AUDIENCE)], "issuer"),
        (vec![issuer("https://a b", AUDIENCE)], "issuer"),
        (vec![issuer(ISSUER, "")], "audience"),
        (vec![issuer(ISSUER, AUDIENCE), issuer(ISSUER, "other")], "issuer"),
        (vec![JwtIssuer { jwks: folder.path().join("missing"), ..issuer(ISSUER, AUDIENCE) }], "jwks"),
    ];
    for (jwt, key) in table {
        let error = BearerVerifier::load(BearerSettings { bearers: None, jwt }).expect_err("invalid");
        assert_eq!((error.setting, error.key.as_str()), ("jwt", key), "{error}");
    }
}
