//! Forged and modified texts are rejected with the right error.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::{AUDIENCE, HOUR, ISSUER, Scene};
use crate::recipes::credential::claims::{CREDENTIAL, REVOCATION_LIST, seconds};
use crate::recipes::credential::{CredentialError, CredentialVerifier, SigningKey};
use crate::{Code, Error};

/// Claims of a valid credential.
fn claims(scene: &Scene) -> Value {
    let now = seconds(scene.now());
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "worker", "jti": "1", "iat": now, "nbf": now, "exp": now + 10,
        "resource": "jobs/settle", "token": scene.lease.token().as_str(),
        "number": scene.lease.token_number().get().to_string(), "validity": "issuer",
    })
}

/// Signs any claims with the issuer's own key.
fn sign(scene: &Scene, kind: &str, claims: &Value) -> String {
    let der = scene.issuer.update_keys(|keys| keys.sign_until(0).pkcs8().to_vec());
    let header = Header { typ: Some(kind.into()), kid: Some("k1".into()), ..Header::new(Algorithm::EdDSA) };
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_ed_der(&der)).expect("signing succeeds")
}

#[test]
fn a_text_that_is_changed_anywhere_is_rejected() {
    let scene = Scene::new();
    let (good, verifier) = (scene.issue(HOUR), scene.verifier());
    assert_eq!(scene.verify(&verifier, &good), Ok(()));
    let mut tried = 0;
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).expect("the text is ASCII");
        assert!(scene.verify(&verifier, &changed).is_err(), "changed at {at}: {changed}");
        tried += 1;
    }
    assert!(tried > 300);
    let longer = format!("{good}A");
    let huge = "A".repeat(1 << 20);
    for text in ["", ".", "..", "a.b.c", &good[1..], &good[..good.len() - 1], &longer, &huge, "ü.ü.ü", "\0"] {
        assert!(scene.verify(&verifier, text).is_err(), "{text:.40}");
    }
}

#[test]
pub(super) fn every_claim_is_required_and_checked() {
    let scene = Scene::new();
    let verifier = scene.verifier();
    assert_eq!(scene.verify(&verifier, &sign(&scene, CREDENTIAL, &claims(&scene))), Ok(()));
    let good = claims(&scene);
    for name in good.as_object().expect("the claims are an object").keys() {
        let mut without = good.clone();
        without.as_object_mut().expect("the claims are an object").remove(name);
        let rejected = scene.verify(&verifier, &sign(&scene, CREDENTIAL, &without));
        assert_eq!(rejected, Err(CredentialError::Claim(name.clone())), "without {name}");
    }
    let now = seconds(scene.now());
    let table = [
        ("iss", json!("https://other.example"), CredentialError::Issuer),
        ("aud", json!("another audience"), CredentialError::Audience),
        ("resource", json!("jobs/other"), CredentialError::Resource),
        ("number", json!("17"), CredentialError::Claim("number".into())),
        ("token", json!("lh1-nothing"), CredentialError::Claim("token".into())),
        ("validity", json!("session"), CredentialError::Claim("validity".into())),
        ("nbf", json!(now + 1_000), CredentialError::NotYet),
        ("exp", json!(now - 1_000), CredentialError::NotYet),
        ("exp", json!(0), CredentialError::NotYet),
    ];
    for (name, value, rejected) in table {
        let mut other = good.clone();
        other[name] = value;
        assert_eq!(scene.verify(&verifier, &sign(&scene, CREDENTIAL, &other)), Err(rejected), "{other}");
    }
    for (name, value) in
        [("aud", json!([AUDIENCE])), ("exp", json!(-1)), ("exp", json!("never")), ("exp", json!(1e300))]
    {
        let mut other = good.clone();
        other[name] = value;
        let rejected = scene.verify(&verifier, &sign(&scene, CREDENTIAL, &other));
        assert!(matches!(rejected, Err(CredentialError::Claim(_))), "{other}: {rejected:?}");
    }
}

