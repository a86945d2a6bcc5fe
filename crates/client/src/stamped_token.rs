//! A token with the stamp that one target verifies, as a server with the stamp key sends it (A8).

use std::fmt;

use leasehold_core::token::Token;
use leasehold_wire::v1;

use crate::{Error, FencingToken};

/// A sealed token with a stamp, for a target that verifies stamps instead of signatures (PostgreSQL). Present it there instead of the
/// token.
#[derive(Clone, PartialEq, Eq)]
pub struct StampedToken {
    target: Box<str>,
    text: Box<str>,
    token: Token,
}

impl StampedToken {
    pub(crate) fn decode(message: &v1::StampedToken) -> Result<Self, Error> {
        let invalid = || Error::invalid_reply("a stamped token without a token and a stamp");
        let (sealed, _) = message.token.split_once('.').ok_or_else(invalid)?;
        let token = FencingToken::parse(sealed).map_err(Error::invalid_reply)?.parsed();
        Ok(Self { target: message.target.as_str().into(), text: message.token.as_str().into(), token })
    }

    /// The stamped tokens of a reply, which must be of one token.
    pub(crate) fn decode_all(messages: &[v1::StampedToken], of: Token) -> Result<Vec<Self>, Error> {
        let stamped = messages.iter().map(Self::decode).collect::<Result<Vec<_>, _>>()?;
        match stamped.iter().all(|stamped| stamped.token == of) {
            true => Ok(stamped),
            false => Err(Error::invalid_reply("a stamped token that does not belong to the lease")),
        }
    }

    /// Name of the target, as the charter declares it.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The text to present.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The token without its stamp.
    pub const fn parsed(&self) -> Token {
        self.token
    }
}

impl AsRef<str> for StampedToken {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// Omits the text, which must not reach a log.
impl fmt::Debug for StampedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StampedToken").field("target", &self.target).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: &str = "lh2-00c0ffee00c0ffee-0badcafe-71b258e669a497cf-w00000003-0258755447193600007-0c349504-\
        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    #[test]
    fn a_stamped_token_belongs_to_its_token_and_is_never_printed() {
        let token = FencingToken::parse(SEALED).expect("a sealed text").parsed();
        let message = |text: String| v1::StampedToken { target: "ledger".into(), token: text };
        let stamped = message(format!("{SEALED}.{}", "ab".repeat(32)));
        let decoded = StampedToken::decode_all(std::slice::from_ref(&stamped), token).expect("of this token");
        assert_eq!((decoded[0].target(), decoded[0].as_str(), decoded[0].parsed()), ("ledger", &*stamped.token, token));
        assert!(!format!("{decoded:?}{stamped:?}").contains("0c349504"));
        let other = Token { number: leasehold_core::token::Number::FIRST, ..token };
        assert!(StampedToken::decode_all(&[stamped], other).is_err());
        for text in [SEALED.to_owned(), "x.y".to_owned(), String::new()] {
            assert!(StampedToken::decode(&message(text)).is_err());
        }
    }
}
