//! Checks over the whole workspace; they live in `tests/`.
//!
//! - `crate_dependencies.rs`: which crate may depend on which, and what the core must be unable to reach.
//! - `module_cycles.rs`: no two modules of one parent depend on each other.
//! - `type_names.rs`: one type name, one idea.
//! - `words.rs`: the word list over code, strings and pages.
//! - `documents.rs`: links, paths, promises and decision records of the documentation.
//! - `supply_chain.rs`: licenses, banned crates, sources and duplicates of dependencies, `NOTICE` and the bill of materials.
//!
//! The binary `leasehold-tidy` prints what a release contains: `sbom`, `notice` and `licenses`; `advisories` compares the dependencies with a copy of the RustSec
//! database.

pub mod advisories;
pub mod bill_of_materials;
pub mod deny_rules;
pub mod license_expression;
pub mod notice;
pub mod third_party;
pub mod vendored;
