//! Body of the small state of a resource.

use serde::{Deserialize, Serialize};

use super::bytes::bytes_text;
use crate::v1;

/// One page of small state, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateBody {
    /// Stored values. To page, pass the last key as `after` until the list is empty.
    pub entries: Vec<StateEntryBody>,
}

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateEntryBody {
    /// The key.
    pub key: String,
    /// The value in base64.
    pub value_base64: String,
    /// The value as text, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Rises with every write to the resource.
    pub revision: String,
    /// Token number of the lease under which the value was written.
    pub token_number: String,
}

impl From<v1::StateList> for StateBody {
    fn from(from: v1::StateList) -> Self {
        let entry = |from: v1::StateEntry| {
            let (value_base64, value) = bytes_text(from.value);
            StateEntryBody {
                key: from.key,
                value_base64,
                value,
                revision: from.revision.to_string(),
                token_number: from.token_number.to_string(),
            }
        };
        Self { entries: from.entries.into_iter().map(entry).collect() }
    }
}
