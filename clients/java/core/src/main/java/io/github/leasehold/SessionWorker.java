package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import io.github.leasehold.internal.http.Cancellation;
import io.github.leasehold.internal.json.Json;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongConsumer;

/**
 * Keeps the session and its leases renewed, from a daemon platform thread that runs nothing else and uses connections of its own: nothing
 * in the program can block it. A second thread watches the local deadlines, so that a slow renewal does not delay their report.
 */
final class SessionWorker {
    /** Timers stop while the machine is suspended and the clock does not, so sleeping threads read the clock this often. */
    private static final long CHECK_EVERY_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final int BATCH = 1_000;
    private static final long MAX_ATTEMPT_MILLIS = 5_000;

    private final ClientSettings settings;
    private final Servers servers;
    private final HolderClock clock;
    private final Callbacks callbacks;
    private final Set<Lease> asked = ConcurrentHashMap.newKeySet();
    private final Cancellation stop = new Cancellation();
    private final Thread renewals;
    private final Thread deadlines;
    private final SessionEvents events;
    private volatile Session session;
    private volatile LongConsumer onRenewed = sent -> { };
    private volatile boolean askAll;
    private volatile long nextAttempt;

    SessionWorker(ClientSettings settings, Servers servers, Callbacks callbacks) {
        this.settings = settings;
        this.servers = servers;
        this.callbacks = callbacks;
        clock = settings.clock();
        renewals = ClientThreads.daemon(this::renewLoop, "leasehold-renewal");
        deadlines = ClientThreads.daemon(this::deadlineLoop, "leasehold-deadlines");
        events = new SessionEvents(this, servers);
    }

    /** The current session, or null. */
    Session session() {
        Session current = session;
        return current == null || current.hasEnded() ? null : current;
    }

    /** Called after each renewal of the session, with the time of {@link System#nanoTime} before it was sent. */
    void onRenewed(LongConsumer action) {
        onRenewed = action;
    }

    boolean isStopped() {
        return stop.isCanceled();
    }

    /** Starts to renew a session that was opened. Without its threads, which a full process may refuse, nothing is held. */
    synchronized void adopt(Session opened) {
        for (Thread thread : List.of(renewals, deadlines)) {
            if (thread.getState() == Thread.State.NEW) {
                thread.start();
            }
        }
        nextAttempt = opened.lastSent() + jittered(opened.renewEveryNanos());
        session = opened;
        LockSupport.unpark(renewals);
        LockSupport.unpark(deadlines);
        events.follow();
    }

    /** Asks the server about a lease as soon as possible. */
    void ask(Lease lease) {
        asked.add(lease);
        LockSupport.unpark(renewals);
    }

    /** Asks about every lease: events may have been missed. */
    void askAll() {
        askAll = true;
        LockSupport.unpark(renewals);
    }

    /** A lease with a time of its own was added, or the interval became shorter. */
    void reschedule() {
        Session current = session();
        if (current != null) {
            nextAttempt = Math.min(nextAttempt, current.lastSent() + jittered(current.renewEveryNanos()));
        }
        LockSupport.unpark(renewals);
    }

    /** Another server answers than before: the stream of events moves to it. */
    void leftServer() {
        events.disconnect();
    }

    void stop() {
        stop.cancel();
        events.stop();
        LockSupport.unpark(renewals);
        LockSupport.unpark(deadlines);
    }

    private void renewLoop() {
        while (!isStopped()) {
            long pause = CHECK_EVERY_NANOS;
            Session current = session();
            if (current == null) {
                // What was asked about ended with its session.
                asked.removeIf(Lease::hasEnded);
                askAll = false;
            } else {
                settings.renewalExecutor().execute(() -> renewDue(current));
                boolean hasMore = askAll || !asked.isEmpty();
                pause = hasMore ? 0 : Math.min(pause, Math.max(1, nextAttempt - clock.nanos()));
            }
            if (pause > 0) {
                LockSupport.parkNanos(pause);
            }
            Thread.interrupted();
        }
    }