#[test]
pub(super) fn one_type_of_signed_text_is_never_accepted_as_another() {
    let scene = Scene::new();
    let mut verifier = scene.verifier();
    let credential = scene.issue(HOUR);
    assert_eq!(verifier.set_revocation_list_at(&credential, scene.now()), Err(CredentialError::Malformed));
    let list = scene.issuer.revocation_list(scene.now()).expect("the issuer holds its lease");
    assert_eq!(scene.verify(&verifier, &list), Err(CredentialError::Malformed));
    assert_eq!(
        scene.verify(&verifier, &sign(&scene, REVOCATION_LIST, &claims(&scene))),
        Err(CredentialError::Malformed)
    );
    assert_eq!(scene.verify(&verifier, &sign(&scene, "JWT", &claims(&scene))), Err(CredentialError::Malformed));
    let elsewhere = verifier.verify_at(&credential, "jobs/other", scene.now());
    assert_eq!(elsewhere, Err(CredentialError::Resource));
}

#[test]
fn only_ed25519_with_a_known_key_is_accepted() {
    let scene = Scene::new();
    let verifier = scene.verifier();
    let encode = |header: &Header, key: &EncodingKey| {
        jsonwebtoken::encode(header, &claims(&scene), key).expect("signing succeeds")
    };
    let typed =
        |header: Header, kid: Option<&str>| Header { typ: Some(CREDENTIAL.into()), kid: kid.map(Into::into), ..header };
    // Algorithm confusion: the public key as a shared secret.
    let secret = EncodingKey::from_secret(scene.issuer.jwks().as_bytes());
    let confused = encode(&typed(Header::new(Algorithm::HS256), Some("k1")), &secret);
    assert_eq!(scene.verify(&verifier, &confused), Err(CredentialError::Algorithm));
    let signed = scene.issue(HOUR);
    let body = signed.split('.').nth(1).expect("three parts");
    // {"typ":"leasehold-credential+jwt","alg":"none","kid":"k1"}
    let none = "eyJ0eXAiOiJsZWFzZWhvbGQtY3JlZGVudGlhbCtqd3QiLCJhbGciOiJub25lIiwia2lkIjoiazEifQ";
    assert_eq!(scene.verify(&verifier, &format!("{none}.{body}.")), Err(CredentialError::Algorithm));
    let other = SigningKey::generate("k1").expect("a key is generated");
    let other = EncodingKey::from_ed_der(other.pkcs8());
    let eddsa = |kid| typed(Header::new(Algorithm::EdDSA), kid);
    assert_eq!(scene.verify(&verifier, &encode(&eddsa(Some("k1")), &other)), Err(CredentialError::Signature));
    assert_eq!(scene.verify(&verifier, &encode(&eddsa(Some("k9")), &other)), Err(CredentialError::Key));
    assert_eq!(scene.verify(&verifier, &encode(&eddsa(None), &other)), Err(CredentialError::Key));
    let error = Error::from(CredentialError::Key);
    assert_eq!((error.code(), error.fields()), (Some(Code::Unauthenticated), vec![("reason", "key".to_owned())]));
}

#[test]
fn an_unusable_key_set_is_rejected_and_the_previous_one_stays() {
    let scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    let one = scene.issuer.jwks();
    let key: Value = serde_json::from_str::<Value>(&one).expect("JSON")["keys"][0].clone();
    let twice = json!({ "keys": [key, key] }).to_string();
    let mut short = key.clone();
    short["x"] = json!("AAAA");
    let short = json!({ "keys": [short] }).to_string();
    let mut nameless = key.clone();
    nameless.as_object_mut().expect("the claims are an object").remove("kid");
    let nameless = json!({ "keys": [nameless] }).to_string();
    for wrong in ["", "{}", "[]", "{\"keys\":[]}", &twice, &short, &nameless] {
        let refused = verifier.set_keys(wrong).expect_err(wrong);
        assert_eq!(refused.code(), Some(Code::InvalidArgument), "{wrong}");
    }
    assert_eq!(scene.verify(&verifier, &credential), Ok(()));
    assert!(CredentialVerifier::new(ISSUER, "", &one).is_err(), "the audience must not be empty");
    assert!(SigningKey::generate("").is_err() && SigningKey::generate("a b").is_err());
    assert!(SigningKey::from_pkcs8("k", b"nothing").is_err());
    let text = format!("{:?} {:?}", scene.issuer, SigningKey::generate("k3").expect("a key is generated"));
    assert!(!text.contains(scene.lease.token().as_str()) && text.contains("k3"));
}
