//! A bearer token in a file. It is read for each request, so that a replaced token is used at once.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use tonic::metadata::{Ascii, MetadataValue};

use crate::Error;

/// Size limit of a file.
const MAX_BYTES: u64 = 16 << 10;

/// The file with the bearer token of a client: a token of `leasehold bearer create`, or a JWT. It contains the token alone; white
/// space around it is ignored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BearerTokenFile(PathBuf);

impl BearerTokenFile {
    /// The token in this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Reads the file, and fails if it contains no token. A client without this check fails with its first request.
    pub fn check(&self) -> Result<(), Error> {
        self.header().map(drop).map_err(|reason| Error::config("bearer_file", format!("bearer_file: {reason}")))
    }

    /// The value of the header `authorization`. Errors name the file, never its contents.
    pub(crate) fn header(&self) -> Result<MetadataValue<Ascii>, String> {
        let at = self.0.display();
        let mut bytes = Vec::new();
        File::open(&self.0)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("cannot read {at}: {error}; check the path"))?;
        let token = bytes.trim_ascii();
        if token.is_empty() || bytes.len() as u64 > MAX_BYTES || !token.iter().all(u8::is_ascii_graphic) {
            return Err(format!("{at} contains no bearer token; write the token alone into the file"));
        }
        let value = [b"Bearer ", token].concat();
        let mut value = MetadataValue::try_from(value.as_slice())
            .map_err(|_| format!("{at} contains no bearer token; write the token alone into the file"))?;
        // Never shown by the library, and not kept in tables of headers.
        value.set_sensitive(true);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_for_each_request_and_errors_show_nothing_of_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("token");
        let file = BearerTokenFile::new(&path);
        let header = || file.header().map(|value| value.to_str().map(str::to_owned).unwrap_or_default());
        assert!(header().is_err_and(|reason| reason.contains("cannot read")));
        for text in ["lhb1_one", " lhb1_two\n", "\r\na.b.c\r\n"] {
            std::fs::write(&path, text).expect("the file is writable");
            assert_eq!(header(), Ok(format!("Bearer {}", text.trim())));
        }
        assert!(!format!("{:?}", file.header()).contains("a.b.c"), "a value is not shown");
        for text in ["", " \n", "two secrets", "secret\nsecond", "s\u{e4}cret", &"secret".repeat(4_000)] {
            std::fs::write(&path, text).expect("the file is writable");
            let reason = header().expect_err("no token");
            assert!(reason.contains("contains no bearer token") && !reason.contains("secret"), "{reason}");
        }
        assert_eq!(file.check().expect_err("no token").exit_code(), 78);
    }
}
