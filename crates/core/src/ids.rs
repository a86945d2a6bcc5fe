//! Ids of leases and sessions: a table slot, and a count that rises with each reuse of the slot.

use std::fmt;
use std::str::FromStr;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The slot in its table.
            pub slot: u32,
            /// Counts the uses of the slot, so that an id is never reused.
            pub reuse: u32,
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}", self.slot, self.reuse)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let (slot, reuse) = text.split_once('.').ok_or(ParseIdError)?;
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

/// Text that is not of the form `slot.reuse`, for example `17.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseIdError;

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id; an id looks like 17.0")
    }
}

impl std::error::Error for ParseIdError {}

fn plain_number(text: &str) -> Result<u32, ParseIdError> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain { text.parse().map_err(|_| ParseIdError) } else { Err(ParseIdError) }
}
