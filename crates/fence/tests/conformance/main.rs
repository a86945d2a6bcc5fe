//! Tests of the conformance suite: it passes a correct fence, and detects each fault by the promise that it breaks.

mod memory_target;
mod reader_fence;
mod self_test;
