//! Leases shaped for a purpose, one small file each. `docs/recipes.md` says what each promises and what it does not.

pub mod cache;
#[cfg(any(test, feature = "credential"))]
pub mod credential;
pub mod pin;
pub mod session;
