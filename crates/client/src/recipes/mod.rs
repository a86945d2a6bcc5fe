//! Leases shaped for a purpose, one small file each. `docs/recipes.md` says what each promises and what it does not.

pub mod cache;
pub mod pin;
pub mod session;
