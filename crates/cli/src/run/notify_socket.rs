//! Socket on which a command reports progress to its wrapper: datagrams of `KEY=value` lines, as in `sd_notify`.

use std::io;
use std::path::Path;

use tokio::net::UnixDatagram;

/// Maximum size of a notification in bytes.
const MAX_DATAGRAM: usize = 4_096;

/// Receiving end of the notification socket.
pub struct NotifySocket(UnixDatagram);

impl NotifySocket {
    pub fn bind(path: &Path) -> io::Result<Self> {
        UnixDatagram::bind(path).map(Self)
    }

    /// Waits for the next notification with a progress value. Cancel-safe.
    pub async fn progress(&self) -> Result<u64, String> {
        let mut bytes = [0; MAX_DATAGRAM];
        loop {
            let length = self.0.recv(&mut bytes).await.map_err(|error| error.to_string())?;
            if let Some(value) = parse_progress(&bytes[..length]) {
                return value;
            }
        }
    }
}

/// Parses the last `PROGRESS` of a notification; `None` if it has none. Other keys are ignored.
fn parse_progress(bytes: &[u8]) -> Option<Result<u64, String>> {
    let text = String::from_utf8_lossy(bytes);
    let value = text.lines().filter_map(|line| line.strip_prefix("PROGRESS=")).next_back()?;
    let digits_only = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits_only.then(|| value.parse().ok()).flatten();
    Some(number.ok_or_else(|| "PROGRESS is not a whole number below 2^64; write PROGRESS=42".to_owned()))
}

/// Encodes a progress notification.
pub fn message(progress: u64) -> String {
    format!("PROGRESS={progress}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_progress_counts_and_other_keys_are_ignored() {
        for (bytes, value) in [
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
            assert_eq!(parse_progress(bytes).map(Result::ok), value, "{bytes:?}");
        }
        assert_eq!(parse_progress(message(12).as_bytes()), Some(Ok(12)));
    }
}
