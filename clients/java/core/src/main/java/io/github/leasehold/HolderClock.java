package io.github.leasehold;

/**
 * The clock that leases are measured with. It must continue while the machine is suspended, so that a lease that expired meanwhile is
 * known to be over at the first check after the wake-up.
 *
 * <p>The default reads {@code /proc/uptime} beside {@link System#nanoTime} on Linux, which includes suspend. On other systems it is
 * {@code System.nanoTime}, which may stop during suspend: a holder may then believe for up to one ttl after the wake-up that it still holds
 * its lease, and only a fence refuses its writes.
 */
@FunctionalInterface
public interface HolderClock {
    /**
     * Time that has passed since an arbitrary moment. It never goes back.
     *
     * @return nanoseconds
     */
    long nanos();

    /**
     * The clock of the machine.
     *
     * @return the default clock
     */
    static HolderClock system() {
        return BootClock.INSTANCE;
    }
}
