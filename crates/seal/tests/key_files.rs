//! Key files: what is written is read, and damaged, newer and renamed files are refused without quoting what they hold.

use leasehold_seal::{MAX_KEYS, SealKey, SealKeyError, SealKeys};

fn key() -> SealKey {
    SealKey::generate(1_000).expect("a key")
}

#[test]
fn a_private_key_survives_its_file() {
    let key = key().with_active(2_000).and_then(|key| key.with_end(Some(9_000))).expect("times in order");
    let text = key.to_file_text().expect("a text");
    let read = SealKey::from_file_text(&text).expect("the same key");
    assert_eq!((read.kid(), read.created_ms(), read.public()), (key.kid(), 1_000, key.public()));
    assert_eq!(*read.to_file_text().expect("a text"), *text);
    assert_eq!((read.public().active_ms(), read.public().end_ms()), (2_000, Some(9_000)));
}

#[test]
fn a_public_set_survives_its_file_and_holds_no_private_key() {
    let (one, two) = (key(), key().with_end(Some(5_000)).expect("an end"));
    let set = SealKeys::new([one.public(), two.public()]).expect("a set");
    let text = set.to_json();
    assert_eq!(SealKeys::from_json(&text), Ok(set.clone()));
    for key in [&one, &two] {
        let file = key.to_file_text().expect("a text");
        let private = file.split('"').rev().nth(1).expect("the last value of the file");
        assert_eq!(private.len(), 43);
        assert!(!text.contains(private));
        assert!(!format!("{key:?} {set:?}").contains(private));
    }
}

#[test]
fn one_key_can_be_in_a_set_once_and_sets_are_bounded() {
    let key = key();
    assert_eq!(SealKeys::new([key.public(), key.public()]), Err(SealKeyError::Duplicate { kid: key.kid() }));
    let many: Vec<_> = (0..=MAX_KEYS).map(|_| self::key().public()).collect();
    assert_eq!(SealKeys::new(many), Err(SealKeyError::TooMany { have: MAX_KEYS + 1, max: MAX_KEYS }));
}

#[test]
fn a_damaged_file_is_refused_and_never_quoted() {
    let key = key();
    let text = key.to_file_text().expect("a text");
    let private = text.split('"').rev().nth(1).expect("the last value of the file");
    let kid = key.kid().to_string();
    let other = self::key().kid();
    let cases = [
        (String::new(), "line 1"),
        ("{}".into(), "missing"),
        (text[..text.len() / 2].to_owned(), "ends too early"),
        (text.replace("\"version\": 1", "\"version\": 2"), "version 2"),
        (text.replace("\"version\": 1", "\"version\": 1, \"more\": 1"), "unknown"),
        (text.replace(&kid, &other.to_string()), "kid is"),
        (text.replace(&kid, "xyz"), "kid must be"),
        (text.replace(private, &private[1..]), "private must be"),
        (text.replace(&format!("\"{private}\""), &format!("[\"{private}\"]")), "wrong type"),
        (text.replace("\"active_ms\": 1000", "\"active_ms\": -1"), "wrong type"),
        (text.replace("\"active_ms\": 1000", "\"active_ms\": 1000, \"end_ms\": 1000"), "end_ms must be"),
    ];
    for (changed, expected) in cases {
        let error = SealKey::from_file_text(&changed).expect_err("it is damaged").to_string();
        assert!(error.contains(expected) && error.contains("; "), "{expected}: {error}");
        assert!(!error.contains(&private[1..]), "{error}");
    }
    let public = SealKeys::new([key.public()]).expect("a set").to_json();
    assert!(SealKey::from_file_text(&public).is_err());
    assert!(SealKeys::from_json(&text).is_err());
    assert!(matches!(
        SealKeys::from_json(&public.replace(&kid, &other.to_string())),
        Err(SealKeyError::WrongKid { .. })
    ));
}
