//! What a program holds a lease with.
//!
//! Nothing can be held from here yet. The guard, the renewals, the connection and the recipes come with the client. When to
//! renew and until when a holder may think it holds is decided in [`leasehold_core`] already, so that the simulator will
//! run the very rules that programs run.
