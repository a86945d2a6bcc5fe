//! Validation of names: accepted names, and the error for each refused one.

use leasehold_core::limits::{HOLDER_BYTES, NAME_BYTES, NAME_SEGMENTS};
use leasehold_core::name::{HolderName, Name, NameError, NameProblem, Prefix, resource_hash};
use proptest::prelude::*;

fn problem(text: &str) -> NameProblem {
    let NameError { field, problem } = Name::parse(text).expect_err(text);
    assert_eq!(field, "resource");
    problem
}

#[test]
fn valid_names_are_accepted_unchanged() {
    let long = "x".repeat(NAME_BYTES);
    let deep = vec!["s"; NAME_SEGMENTS].join("/");
    let table = [
        "a",
        "team/a/ledger",
        "team/a.b/..c/d..",
        "C:\\share\\file",
        "with space/and-punctuation_!@#$%^&()",
        "_sys2/a",
        "a/_sys",
        "_SYS/a",
        "straße/münchen",
        "日本/東京",
        "عربي/עברית",
        &long,
        &deep,
    ];
    for text in table {
        assert_eq!(Name::parse(text).map(Name::as_str), Ok(text));
        assert_eq!(Prefix::parse(text).map(Prefix::as_str), Ok(text));
    }
}

#[test]
fn invalid_names_are_refused_with_the_problem() {
    let long = "x".repeat(NAME_BYTES + 1);
    let wide = "ü".repeat(NAME_BYTES / 2 + 1);
    let deep = vec!["s"; NAME_SEGMENTS + 1].join("/");
    let table = [
        ("", NameProblem::Empty),
        (long.as_str(), NameProblem::TooLong { bytes: 513, max: 512 }),
        (&wide, NameProblem::TooLong { bytes: 514, max: 512 }),
        ("a\0b", NameProblem::Control { found: '\0', at: 1 }),
        ("a\n", NameProblem::Control { found: '\n', at: 1 }),
        ("\ta", NameProblem::Control { found: '\t', at: 0 }),
        ("a/\x7f", NameProblem::Control { found: '\x7f', at: 2 }),
        ("ü\u{85}", NameProblem::Control { found: '\u{85}', at: 2 }),
        ("/", NameProblem::EdgeSlash),
        ("/a", NameProblem::EdgeSlash),
        ("a/", NameProblem::EdgeSlash),
        ("a//b", NameProblem::EmptySegment),
        ("a/b///c", NameProblem::EmptySegment),
        (".", NameProblem::DotSegment),
        ("..", NameProblem::DotSegment),
        ("a/./b", NameProblem::DotSegment),
        ("a/..", NameProblem::DotSegment),
        ("u\u{308}", NameProblem::NotNormal),
        ("a/\u{212B}", NameProblem::NotNormal),
        (&deep, NameProblem::TooManySegments { segments: 17 }),
        ("_sys", NameProblem::Reserved),
        ("_sys/journal", NameProblem::Reserved),
        ("team/*", NameProblem::Wildcard { found: '*', at: 5 }),
        ("te?m", NameProblem::Wildcard { found: '?', at: 2 }),
        ("ü/a*b", NameProblem::Wildcard { found: '*', at: 4 }),
    ];
    for (text, expected) in table {
        assert_eq!(problem(text), expected, "{text:?}");
        if !text.is_empty() {
            assert_eq!(Prefix::parse(text), Err(NameError { field: "prefix", problem: expected }));
        }
    }
}

#[test]
fn invisible_characters_are_refused_in_every_name() {
    let turning = ('\u{202A}'..='\u{202E}').chain('\u{2066}'..='\u{2069}').chain(['\u{061C}']);
    let empty = ('\u{200B}'..='\u{200F}').chain('\u{2060}'..='\u{206F}').chain(['\u{FEFF}']);
    let fillers = ['\u{115F}', '\u{1160}', '\u{3164}', '\u{FFA0}', '\u{17B4}', '\u{17B5}', '\u{2800}', '\u{1D159}'];
    let selectors = ('\u{FE00}'..='\u{FE0F}').chain('\u{180B}'..='\u{180F}').chain('\u{E0000}'..='\u{E01EF}');
    let formats = ['\u{AD}', '\u{34F}', '\u{600}', '\u{70F}', '\u{FFF9}', '\u{1343F}', '\u{1BCA0}', '\u{1D173}'];
    let spaces =
        ['\u{A0}', '\u{1680}', '\u{2002}', '\u{200A}', '\u{202F}', '\u{205F}', '\u{3000}', '\u{2028}', '\u{2029}'];
    for found in turning.chain(empty).chain(fillers).chain(selectors).chain(formats).chain(spaces) {
        let text = format!("ab{found}c");
        let expected = NameProblem::Invisible { found, at: 2 };
        assert_eq!(problem(&text), expected);
        assert_eq!(HolderName::parse(&text), Err(NameError { field: "holder", problem: expected }));
    }
    for visible in
        ['\u{AC}', '\u{AE}', '\u{2010}', '\u{2027}', '\u{2070}', '\u{3001}', '\u{FE10}', '\u{FFFD}', '\u{1F600}']
    {
        assert!(Name::parse(&format!("ab{visible}c")).is_ok(), "U+{:04X}", visible as u32);
    }
}

