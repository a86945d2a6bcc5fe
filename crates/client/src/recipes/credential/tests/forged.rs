//! What was not signed as it stands is refused with the word for it, and nothing of it is used.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::{AUDIENCE, HOUR, ISSUER, Scene};
use crate::recipes::credential::claims::{CREDENTIAL, LIST, seconds};
use crate::recipes::credential::{Denied, Key, Verifier};
use crate::{Code, Error};

/// Everything that a good credential says.
fn claims(scene: &Scene) -> Value {
    let now = seconds(scene.now());
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "worker", "jti": "1", "iat": now, "nbf": now, "exp": now + 10,
        "resource": "jobs/settle", "token": scene.lease.token(),
        "number": scene.lease.token_number().get().to_string(), "rung": "issuer",
    })
}

/// Signs whatever it is given with the issuer's own key.
fn sign(scene: &Scene, kind: &str, claims: &Value) -> String {
    let der = scene.issuer.rotate(|keys| keys.sign_until(0).pkcs8().to_vec());
    let header = Header { typ: Some(kind.into()), kid: Some("k1".into()), ..Header::new(Algorithm::EdDSA) };
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_ed_der(&der)).expect("it signs")
}

#[test]
fn a_text_that_was_changed_in_any_place_is_refused() {
    let scene = Scene::new();
    let (good, verifier) = (scene.issue(HOUR), scene.verifier());
    assert_eq!(scene.verify(&verifier, &good), Ok(()));
    let mut tried = 0;
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).expect("ASCII");
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
pub(super) fn every_claim_must_be_there_and_must_be_what_it_should() {
    let scene = Scene::new();
    let verifier = scene.verifier();
    assert_eq!(scene.verify(&verifier, &sign(&scene, CREDENTIAL, &claims(&scene))), Ok(()));
    let good = claims(&scene);
    for name in good.as_object().expect("an object").keys() {
        let mut without = good.clone();
        without.as_object_mut().expect("an object").remove(name);
        let denied = scene.verify(&verifier, &sign(&scene, CREDENTIAL, &without));
        assert_eq!(denied, Err(Denied::Claim(name.clone())), "without {name}");
    }
    let now = seconds(scene.now());
    let table = [
        ("iss", json!("https://other.example"), Denied::Issuer),
        ("aud", json!("somebody else"), Denied::Audience),
        ("resource", json!("jobs/other"), Denied::Resource),
        ("number", json!("17"), Denied::Claim("number".into())),
        ("token", json!("lh1-nothing"), Denied::Claim("token".into())),
        ("rung", json!("session"), Denied::Claim("rung".into())),
        ("nbf", json!(now + 1_000), Denied::NotYet),
        ("exp", json!(now - 1_000), Denied::NotYet),
        ("exp", json!(0), Denied::NotYet),
    ];
    for (name, value, denied) in table {
        let mut other = good.clone();
        other[name] = value;
        assert_eq!(scene.verify(&verifier, &sign(&scene, CREDENTIAL, &other)), Err(denied), "{other}");
    }
    for (name, value) in
        [("aud", json!([AUDIENCE])), ("exp", json!(-1)), ("exp", json!("never")), ("exp", json!(1e300))]
    {
        let mut other = good.clone();
        other[name] = value;
        let denied = scene.verify(&verifier, &sign(&scene, CREDENTIAL, &other));
        assert!(matches!(denied, Err(Denied::Claim(_))), "{other}: {denied:?}");
    }
}

#[test]
pub(super) fn one_kind_of_signed_text_is_never_taken_for_another() {
    let scene = Scene::new();
    let mut verifier = scene.verifier();
    let credential = scene.issue(HOUR);
    assert_eq!(verifier.set_list_at(&credential, scene.now()), Err(Denied::Malformed));
    let list = scene.issuer.list(scene.now()).expect("it holds");
    assert_eq!(scene.verify(&verifier, &list), Err(Denied::Malformed));
    assert_eq!(scene.verify(&verifier, &sign(&scene, LIST, &claims(&scene))), Err(Denied::Malformed));
    assert_eq!(scene.verify(&verifier, &sign(&scene, "JWT", &claims(&scene))), Err(Denied::Malformed));
    let elsewhere = verifier.verify_at(&credential, "jobs/other", scene.now());
    assert_eq!(elsewhere, Err(Denied::Resource));
}

