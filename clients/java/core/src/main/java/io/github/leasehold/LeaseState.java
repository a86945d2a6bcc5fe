package io.github.leasehold;

/** State of a lease, as its holder knows it. */
public enum LeaseState {
    /** The holder may act until the local deadline. */
    HELD,
    /** The local deadline passed before a renewal succeeded. A renewal of the same token makes the lease held again. */
    SUSPENDED,
    /** The lease has ended. */
    LOST
}