#[test]
fn a_holder_is_any_readable_text_of_up_to_128_bytes() {
    let full = "h".repeat(HOLDER_BYTES);
    for text in ["w", "worker 7 on host//b *?", "../.", "müller", "_sys", &full] {
        assert_eq!(HolderName::parse(text).map(HolderName::as_str), Ok(text));
    }
    let long = "h".repeat(HOLDER_BYTES + 1);
    let table = [
        ("", NameProblem::Empty),
        (long.as_str(), NameProblem::TooLong { bytes: 129, max: 128 }),
        ("a\nb", NameProblem::Control { found: '\n', at: 1 }),
        ("u\u{308}", NameProblem::NotNormal),
    ];
    for (text, problem) in table {
        assert_eq!(HolderName::parse(text), Err(NameError { field: "holder", problem }));
    }
}

#[test]
fn an_error_has_field_problem_and_next_step_and_escapes_the_input() {
    let message = |text: &str| Name::parse(text).expect_err(text).to_string();
    assert_eq!(message(""), "resource: must not be empty; use at least one character");
    assert_eq!(message(&"x".repeat(513)), "resource: too long (513 bytes); use at most 512 bytes");
    assert_eq!(message("a\u{202E}b"), "resource: invisible character U+202E at byte 1; use visible text only");
    assert!(message("u\u{308}").contains("NFC"));
    for text in ["a\x1b[31m", "/a", "a//b", "..", "_sys/a", "a*", &"s/".repeat(17)] {
        let message = message(text);
        assert!(message.starts_with("resource: ") && message.contains("; "), "{message}");
        assert!(message.bytes().all(|b| matches!(b, b' '..=b'~')), "{message:?}");
    }
}

#[test]
fn only_the_reserved_segment_is_a_permission_error() {
    assert_eq!(Name::parse("_sys/a").expect_err("reserved").code(), "PERMISSION_DENIED");
    assert_eq!(Name::parse("a//b").expect_err("empty segment").code(), "INVALID_ARGUMENT");
}

#[test]
fn a_prefix_covers_whole_segments_only() {
    let table = [
        ("team/a", "team/a", true),
        ("team/a", "team/a/b", true),
        ("team/a", "team/a/b/c", true),
        ("team/a", "team/ab", false),
        ("team/a", "team/ab/c", false),
        ("team/a", "team", false),
        ("team/a", "other/team/a", false),
        ("team/a", "Team/a", false),
        ("ü", "ü/a", true),
        ("ü", "üa", false),
        ("", "team/a", true),
    ];
    for (prefix, name, expected) in table {
        let covers = Prefix::parse(prefix).expect(prefix).covers(Name::parse(name).expect(name));
        assert_eq!(covers, expected, "{prefix:?} over {name:?}");
    }
    assert_eq!(Prefix::parse(""), Ok(Prefix::EVERYTHING));
}

#[test]
fn the_hash_of_a_resource_is_a_prefix_of_its_sha_256() {
    assert_eq!(resource_hash("a"), [0xca, 0x97, 0x81, 0x12, 0xca, 0x1b, 0xbd, 0xca]);
    assert_eq!(resource_hash("team/a/ledger"), [0xae, 0xef, 0xf3, 0xb8, 0xc5, 0x58, 0x91, 0xfa]);
}

proptest! {
    /// The classes come from the tables of the regular expressions, not from ours.
    #[test]
    fn no_character_of_an_invisible_class_is_part_of_a_name(
        ignorable in "[\\p{Default_Ignorable_Code_Point}--[\\x{E0000}-\\x{E0FFF}]]",
        tag in "[\\x{E0000}-\\x{E0FFF}&&\\p{Default_Ignorable_Code_Point}]",
        format in "\\p{Cf}",
        separator in "[\\p{Z}--[ ]]",
    ) {
        for found in [ignorable, tag, format, separator] {
            let text = format!("a{found}b");
            let refused = HolderName::parse(&text).expect_err("the character is invisible").problem;
            prop_assert!(matches!(refused, NameProblem::Invisible { at: 1, .. }), "{:?}: {:?}", text, refused);
        }
    }

    #[test]
    fn any_text_is_validated_without_a_panic(
        text in "[/._*?a-c\\PC\\p{Cc}]{0,600}|[/._sy]{0,8}",
    ) {
        if let Ok(name) = Name::parse(&text) {
            prop_assert_eq!(name.as_str(), &text);
            let segments: Vec<&str> = text.split('/').collect();
            prop_assert!(text.len() <= NAME_BYTES && segments.len() <= NAME_SEGMENTS);
            prop_assert!(segments.iter().all(|s| !matches!(*s, "" | "." | "..")) && segments[0] != "_sys");
            prop_assert!(!text.contains(|c: char| c.is_control() || matches!(c, '*' | '?')));
            prop_assert!(HolderName::parse(&text).is_ok() || text.len() > HOLDER_BYTES);
        }
    }

    #[test]
    fn a_prefix_covers_exactly_the_names_whose_first_segments_it_is(
        prefix in proptest::collection::vec("[ab]{1,2}", 0..4),
        name in proptest::collection::vec("[ab]{1,2}", 1..5),
    ) {
        let (p, n) = (prefix.join("/"), name.join("/"));
        let covers = Prefix::parse(&p).expect("made of letters").covers(Name::parse(&n).expect("made of letters"));
        prop_assert_eq!(covers, name.starts_with(&prefix));
    }
}