    /** One pass: the session if it is due, leases with a time of their own, and leases that an event named. */
    private void renewDue(Session current) {
        try {
            long now = clock.nanos();
            if (now >= nextAttempt) {
                boolean renewed = renewSession(current);
                long pause = renewed ? current.renewEveryNanos() : TimeUnit.MILLISECONDS.toNanos(Math.min(500, current.ttlMillis / 20));
                nextAttempt = (renewed ? current.lastSent() : clock.nanos()) + jittered(pause);
            }
            Set<Lease> due = takeDue(current, now);
            if (!due.isEmpty() && !renewLeases(current, due)) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
                asked.addAll(due);
            }
        } catch (CancellationException closing) {
            // Only the end of the client cancels a renewal.
        } catch (Throwable unexpected) {
            survive("a renewal failed", unexpected);
        }
    }

    /** Leases to ask about in this pass. What is asked for from now on is left for the next one. */
    private Set<Lease> takeDue(Session current, long now) {
        Set<Lease> due = new HashSet<>();
        if (askAll) {
            askAll = false;
            due.addAll(current.leases());
        }
        asked.removeIf(lease -> {
            if (!lease.hasEnded()) {
                due.add(lease);
            }
            return true;
        });
        for (Lease lease : current.watched()) {
            if (lease.isTimedAlone() && now - lease.ownSent() >= lease.silenceLimitMillis() * 1_000_000 / 3) {
                due.add(lease);
            }
        }
        return due;
    }

    /** The loops must survive everything, also an error of the virtual machine: without them all leases end. */
    private static void survive(String what, Throwable failed) {
        try {
            System.getLogger("io.github.leasehold").log(System.Logger.Level.ERROR, what, failed);
        } catch (Throwable logging) {
            // There may be no memory for the message.
        }
        LockSupport.parkNanos(CHECK_EVERY_NANOS);
    }

    private boolean renewSession(Session current) {
        List<Lease> known = new ArrayList<>(current.leases());
        long digest = 0;
        for (Lease lease : known) {
            digest ^= lease.tokenNumber();
        }
        Map<String, Object> held = Body.map("count", known.size(), "digest", Long.toUnsignedString(digest));
        ApiRequest request = current.authorize(ApiRequest.post(current.path("renew"), Body.object("held", held)));
        try {
            long sent = System.nanoTime();
            Servers.Reply reply = send(current, request);
            onRenewed.accept(sent);
            long remaining = Body.requireNumber(reply.body(), "remaining_ms");
            long counted = settings.countFrom(reply.sent(), clock.nanos());
            boolean mismatch = Json.isTrue(reply.body(), "mismatch");
            // Without the stream of events only this asks whether a lease is drained.
            if ((mismatch || !events.isConnected()) && !known.isEmpty() && !renewLeases(current, known)) {
                return false;
            }
            if (mismatch && current.pendingAcquires.get() == 0) {
                reconcile(current);
            }
            current.renewed(counted, remaining);
            long now = clock.nanos();
            current.leases().forEach(lease -> lease.observe(now));
            return true;
        } catch (LeaseholdException failed) {
            if (isSessionEnd(failed)) {
                current.end(Loss.SESSION_ENDED);
                return true;
            }
            return false;
        }
    }

    /** Renews leases in batches and applies each result. Returns false if no server answered. */
    private boolean renewLeases(Session current, Collection<Lease> leases) {
        List<Lease> all = List.copyOf(leases);
        for (int from = 0; from < all.size(); from += BATCH) {
            List<Lease> part = all.subList(from, Math.min(all.size(), from + BATCH));
            List<Map<String, Object>> named = part.stream()
                    .map(lease -> Body.map("lease", lease.id(), "token_number", Long.toString(lease.tokenNumber())))
                    .toList();
            ApiRequest request = ApiRequest.post("/v1/leases:renew", Body.object("session", current.id, "leases", named));
            Servers.Reply reply;
            try {
                reply = send(current, current.authorize(request));
            } catch (LeaseholdException failed) {
                if (isSessionEnd(failed)) {
                    current.end(Loss.SESSION_ENDED);
                    return true;
                }
                return false;
            }
            List<Map<String, Object>> results = Json.objects(reply.body(), "results");
            long counted = settings.countFrom(reply.sent(), clock.nanos());
            for (int index = 0; index < Math.min(results.size(), part.size()); index++) {
                apply(part.get(index), counted, results.get(index));
            }
        }
        return true;
    }

    private static void apply(Lease lease, long sent, Map<String, Object> result) {
        String code = Json.text(result, "code").orElse("");
        switch (code) {
            case "" -> lease.renewed(sent, result);
            case "LEASE_LOST" -> lease.lose(new Loss(Json.text(result, "state").orElse("expired"), Json.text(result, "reason").orElse("unknown")));
            case "NOT_CURRENT" -> lease.lose(new Loss("not_current", Json.text(result, "reason").orElse("unknown")));
            default -> { }
        }
    }

    /** Lists the leases that this client knows. The server ends others that were granted to it, so that none is orphaned. */
    private void reconcile(Session current) {
        List<String> ids = current.leases().stream().map(Lease::id).sorted(Comparator.comparingLong(SessionWorker::slot)
                .thenComparingLong(SessionWorker::reuse)).toList();
        if (ids.size() <= BATCH) {
            send(current, current.authorize(ApiRequest.post(current.path("reconcile"), Body.object("leases", ids))));
            return;
        }
        for (int from = 0; from < ids.size(); from += BATCH) {
            int until = Math.min(ids.size(), from + BATCH);
            String body = Body.object(
                    "leases", ids.subList(from, until), "from", from == 0 ? null : ids.get(from), "until", until == ids.size() ? null : ids.get(until));
            send(current, current.authorize(ApiRequest.post(current.path("reconcile"), body)));
        }
    }

    private static long slot(String id) {
        return Long.parseLong(id.substring(0, id.indexOf('.')));
    }

    private static long reuse(String id) {
        return Long.parseLong(id.substring(id.indexOf('.') + 1));
    }

    private Servers.Reply send(Session current, ApiRequest request) {
        long attempt = attemptMillis(current.ttlMillis);
        return servers.send(request, attempt * settings.servers().size(), attempt, stop);
    }

    /** Short timeouts: a server that does not answer must leave time for the others before the deadline. */
    static long attemptMillis(long ttlMillis) {
        return Math.max(50, Math.min(MAX_ATTEMPT_MILLIS, ttlMillis / 6));
    }

    static boolean isSessionEnd(LeaseholdException failed) {
        return failed.field("reason").filter("session"::equals).isPresent() && failed.code().equals("LEASE_LOST")
                || failed.field("subject").filter("session"::equals).isPresent() && failed.code().equals("NOT_FOUND");
    }

    private void deadlineLoop() {
        while (!isStopped()) {
            try {
                callbacks.retryPostponed();
                long next = checkDeadlines(clock.nanos());
                LockSupport.parkNanos(Math.max(1_000_000, next - clock.nanos()));
                Thread.interrupted();
            } catch (Throwable unexpected) {
                survive("a check of deadlines failed", unexpected);
            }
        }
    }

    /** Reports what has changed, and returns when to check again. */
    private long checkDeadlines(long now) {
        long next = now + CHECK_EVERY_NANOS;
        Session current = session();
        if (current == null) {
            return next;
        }
        boolean allPassed = now >= current.earliestDeadline();
        for (Lease lease : allPassed ? current.leases() : current.watched()) {
            if (lease.observe(now) == LeaseState.HELD) {
                next = Math.min(next, lease.deadline());
            }
            next = Math.min(next, lease.claimFrom());
        }
        return Math.min(next, Math.max(current.earliestDeadline(), now + CHECK_EVERY_NANOS / 10));
    }

    private static long jittered(long nanos) {
        return nanos - ThreadLocalRandom.current().nextLong(nanos / 10 + 1);
    }
}
