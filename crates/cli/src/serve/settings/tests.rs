//! Property tests of the configuration file parser: any input is parsed, or rejected with the file name.

use std::fs;

use proptest::prelude::*;

use super::*;

/// A valid file that contains every kind of value.
const VALID: &str = "listen = \"127.0.0.1:0\"\nmax_ttl = \"10m\"\nmax_connections = 100\ninsecure_listen = false\n\
                     journal = \"file\"\nlog_level = \"info\"\n# comment\n";

/// Parses bytes as a file. Every error must contain the file name.
fn read(bytes: &[u8]) -> Result<SettingsArgs, Error> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("leasehold.toml");
    fs::write(&path, bytes).expect("the file is writable");
    let read = SettingsArgs::read(&path);
    if let Err(error) = &read {
        assert_eq!(error.code_name(), "CONFIG");
        assert!(error.to_string().contains("leasehold.toml"), "{error}");
    }
    read
}

#[test]
fn the_valid_file_is_parsed() {
    read(VALID.as_bytes()).expect("the file is valid");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = read(&bytes);
    }

    #[test]
    fn text_similar_to_a_file_is_parsed_or_rejected(text in "([a-z_.\\[\\]]{0,12} ?=? ?[-\"'{}\\[\\]0-9a-z:+.]{0,24}\n){0,20}") {
        let _ = read(text.as_bytes());
    }

    #[test]
    fn a_damaged_file_is_parsed_or_rejected(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        let mut bytes = VALID.as_bytes().to_vec();
        for (at, byte, how) in cuts {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match how {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ => bytes.truncate(at),
            }
        }
        let _ = read(&bytes);
    }
}

#[test]
fn deep_nesting_is_rejected_without_recursion() {
    let deep = format!("listen = {}", "[".repeat(100_000));
    read(deep.as_bytes()).expect_err("a list is not an address");
}
