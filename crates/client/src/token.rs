//! Fencing tokens with their text, ready to be sent to a target.

use std::fmt;
use std::io::Write;
use std::ops::Deref;

use leasehold_core::token::{Number, TOKEN_BYTES, Token};

/// A fencing token together with its text.
///
/// Present the text with every write: the target's fence compares its number. The value is small and `Copy`; reading the text
/// does not allocate. It dereferences to `str`, so `&token` is accepted wherever a `&str` is expected.
///
/// `Debug` prints only the number, so that the text does not reach a log by accident. `Display` prints the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FencingToken {
    token: Token,
    text: [u8; TOKEN_BYTES],
}

impl FencingToken {
    pub(crate) fn new(token: Token) -> Self {
        let mut text = [0; TOKEN_BYTES];
        write!(&mut text[..], "{token}").expect("every token text has this length");
        Self { token, text }
    }

    pub(crate) fn set_number(&mut self, number: Number) {
        if self.token.number != number {
            *self = Self::new(Token { number, ..self.token });
        }
    }

    /// The text that fences accept.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).expect("a token text is ASCII")
    }

    /// The token's number: a later grant has a higher one.
    pub const fn number(&self) -> Number {
        self.token.number
    }

    /// The parsed token.
    pub const fn parsed(&self) -> Token {
        self.token
    }
}

impl AsRef<str> for FencingToken {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Deref for FencingToken {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<FencingToken> for Token {
    fn from(token: FencingToken) -> Self {
        token.token
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencingToken").field("number", &self.number().get()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::token::{Cluster, Incarnation};

    #[test]
    fn the_text_matches_the_token_and_debug_does_not_print_it() {
        let mut token = Token {
            cluster: Cluster(*b"testing!"),
            incarnation: Incarnation(1),
            resource: [7; 8],
            scope: leasehold_core::token::TokenScope::Slot(0),
            number: Number::FIRST,
        };
        let mut text = FencingToken::new(token);
        assert_eq!(
            (text.as_str(), &*text, text.as_ref()),
            (&*token.to_string(), &*token.to_string(), &*token.to_string())
        );
        assert_eq!(Token::parse(&text), Ok(token));
        token.number = Number::new(34).expect("a number");
        text.set_number(token.number);
        assert_eq!((text.to_string(), Token::from(text)), (token.to_string(), token));
        assert_eq!(format!("{text:?}"), "FencingToken { number: 34, .. }");
    }
}
