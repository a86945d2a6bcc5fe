//! Checks over the whole workspace; they live in `tests/`.
//!
//! - `dependencies.rs`: which crate may depend on which, and what the core must be unable to reach.
//! - `module_cycles.rs`: no two modules of one parent depend on each other.
//! - `type_names.rs`: one type name, one idea.
//! - `words.rs`: the word list over code, strings and pages.
//! - `documents.rs`: links, paths, promises and decision records of the documentation.
