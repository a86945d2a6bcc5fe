//! Response body of a success without a result.

use serde::{Deserialize, Serialize};

/// Success without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DoneBody {
    /// Always true.
    pub done: bool,
}
