//! The tables `[limits]` and `[[limit]]` of an access file.

use leasehold_core::limits::{
    CACHE_KEYS, CHARTERS, KEY_SESSIONS, LEASES, QUEUE_ITEMS_TOTAL, QUEUE_TOTAL, SESSIONS, STATE_TOTAL, TARGETS, WAITERS,
};
use leasehold_wire::MAX_TRANSPORT_BYTES;
use serde::Deserialize;
use toml::Spanned;

use super::PrincipalLimits;
use crate::transport::BODY_BYTES;

/// Most connections and watches that a limit may allow.
const MAX_STREAMS_OF_ONE: u64 = 1 << 20;
/// Most requests per second that a limit may allow.
const MAX_RATE: u64 = 10_000_000;
/// Most bytes of metadata that a limit may allow.
const MAX_METADATA: u64 = 1 << 40;

macro_rules! limits_text {
    ($($(#[$doc:meta])* $key:ident in $min:expr, $max:expr => |$limits:ident, $value:ident| $set:expr;)*) => {
        /// Limits as they are written; a key that is left out keeps another value.
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct LimitsText {
            /// Only in `[[limit]]`.
            pub principal: Option<Spanned<String>>,
            $($(#[$doc])* $key: Option<Spanned<u64>>,)*
        }

        impl LimitsText {
            /// Whether no key is written.
            pub fn is_empty(&self) -> bool {
                $(self.$key.is_none())&&*
            }

            /// These limits, and `base` where a key is left out. An error has the offset of its value, its key and a message.
            pub fn over(&self, base: &PrincipalLimits) -> Result<PrincipalLimits, (usize, &'static str, String)> {
                let mut limits = *base;
                $(
                    if let Some(value) = &self.$key {
                        let (min, max): (u64, u64) = ($min as u64, $max as u64);
                        if !(min..=max).contains(value.get_ref()) {
                            let message = format!("{} is out of range; use a number from {min} to {max}", value.get_ref());
                            return Err((value.span().start, stringify!($key), message));
                        }
                        let ($limits, $value) = (&mut limits, *value.get_ref());
                        $set;
                    }
                )*
                Ok(limits)
            }
        }
    };
}

limits_text! {
    sessions in 0, SESSIONS => |limits, value| limits.state.sessions = value;
    keys in 0, KEY_SESSIONS => |limits, value| limits.state.keys = value;
    leases in 0, LEASES => |limits, value| limits.state.leases = value;
    waiters in 0, WAITERS => |limits, value| limits.state.waiters = value;
    metadata_bytes in 0, MAX_METADATA => |limits, value| limits.state.metadata_bytes = value;
    charters in 0, CHARTERS => |limits, value| limits.state.charters = value;
    targets in 0, TARGETS => |limits, value| limits.state.targets = value;
    messages in 0, QUEUE_ITEMS_TOTAL => |limits, value| limits.state.messages = value;
    message_bytes in 0, QUEUE_TOTAL => |limits, value| limits.state.message_bytes = value;
    cache_grants in 0, CACHE_KEYS => |limits, value| limits.state.cache_grants = value;
    state_bytes in 0, STATE_TOTAL => |limits, value| limits.state.state_bytes = value;
    connections in 1, MAX_STREAMS_OF_ONE => |limits, value| limits.traffic.connections = value as u32;
    watches in 0, MAX_STREAMS_OF_ONE => |limits, value| limits.traffic.watches = value as u32;
    requests_per_second in 1, MAX_RATE => |limits, value| limits.traffic.requests_per_second = value as u32;
    body_bytes in MAX_TRANSPORT_BYTES, BODY_BYTES => |limits, value| limits.traffic.body_bytes = value;
}
