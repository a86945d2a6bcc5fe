//! Token texts: golden files, parsing, and detection of every transcription error.

use std::collections::BTreeSet;

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::time::WallClock;
use leasehold_core::token::{
    Cluster, FenceAccess, FenceKey, Incarnation, Number, ParseHexError, SEALED_TOKEN_BYTES, TOKEN_BYTES, Token,
    TokenError, TokenScope, next_number, plausible,
};
use proptest::prelude::*;

const GOLDEN: &str = include_str!("../testdata/golden/token.txt");
const DAY: u64 = 24 * 3_600_000;

fn n(number: u64) -> Number {
    Number::new(number).expect("tests show numbers from 1 to below 2^63")
}

fn name(text: &str) -> Name<'_> {
    Name::parse(text).expect("tests use allowed names")
}

fn scope(text: &str) -> TokenScope {
    match text.split_at(1) {
        ("w", slot) => TokenScope::Slot(u32::from_str_radix(slot, 16).expect("golden slots are hexadecimal")),
        ("r", _) => TokenScope::Shared,
        ("u", _) => TokenScope::Units,
        _ => panic!("golden reach {text}"),
    }
}

/// The tokens of the golden file with their texts.
fn golden() -> Vec<(Token, &'static str)> {
    let mut lines = GOLDEN.lines();
    let mut tokens = Vec::new();
    while let Some(line) = lines.next() {
        let Some(columns) = line.strip_prefix("token ") else { continue };
        let columns: Vec<&str> = columns.split_whitespace().collect();
        let &[cluster, incarnation, reached, number, resource] = columns.as_slice() else {
            panic!("golden line {line}")
        };
        let token = Token {
            cluster: cluster.parse().expect("golden cluster"),
            incarnation: incarnation.parse().expect("golden incarnation"),
            resource: resource_hash(name(resource).as_str()),
            scope: scope(reached),
            number: n(number.parse().expect("golden number")),
        };
        tokens.push((token, lines.next().expect("a text below each token").trim()));
    }
    tokens
}

fn sample() -> Token {
    golden()[1].0
}

#[test]
fn golden_tokens_print_and_parse_byte_for_byte() {
    let tokens = golden();
    assert_eq!(tokens.len(), 7);
    for (token, text) in tokens {
        assert_eq!(token.to_string(), text);
        assert_eq!(Token::parse(text), Ok(token));
        assert_eq!(text.parse(), Ok(token));
        assert_eq!(text.len(), TOKEN_BYTES);
    }
}

#[test]
fn golden_invalid_texts_are_refused_with_their_reason() {
    let mut reasons = BTreeSet::new();
    for line in GOLDEN.lines().filter_map(|line| line.strip_prefix("refused ")) {
        let (reason, text) = line.split_once('|').expect("a bar before the text");
        let text = text.strip_suffix('|').expect("a bar after the text");
        let refused = Token::parse(text).expect_err(text);
        assert_eq!(refused.reason(), reason.trim(), "{text}");
        reasons.insert(refused.reason());
    }
    assert_eq!(reasons, BTreeSet::from(["absent", "checksum", "shape", "too_large", "version", "zero"]));
}

#[test]
fn the_fields_of_a_token_text_have_fixed_offsets() {
    let token = sample();
    let text = token.to_string();
    let cut = |from: usize, length: usize| &text[from - 1..from - 1 + length];
    assert_eq!(cut(1, 4), "lh1-");
    assert_eq!(cut(5, 16), token.cluster.to_string());
    assert_eq!(cut(22, 8), token.incarnation.to_string());
    assert_eq!(cut(31, 16), format!("{:016x}", u64::from_be_bytes(token.resource)));
    assert_eq!(cut(48, 9), token.scope.to_string());
    assert_eq!(cut(58, 19).parse(), Ok(token.number.get()));
    assert_eq!(cut(78, 8), format!("{:08x}", crc32fast::hash(cut(1, 76).as_bytes())));
}

