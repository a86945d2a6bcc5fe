//! The suite itself: it passes a right fence, and catches each wrong one by the promise that it breaks.

mod shelf;
mod trials;
