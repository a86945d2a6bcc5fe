//! Token texts as targets see them: byte for byte from a golden file, and under every mistake a courier can make.

use std::collections::BTreeSet;

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::time::Wall;
use leasehold_core::token::{
    Access, Cluster, Guarded, Incarnation, NotHex, Number, Reach, TOKEN_BYTES, Token, TokenError, lift, plausible,
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

fn reach(text: &str) -> Reach {
    match text.split_at(1) {
        ("w", slot) => Reach::Slot(u32::from_str_radix(slot, 16).expect("golden slots are hexadecimal")),
        ("r", _) => Reach::Shared,
        ("u", _) => Reach::Units,
        _ => panic!("golden reach {text}"),
    }
}

/// The golden file's tokens, each with its text.
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
            reach: reach(reached),
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
fn golden_tokens_are_written_and_read_byte_for_byte() {
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
fn golden_refusals_name_why() {
    let mut seen = BTreeSet::new();
    for line in GOLDEN.lines().filter_map(|line| line.strip_prefix("refused ")) {
        let (why, text) = line.split_once('|').expect("a bar before the text");
        let text = text.strip_suffix('|').expect("a bar after the text");
        let refused = Token::parse(text).expect_err(text);
        assert_eq!(refused.why(), why.trim(), "{text}");
        seen.insert(refused.why());
    }
    assert_eq!(seen, BTreeSet::from(["absent", "checksum", "shape", "too_large", "version", "zero"]));
}

#[test]
fn a_text_can_be_cut_at_fixed_places() {
    let token = sample();
    let text = token.to_string();
    let cut = |from: usize, length: usize| &text[from - 1..from - 1 + length];
    assert_eq!(cut(1, 4), "lh1-");
    assert_eq!(cut(5, 16), token.cluster.to_string());
    assert_eq!(cut(22, 8), token.incarnation.to_string());
    assert_eq!(cut(31, 16), format!("{:016x}", u64::from_be_bytes(token.resource)));
    assert_eq!(cut(48, 9), token.reach.to_string());
    assert_eq!(cut(58, 19).parse(), Ok(token.number.get()));
    assert_eq!(cut(78, 8), format!("{:08x}", crc32fast::hash(cut(1, 76).as_bytes())));
}

#[test]
fn an_unknown_version_is_told() {
    assert_eq!(Token::parse("lh7-anything"), Err(TokenError::Version { have: 7 }));
    assert_eq!(
        TokenError::Version { have: 7 }.to_string(),
        "token version 7 where 1 is read; update whoever checks it"
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
    for (refused, code, why) in table {
        assert_eq!((refused.code(), refused.why()), (code, why));
        let told = refused.to_string();
        let (problem, next) = told.split_once("; ").expect("a problem; a next step");
        assert!(!problem.is_empty() && !next.is_empty(), "{told}");
    }
}

#[test]
fn a_number_lies_between_one_and_below_two_to_the_63() {
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
        assert_eq!(text.parse::<Incarnation>(), Err(NotHex { digits: 8 }), "{text}");
        assert_eq!(text.parse::<Cluster>(), Err(NotHex { digits: 16 }), "{text}");
    }
}

#[test]
fn a_token_gives_its_number_only_to_what_it_was_granted_for() {
    let token = sample();
    let here = Guarded::new(token.cluster, name("team/a/ledger"), 0);
    assert_eq!(here.access, Access::Write);
    let elsewhere = Guarded { cluster: Cluster([9; 8]), ..here };
    let sibling = Guarded::new(token.cluster, name("team/a/ledgers"), 0);
    let slot = Guarded { slot: 1, ..here };
    let with = |reach| Token { reach, ..token };
    let table = [
        (token, here, Ok(token.number)),
        (token, here.for_reads(), Ok(token.number)),
        (token, elsewhere, Err(TokenError::WrongCluster)),
        (token, sibling, Err(TokenError::Resource)),
        (token, slot, Err(TokenError::Slot)),
        (token, slot.for_reads(), Err(TokenError::Slot)),
        (with(Reach::Slot(1)), slot, Ok(token.number)),
        (with(Reach::Shared), here, Err(TokenError::Shared)),
        (with(Reach::Units), here, Err(TokenError::Shared)),
        (with(Reach::Shared), here.for_reads(), Ok(token.number)),
        (with(Reach::Units), here.for_reads(), Ok(token.number)),
        (with(Reach::Shared), elsewhere.for_reads(), Err(TokenError::WrongCluster)),
        (with(Reach::Shared), sibling.for_reads(), Err(TokenError::Resource)),
    ];
    for (token, guarded, expected) in table {
        assert_eq!(token.for_target(&guarded), expected, "{token} at {guarded:?}");
    }
}

#[test]
fn a_number_more_than_a_day_ahead_of_the_targets_clock_is_not_believed() {
    let wall = Wall::after_era(1_000);
    let bound = (1_000 + DAY) << 22;
    assert!(plausible(Number::FIRST, wall));
    assert!(plausible(n(bound), wall));
    assert!(!plausible(n(bound + 1), wall));
    assert!(!plausible(Number::MAX, wall));
    assert!(plausible(n(DAY << 22), Wall(0)), "a clock before the era counts as its beginning");
    assert!(!plausible(n((DAY << 22) + 1), Wall(0)));
    assert!(plausible(Number::MAX, Wall(u64::MAX)), "the bound stops at the end, it does not wrap");
}

#[test]
fn the_next_number_follows_the_counter_or_the_clock_whichever_is_higher() {
    assert_eq!(lift(0, Wall(0)), Some(n(1)));
    assert_eq!(lift(41, Wall::after_era(0)), Some(n(42)));
    assert_eq!(lift(41, Wall::after_era(1)), Some(n(1 << 22)));
    assert_eq!(lift(1 << 22, Wall::after_era(1)), Some(n((1 << 22) + 1)));
    assert_eq!(lift((1 << 22) - 1, Wall::after_era(1)), Some(n(1 << 22)));
}

#[test]
fn when_numbers_are_used_up_there_is_no_next_one_and_nothing_wraps() {
    assert_eq!(lift((1 << 63) - 2, Wall(0)), Some(Number::MAX));
    assert_eq!(lift((1 << 63) - 1, Wall(0)), None);
    assert_eq!(lift(u64::MAX, Wall(0)), None);
    assert_eq!(lift(u64::MAX, Wall::after_era(1)), None);
    assert_eq!(lift(0, Wall::after_era((1 << 41) - 1)), Some(n(((1 << 41) - 1) << 22)));
    for mad in [Wall::after_era(1 << 41), Wall::after_era(1 << 42), Wall(u64::MAX)] {
        assert_eq!(lift(0, mad), None, "{mad:?}");
    }
}

fn any_token() -> impl Strategy<Value = Token> {
    let reach = prop_oneof![any::<u32>().prop_map(Reach::Slot), Just(Reach::Shared), Just(Reach::Units)];
    let number = prop_oneof![1..=u64::from(u32::MAX), 1..1u64 << 63];
    (any::<[u8; 8]>(), any::<u32>(), any::<[u8; 8]>(), reach, number).prop_map(
        |(cluster, incarnation, resource, reach, number)| Token {
            cluster: Cluster(cluster),
            incarnation: Incarnation(incarnation),
            resource,
            reach,
            number: n(number),
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(token in any_token()) {
        let text = token.to_string();
        prop_assert_eq!(text.len(), TOKEN_BYTES);
        prop_assert_eq!(Token::parse(&text), Ok(token));
    }

    #[test]
    fn tokens_of_one_target_order_as_their_texts_do(token in any_token(), other in 1..1u64 << 63) {
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
    fn any_text_is_read_without_a_panic_and_only_the_one_spelling_is_taken(
        text in "(lh[0-9]-)?[-0-9a-fA-F wru\\PC]{0,90}",
    ) {
        if let Ok(token) = Token::parse(&text) {
            prop_assert_eq!(token.to_string(), text);
        }
    }

    #[test]
    fn the_next_number_is_above_the_counter_and_believed_by_a_fence_of_the_same_clock(
        counter in 0..1u64 << 63,
        ms in 0..1u64 << 41,
    ) {
        let wall = Wall::after_era(ms);
        match lift(counter, wall) {
            Some(next) => {
                prop_assert!(next.get() > counter && next.get() >= ms << 22);
                prop_assert!(plausible(next, wall) || next.get() == counter + 1);
            }
            None => prop_assert_eq!(counter, Number::MAX.get()),
        }
    }
}