/// The text is that of `crates/seal`. The core reads its fields, and verifies nothing.
#[test]
fn a_sealed_text_has_the_fields_of_a_plain_one_and_one_spelling() {
    let sealed = include_str!("../../seal/testdata/sealed_token.txt").trim_end();
    let token = Token::parse(sealed).expect("a sealed text");
    assert_eq!(sealed.len(), SEALED_TOKEN_BYTES);
    assert_eq!(sealed[..76], token.sealed_body());
    assert_eq!(sealed[4..76], token.to_string()[4..76]);
    assert_eq!(Token::parse(&token.to_string()), Ok(token));
    let seal = &sealed[76..];
    let changed = [
        sealed[..171].to_owned(),
        format!("{sealed}A"),
        format!("{sealed}="),
        format!("{}{}", token.sealed_body(), seal.replacen("-0c", "-0C", 1)),
        format!("{}{}", token.sealed_body(), seal.replacen('-', "_", 1)),
        // The last character has four bits that belong to no byte.
        format!("{}x", &sealed[..171]),
        format!("{}+{}", &sealed[..100], &sealed[101..]),
        format!("lh2-{}", &token.to_string()[4..]),
        format!("{}{seal}", token),
        sealed.replacen("lh2", "lh1", 1),
    ];
    for text in changed {
        assert!(matches!(Token::parse(&text), Err(TokenError::Shape | TokenError::Checksum)), "{text}");
    }
    let zero = format!("{}0000000000000000000{seal}", &sealed[..57]);
    assert_eq!(Token::parse(&zero), Err(TokenError::Zero));
}

#[test]
fn an_unknown_version_is_reported() {
    assert_eq!(Token::parse("lh7-anything"), Err(TokenError::Version { have: 7 }));
    assert_eq!(
        TokenError::Version { have: 7 }.to_string(),
        "token version 7 is not supported (expected 1 or 2); update the fence"
    );
}

#[test]
fn every_refusal_has_its_stable_code_and_names_the_next_step() {
    let table = [
        (TokenError::Absent, "TOKEN_INVALID", "absent"),
        (TokenError::Version { have: 2 }, "UNSUPPORTED_VERSION", "version"),
        (TokenError::Shape, "TOKEN_INVALID", "shape"),
        (TokenError::Checksum, "TOKEN_INVALID", "checksum"),
        (TokenError::Zero, "TOKEN_INVALID", "zero"),
        (TokenError::TooLarge, "TOKEN_INVALID", "too_large"),
        (TokenError::Implausible, "TOKEN_IMPLAUSIBLE", "implausible"),
        (TokenError::WrongCluster, "WRONG_CLUSTER", "cluster"),
        (TokenError::Resource, "TOKEN_INVALID", "resource"),
        (TokenError::Shared, "TOKEN_INVALID", "shared"),
        (TokenError::Slot, "TOKEN_INVALID", "slot"),
    ];
    for (refused, code, reason) in table {
        assert_eq!((refused.code(), refused.reason()), (code, reason));
        let text = refused.to_string();
        let (problem, next) = text.split_once("; ").expect("a problem; a next step");
        assert!(!problem.is_empty() && !next.is_empty(), "{text}");
    }
}

#[test]
fn a_number_is_from_1_to_below_2_to_the_63() {
    assert_eq!(Number::new(0), None);
    assert_eq!(Number::new(1), Some(Number::FIRST));
    assert_eq!(Number::new((1 << 63) - 1), Some(Number::MAX));
    assert_eq!(Number::new(1 << 63), None);
    assert_eq!(Number::new(u64::MAX), None);
    assert_eq!(Number::MAX.get(), i64::MAX as u64);
    assert_eq!(n(42).to_string(), "42");
    assert!(n(9) < n(10));
}

