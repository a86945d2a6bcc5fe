//! base64url without padding, read strictly: every text that is accepted is the one that would be printed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of `text`, if it is the one spelling of exactly `N` bytes.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    // The engine refuses padding, other alphabets and bits that are left over.
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_spelling() {
        let text = encode(&[0xFB; 64]);
        assert_eq!(text.len(), 86);
        assert_eq!(decode::<64>(&text), Some([0xFB; 64]));
        let last = text.chars().last().expect("86 characters");
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ \n".chars() {
            let changed = format!("{}{other}", &text[..85]);
            assert_eq!(decode::<64>(&changed) == Some([0xFB; 64]), other == last, "{changed}");
        }
        for changed in [format!("{text}=="), format!(" {text}"), format!("{text}\n"), text[..85].to_owned()] {
            assert_eq!(decode::<64>(&changed), None, "{changed}");
        }
        assert_eq!(decode::<64>(&text.replace('-', "+").replace('_', "/")), None);
    }
}
