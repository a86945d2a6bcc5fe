//! Refusals as targets report them: a stable reason, and `key=value` pairs in the detail of an error.

use leasehold_core::token::{Number, TokenError};

use leasehold_seal::{Kid, SealError};

use crate::{FenceRefusal, MarkLoss};

/// The detail of an error: words of the form `key=value`, in any order.
#[derive(Clone, Copy, Debug)]
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) struct ErrorDetail<'a>(pub(crate) &'a str);

#[cfg(any(feature = "postgres", feature = "redis"))]
impl<'a> ErrorDetail<'a> {
    /// The value of a key.
    pub(crate) fn text(self, key: &str) -> Option<&'a str> {
        let mut pairs = self.0.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The value of a key as a token number.
    pub(crate) fn number(self, key: &str) -> Option<Number> {
        self.text(key)?.parse().ok().and_then(Number::new)
    }

    /// The version that the target has, or 0 if it is not reported.
    pub(crate) fn version(self) -> u32 {
        self.text("have").and_then(|have| have.parse().ok()).unwrap_or(0)
    }
}

/// The token error with this [`reason`](TokenError::reason).
pub(crate) fn token_error(reason: &str) -> Option<TokenError> {
    Some(match reason {
        "absent" => TokenError::Absent,
        "shape" => TokenError::Shape,
        "checksum" => TokenError::Checksum,
        "zero" => TokenError::Zero,
        "too_large" => TokenError::TooLarge,
        "resource" => TokenError::Resource,
        "shared" => TokenError::Shared,
        "slot" => TokenError::Slot,
        _ => return None,
    })
}

/// The refusal of a sealed fence with this reason; `kid` is the id of the token's key, where it is reported.
pub(crate) fn seal_refusal(reason: &str, kid: Option<&str>) -> Option<FenceRefusal> {
    let kid = kid.and_then(|kid| kid.parse().ok()).unwrap_or(Kid(0));
    Some(match reason {
        "unsealed" => SealError::Unsealed.into(),
        "unknown_key" => SealError::UnknownKey { kid }.into(),
        "ended_key" => SealError::EndedKey { kid, end_ms: 0 }.into(),
        "signature" => SealError::Signature { kid }.into(),
        "not_verified" => FenceRefusal::NotVerified,
        "no_seal_keys" => FenceRefusal::NoSealKeys,
        "stamp" => FenceRefusal::Stamp,
        _ => return None,
    })
}

/// The loss with this [`reason`](crate::FenceRefusal::reason). A mark that was lost in an unknown way cannot be read.
pub(crate) fn mark_loss(reason: &str) -> MarkLoss {
    match reason {
        "missing" => MarkLoss::Missing,
        "moved" => MarkLoss::Moved,
        "lost" => MarkLoss::Declared,
        _ => MarkLoss::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_leads_back_to_its_refusal() {
        for reason in ["absent", "shape", "checksum", "zero", "too_large", "resource", "shared", "slot"] {
            assert_eq!(token_error(reason).map(|error| error.reason()), Some(reason));
        }
        assert_eq!(token_error("other"), None);
        for reason in ["unsealed", "unknown_key", "ended_key", "signature", "not_verified", "no_seal_keys", "stamp"] {
            assert_eq!(seal_refusal(reason, Some("0badcafe")).map(|refusal| refusal.reason()), Some(reason));
        }
        assert_eq!(seal_refusal("shape", None), None);
        for loss in [MarkLoss::Missing, MarkLoss::Unreadable, MarkLoss::Moved, MarkLoss::Declared] {
            assert_eq!(mark_loss(FenceRefusal::MarkLost(loss).reason()), loss);
        }
    }

    #[test]
    #[cfg(any(feature = "postgres", feature = "redis"))]
    fn a_detail_has_pairs_in_any_order() {
        let detail = ErrorDetail("mark=34 and presented=33 have=x");
        assert_eq!((detail.number("presented"), detail.number("mark")), (Number::new(33), Number::new(34)));
        assert_eq!((detail.text("reason"), detail.version()), (None, 0));
    }
}