#[test]
fn clusters_and_incarnations_are_fixed_width_lower_case_hex() {
    assert_eq!("00c0ffee00c0ffee".parse(), Ok(Cluster([0, 0xc0, 0xff, 0xee, 0, 0xc0, 0xff, 0xee])));
    assert_eq!(Incarnation(0x2a).to_string(), "0000002a");
    assert_eq!("0000002a".parse(), Ok(Incarnation(0x2a)));
    for text in ["", "2a", "0000002A", "+000002a", "0000002a ", "00000002a", "０000002a"] {
        assert_eq!(text.parse::<Incarnation>(), Err(ParseHexError { digits: 8 }), "{text}");
        assert_eq!(text.parse::<Cluster>(), Err(ParseHexError { digits: 16 }), "{text}");
    }
}

#[test]
fn a_token_is_only_valid_for_its_own_fence_key() {
    let token = sample();
    let here = FenceKey::new(token.cluster, name("team/a/ledger"), 0);
    assert_eq!(here.access, FenceAccess::Write);
    let elsewhere = FenceKey { cluster: Cluster([9; 8]), ..here };
    let sibling = FenceKey::new(token.cluster, name("team/a/ledgers"), 0);
    let slot = FenceKey { slot: 1, ..here };
    let with = |scope| Token { scope, ..token };
    let table = [
        (token, here, Ok(token.number)),
        (token, here.for_reads(), Ok(token.number)),
        (token, elsewhere, Err(TokenError::WrongCluster)),
        (token, sibling, Err(TokenError::Resource)),
        (token, slot, Err(TokenError::Slot)),
        (token, slot.for_reads(), Err(TokenError::Slot)),
        (with(TokenScope::Slot(1)), slot, Ok(token.number)),
        (with(TokenScope::Shared), here, Err(TokenError::Shared)),
        (with(TokenScope::Units), here, Err(TokenError::Shared)),
        (with(TokenScope::Shared), here.for_reads(), Ok(token.number)),
        (with(TokenScope::Units), here.for_reads(), Ok(token.number)),
        (with(TokenScope::Shared), elsewhere.for_reads(), Err(TokenError::WrongCluster)),
        (with(TokenScope::Shared), sibling.for_reads(), Err(TokenError::Resource)),
    ];
    for (token, key, expected) in table {
        assert_eq!(token.for_target(&key), expected, "{token} at {key:?}");
    }
}

#[test]
fn a_number_more_than_a_day_ahead_of_the_clock_is_implausible() {
    let wall = WallClock::after_era(1_000);
    let bound = (1_000 + DAY) << 22;
    assert!(plausible(Number::FIRST, wall));
    assert!(plausible(n(bound), wall));
    assert!(!plausible(n(bound + 1), wall));
    assert!(!plausible(Number::MAX, wall));
    assert!(plausible(n(DAY << 22), WallClock(0)), "a clock before the era counts as the start of the era");
    assert!(!plausible(n((DAY << 22) + 1), WallClock(0)));
    assert!(plausible(Number::MAX, WallClock(u64::MAX)), "the bound stops at the end, it does not wrap");
}

#[test]
fn the_next_number_follows_the_counter_or_the_clock_whichever_is_higher() {
    assert_eq!(next_number(0, WallClock(0)), Some(n(1)));
    assert_eq!(next_number(41, WallClock::after_era(0)), Some(n(42)));
    assert_eq!(next_number(41, WallClock::after_era(1)), Some(n(1 << 22)));
    assert_eq!(next_number(1 << 22, WallClock::after_era(1)), Some(n((1 << 22) + 1)));
    assert_eq!(next_number((1 << 22) - 1, WallClock::after_era(1)), Some(n(1 << 22)));
}

