package io.github.leasehold;

/**
 * Work that runs under a lease.
 *
 * @param <T> type of its result
 */
@FunctionalInterface
public interface LeaseWork<T> {
    /**
     * Does the work. The thread is interrupted when the lease is suspended or lost.
     *
     * @param lease the lease, with the token for every write
     * @return the result
     * @throws Exception what went wrong
     */
    T run(Lease lease) throws Exception;
}
