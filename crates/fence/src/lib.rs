//! The check inside a target: what refuses the zombie.
//!
//! Here today is the rule that every fence shares, as the core decides it. The fences themselves (one file and one feature
//! per target) and the suite that all of them pass come with the fences. Until then the rule can be used by hand, in the
//! same step as the write it admits:
//!
//! ```
//! use leasehold_core::token::Number;
//! use leasehold_fence::{Mark, Verdict, admit};
//!
//! let paused = Number::new(33).unwrap();
//! let successor = Number::new(34).unwrap();
//!
//! // The successor's first act is its claim: it raises the mark before it reads.
//! let Verdict::Admitted { mark } = admit(Mark::Armed(paused), successor) else { unreachable!() };
//!
//! // The paused holder wakes up and writes. It still believes that it holds; the target knows better.
//! assert_eq!(admit(Mark::Armed(mark), paused), Verdict::Stale { presented: paused, mark: successor });
//! ```

pub use leasehold_core::fence::{Mark, Verdict, admit};