#[test]
fn exhausted_numbers_do_not_wrap() {
    assert_eq!(next_number((1 << 63) - 2, WallClock(0)), Some(Number::MAX));
    assert_eq!(next_number((1 << 63) - 1, WallClock(0)), None);
    assert_eq!(next_number(u64::MAX, WallClock(0)), None);
    assert_eq!(next_number(u64::MAX, WallClock::after_era(1)), None);
    assert_eq!(next_number(0, WallClock::after_era((1 << 41) - 1)), Some(n(((1 << 41) - 1) << 22)));
    for mad in [WallClock::after_era(1 << 41), WallClock::after_era(1 << 42), WallClock(u64::MAX)] {
        assert_eq!(next_number(0, mad), None, "{mad:?}");
    }
}

fn any_token() -> impl Strategy<Value = Token> {
    let scope = prop_oneof![any::<u32>().prop_map(TokenScope::Slot), Just(TokenScope::Shared), Just(TokenScope::Units)];
    let number = prop_oneof![1..=u64::from(u32::MAX), 1..1u64 << 63];
    (any::<[u8; 8]>(), any::<u32>(), any::<[u8; 8]>(), scope, number).prop_map(
        |(cluster, incarnation, resource, scope, number)| Token {
            cluster: Cluster(cluster),
            incarnation: Incarnation(incarnation),
            resource,
            scope,
            number: n(number),
        },
    )
}

proptest! {
    #[test]
    fn a_token_survives_a_round_trip(token in any_token()) {
        let text = token.to_string();
        prop_assert_eq!(text.len(), TOKEN_BYTES);
        prop_assert_eq!(Token::parse(&text), Ok(token));
    }

    #[test]
    fn tokens_of_one_target_sort_like_their_texts(token in any_token(), other in 1..1u64 << 63) {
        let other = Token { number: n(other), ..token };
        let body = |t: &Token| t.to_string()[..76].to_owned();
        prop_assert_eq!(body(&token).cmp(&body(&other)), token.number.cmp(&other.number));
    }

    #[test]
    fn one_changed_character_is_never_another_token(token in any_token(), at in 0..TOKEN_BYTES, to in any::<char>()) {
        let text = token.to_string();
        for to in "0123456789abcdefABCDEF-rwul h".chars().chain([to]).filter(|to| !text[at..].starts_with(*to)) {
            let changed = format!("{}{to}{}", &text[..at], &text[at + 1..]);
            prop_assert!(Token::parse(&changed).is_err(), "{}", changed);
        }
    }

    #[test]
    fn one_lost_or_added_or_swapped_character_is_never_another_token(
        token in any_token(),
        at in 0..TOKEN_BYTES - 1,
        add in any::<char>(),
    ) {
        let text = token.to_string();
        let (a, b) = (&text[at..=at], &text[at + 1..at + 2]);
        let swapped = format!("{}{b}{a}{}", &text[..at], &text[at + 2..]);
        for changed in [
            format!("{}{}", &text[..at], &text[at + 1..]),
            format!("{}{add}{}", &text[..at], &text[at..]),
            format!("{text}{add}"),
            swapped,
        ] {
            prop_assert!(changed == text || Token::parse(&changed).is_err(), "{}", changed);
        }
    }

    #[test]
    fn any_text_parses_without_a_panic_and_only_the_canonical_form_is_accepted(
        text in "(lh[0-9]-)?[-0-9a-fA-F wru\\PC]{0,90}",
    ) {
        if let Ok(token) = Token::parse(&text) {
            prop_assert_eq!(token.to_string(), text);
        }
    }

    #[test]
    fn the_next_number_is_above_the_counter_and_plausible_for_the_same_clock(
        counter in 0..1u64 << 63,
        ms in 0..1u64 << 41,
    ) {
        let wall = WallClock::after_era(ms);
        match next_number(counter, wall) {
            Some(next) => {
                prop_assert!(next.get() > counter && next.get() >= ms << 22);
                prop_assert!(plausible(next, wall) || next.get() == counter + 1);
            }
            None => prop_assert_eq!(counter, Number::MAX.get()),
        }
    }
}
