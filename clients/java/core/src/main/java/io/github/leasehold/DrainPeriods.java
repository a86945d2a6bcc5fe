package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import io.github.leasehold.internal.http.Cancellation;
import io.github.leasehold.internal.json.Json;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Drain periods of resources, which limit how long a holder without contact may act: a handoff can end the lease after that time, and such
 * a holder does not know. They come from charters; most clusters have none, and then one query a minute is all.
 */
final class DrainPeriods {
    /** The drain period of a resource without a charter. */
    static final long DEFAULT_MILLIS = 30_000;

    private static final long MAX_AGE_NANOS = TimeUnit.MINUTES.toNanos(1);

    private final Servers servers;
    private final long timeoutMillis;
    private final Map<String, Long> byResource = new ConcurrentHashMap<>();
    private volatile boolean hasCharters;
    private volatile long readAt;
    private volatile boolean wasRead;

    DrainPeriods(Servers servers, long timeoutMillis) {
        this.servers = servers;
        this.timeoutMillis = timeoutMillis;
    }

    /** The drain period of a resource; the default if the caller may not read charters. */
    long millis(String resource, Cancellation cancellation) {
        try {
            refresh(cancellation);
            if (!hasCharters) {
                return DEFAULT_MILLIS;
            }
            Long known = byResource.get(resource);
            if (known == null) {
                known = drain(list("/v1/charters?resource=" + Body.encode(resource), cancellation));
                byResource.put(resource, known);
            }
            return known;
        } catch (LeaseholdException unknown) {
            return DEFAULT_MILLIS;
        }
    }

    private void refresh(Cancellation cancellation) {
        long now = System.nanoTime();
        if (wasRead && now - readAt < MAX_AGE_NANOS) {
            return;
        }
        readAt = now;
        wasRead = true;
        hasCharters = !list("/v1/charters?limit=1", cancellation).isEmpty();
        byResource.clear();
    }

    private List<Map<String, Object>> list(String path, Cancellation cancellation) {
        return Json.objects(servers.send(ApiRequest.get(path), timeoutMillis, timeoutMillis, cancellation).body(), "list");
    }

    /** The shortest drain period of the charters that apply. */
    @SuppressWarnings("unchecked")
    private static long drain(List<Map<String, Object>> charters) {
        long shortest = DEFAULT_MILLIS;
        for (Map<String, Object> entry : charters) {
            if (entry.get("charter") instanceof Map<?, ?> charter && charter.get("handoff") instanceof Map<?, ?> handoff) {
                shortest = Math.min(shortest, Json.number((Map<String, Object>) handoff, "drain_ms").orElse(shortest));
            }
        }
        return shortest;
    }
}
