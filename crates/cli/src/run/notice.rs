//! How a command tells its wrapper how far it is: datagrams of `KEY=value` lines, as service managers take them.

use std::io;
use std::path::Path;

use tokio::net::UnixDatagram;

/// No notice is longer.
const LONGEST: usize = 4_096;

/// Where notices come in.
pub struct Notices(UnixDatagram);

impl Notices {
    pub fn at(path: &Path) -> io::Result<Self> {
        UnixDatagram::bind(path).map(Self)
    }

    /// How far the command is, by its next notice that says so. Nothing is lost if this is dropped before it returns.
    pub async fn progress(&self) -> Result<u64, String> {
        let mut bytes = [0; LONGEST];
        loop {
            let length = self.0.recv(&mut bytes).await.map_err(|error| error.to_string())?;
            if let Some(told) = read(&bytes[..length]) {
                return told;
            }
        }
    }
}

/// The last progress in a notice; none if it is about something else. Other keys are for other readers.
fn read(bytes: &[u8]) -> Option<Result<u64, String>> {
    let text = String::from_utf8_lossy(bytes);
    let told = text.lines().filter_map(|line| line.strip_prefix("PROGRESS=")).next_back()?;
    let plain = !told.is_empty() && told.bytes().all(|byte| byte.is_ascii_digit());
    let number = plain.then(|| told.parse().ok()).flatten();
    Some(number.ok_or_else(|| "PROGRESS is not a whole number below 2^64; write PROGRESS=42".to_owned()))
}

/// The notice of this progress.
pub fn of(progress: u64) -> String {
    format!("PROGRESS={progress}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_progress_counts_and_other_keys_are_left_to_others() {
        for (bytes, told) in [
            (&b"PROGRESS=7"[..], Some(Some(7))),
            (b"PROGRESS=7\n", Some(Some(7))),
            (b"READY=1\nPROGRESS=7\nSTATUS=x\nPROGRESS=18446744073709551615", Some(Some(u64::MAX))),
            (b"READY=1\nSTATUS=PROGRESS=7", None),
            (b"", None),
            (b"\xff\xfe\nPROGRESS=3", Some(Some(3))),
            (b"PROGRESS=", Some(None)),
            (b"PROGRESS=-1", Some(None)),
            (b"PROGRESS=+1", Some(None)),
            (b"PROGRESS= 1", Some(None)),
            (b"PROGRESS=1e3", Some(None)),
            (b"PROGRESS=18446744073709551616", Some(None)),
        ] {
            assert_eq!(read(bytes).map(Result::ok), told, "{bytes:?}");
        }
        assert_eq!(read(of(12).as_bytes()), Some(Ok(12)));
    }
}
