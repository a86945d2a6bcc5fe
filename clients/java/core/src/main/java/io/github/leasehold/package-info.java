/**
 * Client of Leasehold: leases with fencing tokens.
 *
 * <p>Start with {@link io.github.leasehold.LeaseholdClient}. A {@link io.github.leasehold.Lease} makes one process the holder of a resource
 * for a limited time. The holder presents the fencing token with every write, and the target refuses a token that is older than one it has
 * seen: so a holder that was paused, partitioned or suspended cannot damage what its successor writes.
 */
package io.github.leasehold;
