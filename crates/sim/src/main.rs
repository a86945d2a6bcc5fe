//! The world in which everything goes wrong, on purpose and from a seed.
//!
//! Nothing is simulated yet. The world, its faults, its checkers and the chaos runs with real processes come with the
//! simulator. What lives here today are the tests over the workspace itself: its arrows and its documents.

use clap::Parser;

/// Will break leases from a seed, to see whether the promises hold. No scenario is there yet: they come with the simulator.
#[derive(Parser)]
#[command(name = "leasehold-sim", version, arg_required_else_help = true)]
struct Args {}

fn main() {
    Args::parse();
}
