//! Owners as records name them: the identity that was granted something, or none for `local`.

use super::{Caller, LOCAL_PRINCIPAL};
use crate::codec::{DecodeError, Reader};
use crate::limits::PRINCIPAL_BYTES;
use crate::refusal::Refusal;

/// The number of the owner `local`, of everything that was granted without an identity.
pub(crate) const LOCAL_OWNER: u32 = 0;

/// The identity of a caller as it is recorded as an owner: `None` for `local`.
pub(crate) fn recorded_owner<'a>(caller: &Caller<'a>) -> Result<Option<&'a str>, Refusal> {
    check_principal(caller)?;
    Ok((caller.principal != LOCAL_PRINCIPAL).then_some(caller.principal))
}

/// Fails unless the identity of a caller can be recorded.
#[inline]
pub(crate) fn check_principal(caller: &Caller<'_>) -> Result<(), Refusal> {
    if (1..=PRINCIPAL_BYTES).contains(&caller.principal.len()) {
        Ok(())
    } else {
        Err(Refusal::Invalid { field: "identity", reason: "from 1 to 2048 bytes; use another certificate" })
    }
}

/// A recorded owner: an identity of valid length other than `local`, which is recorded as none.
pub(crate) fn decode_owner<'a>(from: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    match from.text()? {
        owner if owner.is_empty() || owner.len() > PRINCIPAL_BYTES => Err(from.wrong("an identity of a wrong length")),
        LOCAL_PRINCIPAL => Err(from.wrong("an owner that is recorded as none")),
        owner => Ok(owner),
    }
}
