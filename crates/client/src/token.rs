//! Fencing tokens with their text, ready to be sent to a target.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use leasehold_core::token::{Number, SEALED_TOKEN_BYTES, Token, TokenError};

/// A fencing token together with its text.
///
/// Present the text with every write: the target's fence compares its number. The value is small and `Copy`; reading the text
/// does not allocate. It dereferences to `str`, so `&token` is accepted wherever a `&str` is expected.
///
/// The text is sealed (`lh2-…`) if the server signs tokens, and plain (`lh1-…`) otherwise. A token that is parsed from its text
/// keeps it, with its seal; one that is made of a [`Token`] is plain.
///
/// `Debug` prints only the number, so that the text does not reach a log by accident. `Display` prints the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FencingToken {
    token: Token,
    /// The text, followed by zeros.
    text: [u8; SEALED_TOKEN_BYTES],
    length: u8,
}

const _: () = assert!(SEALED_TOKEN_BYTES <= u8::MAX as usize, "the length of every text fits");

impl FencingToken {
    pub(crate) fn new(token: Token) -> Self {
        Self::with_text(token, &token.to_string())
    }

    /// Parses a token text, plain or sealed. The seal is not verified: fences do that.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        Token::parse(text).map(|token| Self::with_text(token, text))
    }

    fn with_text(token: Token, text: &str) -> Self {
        let mut bytes = [0; SEALED_TOKEN_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self { token, text: bytes, length: text.len() as u8 }
    }

    /// Takes over a raised number. A sealed token keeps its text and its number until the sealed text of the new one arrives: a
    /// fence admits it as long as nobody has presented the new one.
    pub(crate) fn set_number(&mut self, number: Number) {
        if self.token.number != number && !self.is_sealed() {
            *self = Self::new(Token { number, ..self.token });
        }
    }

    /// Whether the text carries a seal.
    pub fn is_sealed(&self) -> bool {
        usize::from(self.length) == SEALED_TOKEN_BYTES
    }

    /// The text that fences accept.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.length)]).expect("a token text is ASCII")
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

/// Makes the plain text of a token.
impl From<Token> for FencingToken {
    fn from(token: Token) -> Self {
        Self::new(token)
    }
}

impl FromStr for FencingToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        Self::parse(text)
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

    #[test]
    fn a_sealed_token_keeps_its_text_until_another_one_arrives() {
        let sealed = "lh2-00c0ffee00c0ffee-0badcafe-71b258e669a497cf-w00000003-0258755447193600007-0c349504-\
                      kOpF5pEsdkxXqO1HJJ2krawl28cEbVj7fyZEpu3v2IViPzcz91SRh2ffR05-k1b7kpwiKXYz3570kRXJr9ZACw";
        let mut token = FencingToken::parse(sealed).expect("a sealed text");
        assert!(token.is_sealed());
        assert_eq!((token.as_str(), token.number().get()), (sealed, 258_755_447_193_600_007));
        token.set_number(Number::MAX);
        assert_eq!(token.as_str(), sealed, "nobody but a server makes a seal");
        assert_eq!(FencingToken::from(token.parsed()).to_string(), token.parsed().to_string());
        assert!(FencingToken::parse(&sealed[..171]).is_err());
    }
}