#[test]
fn only_ed25519_with_a_known_key_is_believed() {
    let scene = Scene::new();
    let verifier = scene.verifier();
    let encode =
        |header: &Header, key: &EncodingKey| jsonwebtoken::encode(header, &claims(&scene), key).expect("it signs");
    let typed =
        |header: Header, kid: Option<&str>| Header { typ: Some(CREDENTIAL.into()), kid: kid.map(Into::into), ..header };
    // The public key as a shared secret: the old trick.
    let secret = EncodingKey::from_secret(scene.issuer.jwks().as_bytes());
    let confused = encode(&typed(Header::new(Algorithm::HS256), Some("k1")), &secret);
    assert_eq!(scene.verify(&verifier, &confused), Err(Denied::Algorithm));
    let signed = scene.issue(HOUR);
    let body = signed.split('.').nth(1).expect("three parts");
    // {"typ":"leasehold-credential+jwt","alg":"none","kid":"k1"}
    let none = "eyJ0eXAiOiJsZWFzZWhvbGQtY3JlZGVudGlhbCtqd3QiLCJhbGciOiJub25lIiwia2lkIjoiazEifQ";
    assert_eq!(scene.verify(&verifier, &format!("{none}.{body}.")), Err(Denied::Algorithm));
    let stranger = Key::generate("k1").expect("a key");
    let stranger = EncodingKey::from_ed_der(stranger.pkcs8());
    let eddsa = |kid| typed(Header::new(Algorithm::EdDSA), kid);
    assert_eq!(scene.verify(&verifier, &encode(&eddsa(Some("k1")), &stranger)), Err(Denied::Signature));
    assert_eq!(scene.verify(&verifier, &encode(&eddsa(Some("k9")), &stranger)), Err(Denied::Key));
    assert_eq!(scene.verify(&verifier, &encode(&eddsa(None), &stranger)), Err(Denied::Key));
    let told = Error::from(Denied::Key);
    assert_eq!((told.code(), told.fields()), (Some(Code::Unauthenticated), vec![("reason", "key".to_owned())]));
}

#[test]
fn a_key_set_that_cannot_be_used_is_refused_and_the_one_before_stays() {
    let scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    let one = scene.issuer.jwks();
    let key: Value = serde_json::from_str::<Value>(&one).expect("JSON")["keys"][0].clone();
    let twice = json!({ "keys": [key, key] }).to_string();
    let mut short = key.clone();
    short["x"] = json!("AAAA");
    let short = json!({ "keys": [short] }).to_string();
    let mut nameless = key.clone();
    nameless.as_object_mut().expect("an object").remove("kid");
    let nameless = json!({ "keys": [nameless] }).to_string();
    for wrong in ["", "{}", "[]", "{\"keys\":[]}", &twice, &short, &nameless] {
        let refused = verifier.set_keys(wrong).expect_err(wrong);
        assert_eq!(refused.code(), Some(Code::InvalidArgument), "{wrong}");
    }
    assert_eq!(scene.verify(&verifier, &credential), Ok(()));
    assert!(Verifier::new(ISSUER, "", &one).is_err(), "an absent audience is no audience");
    assert!(Key::generate("").is_err() && Key::generate("a b").is_err());
    assert!(Key::from_pkcs8("k", b"nothing").is_err());
    let words = format!("{:?} {:?}", scene.issuer, Key::generate("k3").expect("a key"));
    assert!(!words.contains(&scene.lease.token()) && words.contains("k3"));
}
