package io.github.leasehold;

import java.time.Duration;

/** An instance of a service to register. Immutable; nothing is sent before {@link #register}. */
public final class ServiceRegistration {
    private final LeaseholdClient client;
    private final String resource;
    private final AcquireOptions options;

    ServiceRegistration(LeaseholdClient client, String resource, AcquireOptions options) {
        this.client = client;
        this.resource = resource;
        this.options = options;
    }

    /**
     * Attaches text for clients of the service, for example an address and a version.
     *
     * @param text at most 4,096 bytes
     * @return a copy
     */
    public ServiceRegistration details(String text) {
        return new ServiceRegistration(client, resource, options.metadata(text));
    }

    /**
     * Limits how long an instance that died is still listed.
     *
     * @param ttl ttl of the registration; by default that of the session
     * @return a copy
     */
    public ServiceRegistration ttl(Duration ttl) {
        return new ServiceRegistration(client, resource, options.ttl(ttl));
    }

    /**
     * Waits for an earlier instance of the same name to end.
     *
     * @param wait the longest wait
     * @return a copy
     */
    public ServiceRegistration wait(Duration wait) {
        return new ServiceRegistration(client, resource, options.wait(wait));
    }

    /**
     * Registers the instance. Two instances never have the same name.
     *
     * @return the registration; it ends when it is closed, or with the client
     * @throws BusyException if the name is in use
     * @throws InterruptedException if the thread is interrupted
     */
    public Lease register() throws InterruptedException {
        return client.acquire(resource, options);
    }
}
