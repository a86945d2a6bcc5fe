//! A configuration file may hold anything: it is read, or refused with its name and the line.

use std::fs;

use proptest::prelude::*;

use super::*;

/// A file in which every kind of value stands once.
const WRITTEN: &str = "listen = \"127.0.0.1:0\"\nmax_ttl = \"10m\"\nconnections = 100\ninsecure_listen = false\n\
                       journal = \"file\"\nlog_level = \"info\"\n# said\n";

/// Reads bytes as a file; whatever is refused names that file.
fn read(bytes: &[u8]) -> Result<Given, Error> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("leasehold.toml");
    fs::write(&path, bytes).expect("it can be written");
    let read = Given::read(&path);
    if let Err(error) = &read {
        assert_eq!(error.word(), "CONFIG");
        assert!(error.to_string().contains("leasehold.toml"), "{error}");
    }
    read
}

#[test]
fn the_file_that_the_others_are_made_from_is_read() {
    read(WRITTEN.as_bytes()).expect("it is as it should be");
}

proptest! {
    #[test]
    fn bytes_from_anywhere_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = read(&bytes);
    }

    #[test]
    fn text_that_looks_like_a_file_is_read_or_refused(text in "([a-z_.\\[\\]]{0,12} ?=? ?[-\"'{}\\[\\]0-9a-z:+.]{0,24}\n){0,20}") {
        let _ = read(text.as_bytes());
    }

    #[test]
    fn a_file_with_damage_is_read_or_refused(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        let mut bytes = WRITTEN.as_bytes().to_vec();
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
fn nesting_without_end_is_refused_and_not_followed() {
    let deep = format!("listen = {}", "[".repeat(100_000));
    read(deep.as_bytes()).expect_err("a list is no address");
}
