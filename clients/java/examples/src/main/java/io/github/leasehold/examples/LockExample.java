package io.github.leasehold.examples;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import java.time.Duration;

/** Holds a lock while it works. Start a server with {@code leasehold serve --ephemeral}, then two of these. */
public final class LockExample {
    private LockExample() {}

    /** Runs the example against the server in {@code LEASEHOLD_ADDR}. */
    public static void main(String[] arguments) throws Exception {
        try (LeaseholdClient client = LeaseholdClient.builder().holder("worker-" + ProcessHandle.current().pid()).build();
                Lease lease = client.acquire("jobs/settle", AcquireOptions.defaults().wait(Duration.ofMinutes(1)))) {
            lease.run(() -> {
                System.out.println("working with token " + lease.token());
                return null;
            });
        }
    }
}
