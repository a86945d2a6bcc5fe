//! How leases and sessions are called between requests: a place, and a count that rises with each use of the place.

use std::fmt;
use std::str::FromStr;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The place in its table.
            pub slot: u32,
            /// Higher than that of whoever lived there before.
            pub reuse: u32,
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}", self.slot, self.reuse)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                let (slot, reuse) = text.split_once('.').ok_or(NotAnId)?;
                Ok(Self {
                    slot: plain_number(slot)?,
                    reuse: plain_number(reuse)?,
                })
            }
        }
    };
}

id! {
    /// One hold of one resource, from its grant to its end.
    LeaseId
}

id! {
    /// One session, from its opening to its end.
    SessionId
}

/// Text that is not `place.reuse`, for example `17.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id; it looks like 17.0")
    }
}

impl std::error::Error for NotAnId {}

fn plain_number(text: &str) -> Result<u32, NotAnId> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain { text.parse().map_err(|_| NotAnId) } else { Err(NotAnId) }
}
