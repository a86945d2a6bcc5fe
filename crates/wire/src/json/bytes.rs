//! Bytes in JSON: as text, or in base64 where they are not text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold_core::refusal::Refusal;

/// The bytes of a request field with two spellings: text, or base64. `None` if both are absent.
pub(super) fn bytes_of(
    text_field: &'static str,
    base64_field: &'static str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Vec<u8>>, Refusal> {
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => {
            let reason = "must be base64 with the alphabet of RFC 4648 section 4 and its padding";
            STANDARD.decode(base64).map(Some).map_err(|_| Refusal::Invalid { field: base64_field, reason })
        }
        (Some(_), Some(_)) => {
            Err(Refusal::Invalid { field: text_field, reason: "send the text or its base64, not both" })
        }
    }
}

/// Bytes of a reply: always in base64, and as text if they are UTF-8.
pub(super) fn bytes_text(bytes: Vec<u8>) -> (String, Option<String>) {
    (STANDARD.encode(&bytes), String::from_utf8(bytes).ok())
}
