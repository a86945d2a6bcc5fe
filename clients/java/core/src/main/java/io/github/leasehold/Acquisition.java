package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import io.github.leasehold.internal.http.Cancellation;
import io.github.leasehold.internal.json.Json;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * One acquire, of one lease or of several. It has a key of the session, so that a lost reply is resolved by sending the same body again,
 * and a canceled one is withdrawn by its number.
 */
final class Acquisition {
    private static final int ABANDON_ATTEMPTS = 10;
    private static final long WITHDRAW_MILLIS = 1_000;

    private final LeaseholdClient client;
    private final String resource;
    private final List<ResourceAccess> several;
    private final AcquireOptions options;
    private Session session;
    private int actor;
    private long sequence;
    private String path;
    private String body;
    private long sent;
    private volatile boolean decided;

    private Acquisition(LeaseholdClient client, String resource, List<ResourceAccess> several, AcquireOptions options) {
        this.client = client;
        this.resource = resource;
        this.several = several;
        this.options = options;
    }

    static Acquisition ofOne(LeaseholdClient client, String resource, AcquireOptions options) {
        return new Acquisition(client, resource, null, options);
    }

    static Acquisition ofSeveral(LeaseholdClient client, List<ResourceAccess> resources, AcquireOptions options) {
        return new Acquisition(client, null, resources, options);
    }

    List<Lease> run(Cancellation cancellation) {
        try {
            return attempt(cancellation);
        } catch (LeaseholdException refused) {
            if (!SessionWorker.isSessionEnd(refused)) {
                throw refused;
            }
            // The session ended before the renewal thread noticed; what this request may have been granted ended with it.
            session.end(Loss.SESSION_ENDED);
            return attempt(cancellation);
        }
    }

    private List<Lease> attempt(Cancellation cancellation) {
        prepare(cancellation);
        session.pendingAcquires.incrementAndGet();
        // A cancel of the program does not end the exchange: the server is asked to withdraw the wait, and its reply then arrives here.
        Cancellation exchange = new Cancellation();
        Runnable withdraw = () -> client.withdraw(this::withdraw);
        boolean keepsActor = false;
        client.endWithClient(exchange);
        cancellation.onCancel(withdraw);
        try {
            List<Lease> leases = send(timeoutMillis(), exchange);
            keepsActor = true;
            return leases;
        } catch (OutcomeUnknownException unknown) {
            keepsActor = true;
            if (cancellation.isCanceled()) {
                abandon();
            }
            throw resolvable(unknown);
        } finally {
            decided = true;
            cancellation.remove(withdraw);
            client.hasEnded(exchange);
            session.pendingAcquires.decrementAndGet();
            if (!keepsActor) {
                session.actors.release(actor);
            }
        }
    }

    private void prepare(Cancellation cancellation) {
        session = client.session(cancellation);
        actor = session.actors.take();
        sequence = session.nextSequence();
        String holder = options.holder != null ? options.holder : ActorNames.name(actor, session.holder);
        Map<String, Object> fields = options.body(holder, session.id);
        if (several != null) {
            fields.put("resources", several.stream().map(ResourceAccess::body).toList());
            path = "/v1/leases:acquire_all";
        } else {
            fields.putAll(options.access());
            path = "/v1/leases/" + Body.path(resource) + ":acquire";
        }
        body = Json.write(fields);
        sent = client.clock().nanos();
    }

    private ApiRequest request() {
        return session.authorize(ApiRequest.post(path, body)).header("Idempotency-Key", session.id + ":" + sequence);
    }

    private long timeoutMillis() {
        return options.timeout != null ? options.timeout.toMillis() : attemptMillis();
    }

    /** One long poll: the wait, and time for the reply. */
    private long attemptMillis() {
        return options.wait.toMillis() + client.requestMillis();
    }

    private List<Lease> send(long timeoutMillis, Cancellation cancellation) {
        Servers.Reply reply = client.servers().send(request(), timeoutMillis, attemptMillis(), cancellation);
        long received = client.clock().nanos();
        List<Map<String, Object>> grants = several != null ? Json.objects(reply.body(), "grants") : List.of(reply.body());
        if (several != null && grants.size() != several.size()) {
            throw Body.invalidReply(grants.size() + " grants for " + several.size() + " resources", null);
        }
        // A repeated request may have been granted by its first attempt, so only the time before that one is proven.
        long counted = client.settings().countFrom(sent, received);
        List<Lease> leases = new ArrayList<>();
        for (Map<String, Object> grant : grants) {
            String granted = Body.require(grant, "resource");
            if (!Json.text(grant, "state").orElse("held").equals("held") || grant.get("reason") instanceof String) {
                Loss ended = new Loss(Json.text(grant, "state").orElse("expired"), Json.text(grant, "reason").orElse("unknown"));
                throw ended.toException(granted);
            }
            if (!leases.isEmpty()) {
                session.actors.share(actor);
            }
            leases.add(new Lease(client, session, actor, options, grant, new Lease.Timing(counted, received)));
        }
        leases.forEach(session::add);
        for (Lease lease : leases) {
            if (lease.isTimedAlone()) {
                // After a wait the deadline can be close or past, because it counts from before the wait.
                if (received - sent > lease.ttlMillis() * 1_000_000 / 6) {
                    lease.check();
                }
            }
        }
        client.worker().reschedule();
        return leases;
    }

    private OutcomeUnknownException resolvable(OutcomeUnknownException unknown) {
        PendingOutcome<Object> pending = timeout -> {
            try {
                List<Lease> leases = LeaseholdClient.awaitOrCancel(
                        client.submit(cancellation -> send(timeout.toMillis(), cancellation), granted -> granted.forEach(Lease::releaseAsync)));
                return several != null ? leases : leases.get(0);
            } catch (OutcomeUnknownException again) {
                throw resolvable(again);
            }
        };
        Problem problem = new Problem("INDETERMINATE", unknown.detail(), "Call resolve, which returns the outcome of this request.",
                Map.of("request_id", session.id + ":" + sequence), unknown);
        return new OutcomeUnknownException(problem, pending);
    }

    /** Asks the server once to withdraw the wait. It does not know a wait that has not arrived yet, so it is asked again until there is a reply. */
    private boolean withdraw() {
        if (decided || session.hasEnded()) {
            return true;
        }
        try {
            String named = Body.object("sequence", Long.toString(sequence));
            ApiRequest request = session.authorize(ApiRequest.post(session.path("cancel"), named));
            client.servers().send(request, WITHDRAW_MILLIS, WITHDRAW_MILLIS, new Cancellation());
            return true;
        } catch (LeaseholdException notWaiting) {
            return decided;
        }
    }

    /**
     * The reply to a canceled request was lost. Repeated under its key it has the same outcome: what was granted is released. If no server
     * answers, the end of the session releases it.
     */
    private void abandon() {
        for (int attempt = 0; attempt < ABANDON_ATTEMPTS && !session.hasEnded(); attempt++) {
            withdraw();
            try {
                send(WITHDRAW_MILLIS, new Cancellation()).forEach(Lease::releaseAsync);
                return;
            } catch (OutcomeUnknownException | UnavailableException retry) {
                continue;
            } catch (LeaseholdException decided) {
                session.actors.release(actor);
                return;
            }
        }
    }
}
