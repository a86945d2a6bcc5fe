package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** The session of a client, and the leases that it carries. */
final class Session {
    final String id;
    final String secret;
    final String holder;
    final long ttlMillis;
    final ActorNames actors = new ActorNames();
    /** Acquires whose outcome this client does not know yet. Their leases exist at the server before they are in the table. */
    final AtomicInteger pendingAcquires = new AtomicInteger();

    private final Map<String, Lease> leases = new ConcurrentHashMap<>();
    private final Set<Lease> watched = ConcurrentHashMap.newKeySet();
    private final AtomicLong sequence = new AtomicLong();
    private volatile long deadline;
    private volatile long lastSent;
    private volatile long span;
    private volatile Loss end;

    Session(String id, String secret, String holder, long ttlMillis, long sent, long remainingMillis) {
        this.id = id;
        this.secret = secret;
        this.holder = holder;
        this.ttlMillis = ttlMillis;
        span = ttlMillis;
        renewed(sent, remainingMillis);
    }

    /** The local deadline of everything that lives as long as the session. */
    long deadline() {
        return deadline;
    }

    /** Time of the clock from which the last successful renewal counts. */
    long lastSent() {
        return lastSent;
    }

    void renewed(long sent, long remainingMillis) {
        // More than the requested ttl is a fault of the server, and must not become an unbounded lease.
        long until = sent + ClockDrift.shrink(Math.min(remainingMillis, ttlMillis));
        lastSent = sent;
        deadline = until;
    }

    /** Time between two renewals: a third of the shortest time that a lease may be without contact. */
    long renewEveryNanos() {
        return span * 1_000_000 / 3;
    }

    boolean hasEnded() {
        return end != null;
    }

    Loss end() {
        return end;
    }

    /** Ends the session and everything that it carries. */
    void end(Loss loss) {
        end = loss;
        leases.values().forEach(lease -> lease.lose(loss));
        leases.clear();
        watched.clear();
    }

    void add(Lease lease) {
        leases.put(lease.id(), lease);
        if (lease.needsWatch()) {
            watched.add(lease);
        }
        span = Math.min(span, lease.silenceLimitMillis());
        if (end != null) {
            leases.remove(lease.id());
            lease.lose(end);
        }
    }

    void remove(Lease lease) {
        leases.remove(lease.id(), lease);
        watched.remove(lease);
    }

    /** A lease with a deadline of its own: all others share that of the session, so that many leases cost nothing. */
    void watch(Lease lease) {
        watched.add(lease);
    }

    Collection<Lease> watched() {
        return watched;
    }

    /** Before this time no lease without a deadline of its own is suspended. */
    long earliestDeadline() {
        return Math.min(deadline, lastSent + ClockDrift.shrink(span));
    }

    Collection<Lease> leases() {
        return leases.values();
    }

    Lease lease(String leaseId) {
        return leases.get(leaseId);
    }

    long nextSequence() {
        return sequence.incrementAndGet();
    }

    /** An idempotency key: the server answers a repeated request with the stored reply. */
    String nextKey() {
        return id + ":" + nextSequence();
    }

    ApiRequest authorize(ApiRequest request) {
        return request.header("Session-Secret", secret);
    }

    String path(String verb) {
        return "/v1/sessions/" + id + ":" + verb;
    }
}
