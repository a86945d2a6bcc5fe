package io.github.leasehold;

import java.time.Duration;

/** Leader election: one of all clients that campaign for a resource leads at a time, and presents its token with every write. */
public final class LeaderElection {
    /** One long poll of a campaign. */
    private static final Duration ROUND = Duration.ofMinutes(1);
    private static final long RETRY_MILLIS = 500;

    private final LeaseholdClient client;
    private final String resource;
    private final AcquireOptions options;

    LeaderElection(LeaseholdClient client, String resource, AcquireOptions options) {
        this.client = client;
        this.resource = resource;
        this.options = options;
    }

    /**
     * Changes how leadership is acquired.
     *
     * @param options ttl, priority and more; a wait is ignored, because a candidate waits until it leads
     * @return an election with these options
     */
    public LeaderElection options(AcquireOptions options) {
        return new LeaderElection(client, resource, options);
    }

    /**
     * Waits until this client leads, also while no server is reachable.
     *
     * @return the leadership; close it to resign
     * @throws InterruptedException if the thread is interrupted; the candidacy is then withdrawn
     */
    public Lease campaign() throws InterruptedException {
        while (true) {
            try {
                return client.acquire(resource, options.wait(ROUND));
            } catch (WaitTimeoutException another) {
                continue;
            } catch (OutcomeUnknownException unknown) {
                try {
                    return unknown.resolve(ROUND);
                } catch (WaitTimeoutException | OutcomeUnknownException | UnavailableException | LeaseLostException again) {
                    Thread.sleep(RETRY_MILLIS);
                }
            } catch (UnavailableException later) {
                Thread.sleep(later.retryAfter().map(Duration::toMillis).orElse(RETRY_MILLIS));
            }
        }
    }

    /**
     * Campaigns and leads, again after every expiry, until the work returns. After a revocation it does not campaign again. To stop, the
     * program interrupts the thread.
     *
     * @param <T> type of the result
     * @param work runs while this client leads; interrupted at the local deadline
     * @return the result of the work
     * @throws LeaseLostException if the leadership was revoked
     * @throws InterruptedException if the thread is interrupted
     * @throws Exception what the work throws
     */
    public <T> T lead(LeaseWork<T> work) throws Exception {
        while (true) {
            try (Lease leadership = campaign()) {
                try {
                    return leadership.run(() -> work.run(leadership));
                } catch (LeaseSuspendedException | LeaseLostException stopped) {
                    // The work may also hold other leases. Their loss is an error of the work.
                    boolean isLeadership = leadership.stoppedFuture().isDone();
                    if (!isLeadership || !leadership.loss().map(Loss::mayAcquireAgain).orElse(true)) {
                        throw stopped;
                    }
                }
            }
        }
    }
}
