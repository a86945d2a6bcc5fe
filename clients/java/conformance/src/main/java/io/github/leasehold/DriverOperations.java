package io.github.leasehold;

import io.github.leasehold.internal.json.Json;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The operations of the driver protocol, each a call of the client's public interface. */
final class DriverOperations {
    private static final Map<String, Object> DONE = Map.of();
    private static final int CONCURRENT_ACQUIRES = 32;

    private final DriverFaults faults = new DriverFaults();
    private final ExecutorService threads = Executors.newCachedThreadPool(task -> ClientThreads.daemon(task, "driver"));
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final Map<String, LeaseholdClient> clients = new ConcurrentHashMap<>();
    private final Map<String, Lease> leases = new ConcurrentHashMap<>();
    private final Map<String, CountDownLatch> works = new ConcurrentHashMap<>();
    private final Map<String, ReceivedMessage> deliveries = new ConcurrentHashMap<>();
    private final Map<Long, OutcomeUnknownException> unresolved = new ConcurrentHashMap<>();
    private final Map<Long, List<String>> handles = new ConcurrentHashMap<>();
    private final Set<Long> severals = ConcurrentHashMap.newKeySet();
    private final Set<Long> withSlots = ConcurrentHashMap.newKeySet();

    /** Starts an operation. Requests are started in the order of their lines. */
    CompletableFuture<Map<String, Object>> start(long id, String op, Map<String, Object> request) {
        return switch (op) {
            case "hello" -> done(Body.map("client", "java", "version", "0.1.0", "skips", Map.of("fork", "Java programs do not fork")));
            case "break" -> {
                faults.breakProperty(text(request, "property"));
                yield done(DONE);
            }
            case "advance_clock" -> {
                faults.advanceClock(number(request, "ms"));
                yield done(DONE);
            }
            case "block" -> run(() -> {
                faults.block(number(request, "ms"));
                return DONE;
            });
            case "connect" -> {
                connect(request);
                yield done(DONE);
            }
            case "session" -> {
                Session session = client(request).worker().session();
                Map<String, Object> reply = new LinkedHashMap<>();
                reply.put("session", session == null ? null : session.id);
                yield done(reply);
            }
            case "acquire" -> acquire(id, request);
            case "acquire_all" -> acquireAll(id, request);
            case "token" -> done(token(lease(request)));
            case "state" -> done(state(lease(request)));
            case "remaining" -> done(Map.of("ms", lease(request).remaining().toMillis()));
            case "held_count" -> {
                Session session = client(request).worker().session();
                long held = session == null ? 0 : session.leases().stream().filter(Lease::isHeld).count();
                yield done(Map.of("held", held));
            }
            case "finish" -> {
                works.computeIfAbsent(text(request, "lease"), any -> new CountDownLatch(1)).countDown();
                yield done(DONE);
            }
            case "work" -> work(request);
            case "queue_receive" -> receive(request);
            case "release" -> lease(request).releaseAsync().thenApply(ignored -> DONE);
            default -> run(() -> perform(id, op, request));
        };
    }

    /** Operations of one blocking call. */
    private Map<String, Object> perform(long id, String op, Map<String, Object> request) throws Exception {
        switch (op) {
            case "close" -> client(request).close();
            case "hold_many" -> {
                return holdMany(request);
            }
            case "resolve" -> {
                return resolve(number(request, "request"));
            }
            case "wait_state" -> {
                return waitState(request);
            }
            case "progress" -> lease(request).progress(Long.parseLong(text(request, "progress")));
            case "put" -> {
                return Map.of("revision", Long.toString(put(request)));
            }
            case "get" -> {
                return get(request);
            }
            case "fenced_write" -> {
                return fencedWrite(request);
            }
            case "handoff" -> lease(request).handoff(handoff(request));
            case "wait_draining" -> {
                Lease lease = lease(request);
                awaitOrLost(lease, lease.drainingFuture(), request);
                return Map.of("drain_ms", lease.drainingFuture().join().toMillis());
            }
            case "finish_drain" -> lease(request).finishDrain();
            case "wait_claimable" -> {
                long started = System.nanoTime();
                Lease lease = lease(request);
                awaitOrLost(lease, lease.claimableFuture(), request);
                return Map.of("after_ms", millisSince(started));
            }
            case "queue_send" -> {
                SendOptions options = SendOptions.defaults();
                Duration delay = duration(request, "delay_ms");
                options = delay == null ? options : options.delay(delay);
                OptionalLong attempts = Json.number(request, "max_attempts");
                options = attempts.isEmpty() ? options : options.maxAttempts((int) attempts.getAsLong());
                byte[] body = text(request, "body").getBytes(StandardCharsets.UTF_8);
                return Map.of("item", Long.toString(client(request).queue(text(request, "queue")).send(body, options)));
            }
            case "queue_ack" -> delivery(request).ack();
            case "queue_nack" -> {
                Duration delay = duration(request, "delay_ms");
                delivery(request).nack(delay == null ? Duration.ZERO : delay);
            }
            case "queue_extend" -> delivery(request).extend(duration(request, "visibility_ms"));
            default -> throw new DriverException("UNSUPPORTED_OP", "this driver has no operation " + op);
        }
        return DONE;
    }

    private void connect(Map<String, Object> request) {
        ClientBuilder builder = new ClientBuilder(Map.of());
        if (request.get("servers") instanceof List<?> servers) {
            builder.servers(String.join(",", servers.stream().map(String::valueOf).toList()));
        }
        Json.text(request, "holder").ifPresent(builder::holder);
        Duration ttl = duration(request, "session_ttl_ms");
        if (ttl != null) {
            builder.sessionTtl(ttl);
        }
        Duration timeout = duration(request, "request_timeout_ms");
        if (timeout != null) {
            builder.requestTimeout(timeout);
        }
        if (request.get("tls") instanceof Map<?, ?> tls) {
            if (tls.get("ca") instanceof String ca) {
                builder.tlsCa(Path.of(ca));
            }
            if (tls.get("cert") instanceof String certificate && tls.get("key") instanceof String key) {
                builder.tlsCertificate(Path.of(certificate), Path.of(key));
            }
        }
        Json.text(request, "bearer_file").map(Path::of).ifPresent(builder::bearerFile);
        faults.apply(builder);
        clients.put(text(request, "client"), builder.build());
    }

    private AcquireOptions options(Map<String, Object> request) {
        AcquireOptions options = AcquireOptions.defaults();
        Duration wait = duration(request, "wait_ms");
        options = wait == null ? options : options.wait(wait);
        Duration ttl = duration(request, "ttl_ms");
        options = ttl == null ? options : options.ttl(ttl);
        Duration progress = duration(request, "progress_ms");
        options = progress == null ? options : options.requireProgress(progress);
        Duration maxHold = duration(request, "max_hold_ms");
        options = maxHold == null ? options : options.maxHold(maxHold);
        Duration timeout = duration(request, "timeout_ms");
        options = timeout == null ? options : options.timeout(timeout);
        OptionalLong priority = Json.number(request, "priority");
        options = priority.isEmpty() ? options : options.priority((int) priority.getAsLong());
        OptionalLong slots = Json.number(request, "slots");
        options = slots.isEmpty() ? options : options.slots((int) slots.getAsLong());
        OptionalLong units = Json.number(request, "units");
        options = units.isEmpty() ? options : options.units((int) units.getAsLong());
        return Json.isTrue(request, "shared") ? options.shared() : options;
    }

    private CompletableFuture<Map<String, Object>> acquire(long id, Map<String, Object> request) {
        handles.put(id, List.of(text(request, "lease")));
        if (Json.number(request, "slots").isPresent()) {
            withSlots.add(id);
        }
        CompletableFuture<Lease> acquired = client(request).acquireAsync(text(request, "resource"), options(request));
        return linked(acquired, remember(id, acquired, lease -> granted(id, List.of(lease))));
    }

    private CompletableFuture<Map<String, Object>> acquireAll(long id, Map<String, Object> request) {
        List<String> names = ((List<?>) request.get("leases")).stream().map(String::valueOf).toList();
        handles.put(id, names);
        severals.add(id);
        List<ResourceAccess> resources = Json.objects(request, "resources").stream().map(DriverOperations::access).toList();
        CompletableFuture<List<Lease>> acquired = client(request).acquireAllAsync(resources, options(request));
        return linked(acquired, remember(id, acquired, all -> granted(id, all)));
    }

    private static ResourceAccess access(Map<String, Object> resource) {
        OptionalLong units = Json.number(resource, "units");
        if (units.isPresent()) {
            return ResourceAccess.units(text(resource, "resource"), (int) units.getAsLong());
        }
        return Json.isTrue(resource, "shared") ? ResourceAccess.shared(text(resource, "resource")) : ResourceAccess.exclusive(text(resource, "resource"));
    }

    /** Keeps an unknown outcome for {@code resolve}. */
    private <T> CompletableFuture<Map<String, Object>> remember(
            long id, CompletableFuture<T> acquired, java.util.function.Function<T, Map<String, Object>> reply) {
        return acquired.handle((value, error) -> {
            if (error == null) {
                return reply.apply(value);
            }
            Throwable cause = error.getCause() != null && error instanceof java.util.concurrent.CompletionException ? error.getCause() : error;
            if (cause instanceof OutcomeUnknownException unknown) {
                unresolved.put(id, unknown);
            }
            throw cause instanceof RuntimeException runtime ? runtime : new IllegalStateException(cause);
        });
    }

    /** Canceling the reply cancels the call. */
    private static CompletableFuture<Map<String, Object>> linked(CompletableFuture<?> call, CompletableFuture<Map<String, Object>> reply) {
        CompletableFuture<Map<String, Object>> outer = new CompletableFuture<>() {
            @Override
            public boolean cancel(boolean mayInterrupt) {
                return call.cancel(mayInterrupt);
            }
        };
        reply.whenComplete((value, error) -> {
            if (error == null) {
                outer.complete(value);
            } else {
                outer.completeExceptionally(error);
            }
        });
        return outer;
    }

    private Map<String, Object> granted(long id, List<Lease> acquired) {
        List<String> names = handles.get(id);
        List<Map<String, Object>> grants = new ArrayList<>();
        for (int index = 0; index < acquired.size(); index++) {
            Lease lease = acquired.get(index);
            leases.put(names.get(index), lease);
            Map<String, Object> grant = token(lease);
            if (withSlots.contains(id)) {
                lease.slot().ifPresent(slot -> grant.put("slot", slot));
            }
            long claimFrom = lease.claimFrom();
            if (claimFrom != Long.MAX_VALUE) {
                grant.put("overlaps_ms", TimeUnit.NANOSECONDS.toMillis(claimFrom - HolderClock.system().nanos()));
            }
            grants.add(grant);
        }
        return severals.contains(id) ? Map.of("grants", grants) : grants.get(0);
    }

    private Map<String, Object> resolve(long id) throws InterruptedException {
        OutcomeUnknownException unknown = unresolved.get(id);
        if (unknown == null) {
            throw new DriverException("DRIVER", "request " + id + " has no unknown outcome");
        }
        try {
            Object outcome = unknown.resolve(Duration.ofSeconds(10));
            if (outcome instanceof Lease lease) {
                return granted(id, List.of(lease));
            }
            List<Lease> all = new ArrayList<>();
            ((List<?>) outcome).forEach(member -> all.add((Lease) member));
            return granted(id, all);
        } catch (OutcomeUnknownException again) {
            unresolved.put(id, again);
            throw again;
        }
    }

    private Map<String, Object> holdMany(Map<String, Object> request) throws InterruptedException {
        int count = (int) number(request, "count");
        String prefix = text(request, "prefix");
        LeaseholdClient client = client(request);
        Semaphore limit = new Semaphore(CONCURRENT_ACQUIRES);
        List<CompletableFuture<Lease>> all = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            limit.acquire();
            CompletableFuture<Lease> acquired = client.acquireAsync(prefix + "/" + number, AcquireOptions.defaults());
            acquired.whenComplete((lease, error) -> limit.release());
            all.add(acquired);
        }
        all.forEach(Futures::join);
        return Map.of("held", all.size());
    }

    private Map<String, Object> waitState(Map<String, Object> request) throws Exception {
        Lease lease = lease(request);
        String wanted = text(request, "state");
        CompletableFuture<Void> reached = new CompletableFuture<>();
        lease.onStateChange(state -> {
            if (matches(state, wanted)) {
                reached.complete(null);
            }
        });
        if (matches(lease.state(), wanted)) {
            return state(lease);
        }
        await(reached, request);
        return state(lease);
    }

    private static boolean matches(LeaseState state, String wanted) {
        return wanted.equals("stopped") ? state != LeaseState.HELD : state.name().equalsIgnoreCase(wanted);
    }

    private CompletableFuture<Map<String, Object>> work(Map<String, Object> request) {
        Lease lease = lease(request);
        CountDownLatch finish = works.compute(text(request, "lease"), (name, old) -> old == null || old.getCount() == 0 ? new CountDownLatch(1) : old);
        long started = System.nanoTime();
        return run(() -> {
            try {
                lease.run(() -> {
                    finish.await();
                    return DONE;
                });
                return Body.map("stopped", false, "after_ms", millisSince(started));
            } catch (LeaseSuspendedException | LeaseLostException stopped) {
                return Body.map("stopped", true, "after_ms", millisSince(started));
            }
        });
    }

    private long put(Map<String, Object> request) {
        Lease lease = lease(request);
        String key = text(request, "key");
        byte[] value = Json.text(request, "value").map(text -> text.getBytes(StandardCharsets.UTF_8)).orElse(null);
        String expected = Json.text(request, "expected_revision").orElse(null);
        if (expected != null) {
            return lease.putIf(key, value, Long.parseLong(expected));
        }
        if (value == null) {
            return lease.delete(key);
        }
        return lease.put(key, value);
    }

    private Map<String, Object> get(Map<String, Object> request) {
        Map<String, Object> none = new LinkedHashMap<>();
        none.put("value", null);
        return client(request).readState(text(request, "resource"), text(request, "key"))
                .map(value -> Body.map("value", value.text(), "revision", Long.toString(value.revision()), "token_number", Long.toString(value.tokenNumber())))
                .orElse(none);
    }

    private Map<String, Object> fencedWrite(Map<String, Object> request) throws IOException, InterruptedException {
        HttpRequest.BodyPublisher body = HttpRequest.BodyPublishers.ofString(Json.text(request, "body").orElse(""));
        HttpRequest write = HttpRequest.newBuilder(URI.create(text(request, "url"))).POST(body).build();
        Map<String, Object> reply = new LinkedHashMap<>();
        try {
            HttpResponse<String> response =
                    faults.sendsNoToken() ? http.send(write, HttpResponse.BodyHandlers.ofString()) : new HttpFence(http, lease(request)).send(write);
            reply.put("status", response.statusCode());
            reply.put("code", null);
        } catch (LeaseholdException refused) {
            reply.put("status", refused.field("status").map(Integer::parseInt).orElse(0));
            reply.put("code", refused.code());
        }
        return reply;
    }

    private static HandoffOptions handoff(Map<String, Object> request) {
        HandoffOptions options = HandoffOptions.defaults();
        String to = Json.text(request, "to").orElse(null);
        options = to == null ? options : options.to(to);
        String mode = Json.text(request, "mode").orElse(null);
        options = mode == null ? options : options.mode(mode.equals("overlap") ? HandoffMode.OVERLAP : HandoffMode.GAP);
        Duration drain = duration(request, "drain_ms");
        return drain == null ? options : options.drain(drain);
    }

    private CompletableFuture<Map<String, Object>> receive(Map<String, Object> request) {
        String name = text(request, "queue");
        MessageQueue queue = client(request).queue(name);
        Duration visibility = duration(request, "visibility_ms");
        queue = visibility == null ? queue : queue.visibility(visibility);
        Duration wait = duration(request, "wait_ms");
        CompletableFuture<List<ReceivedMessage>> received =
                queue.receiveAsync((int) Json.number(request, "limit").orElse(1), wait == null ? Duration.ZERO : wait);
        return linked(received, received.thenApply(messages -> {
            List<Map<String, Object>> all = new ArrayList<>();
            for (ReceivedMessage message : messages) {
                String item = Long.toString(message.id());
                deliveries.put(name + " " + item + " " + message.receipt(), message);
                all.add(Body.map("item", item, "receipt", message.receipt(), "attempt", message.attempt(), "body", message.text(), "token", message.token()));
            }
            return Map.of("deliveries", all);
        }));
    }

    private ReceivedMessage delivery(Map<String, Object> request) {
        ReceivedMessage message = deliveries.get(text(request, "queue") + " " + text(request, "item") + " " + text(request, "receipt"));
        if (message == null) {
            throw new DriverException("DRIVER", "unknown delivery");
        }
        return message;
    }

    private static Map<String, Object> token(Lease lease) {
        return Body.map("token", lease.token(), "token_number", Long.toString(lease.tokenNumber()));
    }

    private static Map<String, Object> state(Lease lease) {
        Map<String, Object> reply = Body.map("state", lease.state().name().toLowerCase(java.util.Locale.ROOT));
        lease.loss().ifPresent(loss -> {
            reply.put("lost_state", loss.state());
            reply.put("reason", loss.reason());
        });
        return reply;
    }

    private static void awaitOrLost(Lease lease, CompletableFuture<?> future, Map<String, Object> request) throws Exception {
        await(CompletableFuture.anyOf(future, lease.lostFuture()), request);
        if (!future.isDone()) {
            throw lease.loss().orElseThrow().toException(lease.resource());
        }
    }

    private static void await(CompletableFuture<?> future, Map<String, Object> request) throws InterruptedException, ExecutionException {
        try {
            future.get(Json.number(request, "timeout_ms").orElse(60_000), TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            throw new DriverException("TIMEOUT", "it did not happen in time");
        }
    }

    private CompletableFuture<Map<String, Object>> run(Callable<Map<String, Object>> task) {
        CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
        threads.execute(() -> {
            try {
                future.complete(task.call());
            } catch (Throwable failed) {
                future.completeExceptionally(failed);
            }
        });
        return future;
    }

    private static CompletableFuture<Map<String, Object>> done(Map<String, Object> reply) {
        return CompletableFuture.completedFuture(reply);
    }

    private LeaseholdClient client(Map<String, Object> request) {
        LeaseholdClient client = clients.get(text(request, "client"));
        if (client == null) {
            throw new DriverException("DRIVER", "unknown client " + request.get("client"));
        }
        return client;
    }

    private Lease lease(Map<String, Object> request) {
        Lease lease = leases.get(text(request, "lease"));
        if (lease == null) {
            throw new DriverException("DRIVER", "unknown lease " + request.get("lease"));
        }
        return lease;
    }

    private static String text(Map<String, Object> request, String field) {
        return Json.text(request, field).orElseThrow(() -> new DriverException("DRIVER", "field " + field + " is missing"));
    }

    private static long number(Map<String, Object> request, String field) {
        return Json.number(request, field).orElseThrow(() -> new DriverException("DRIVER", "field " + field + " is missing"));
    }

    private static Duration duration(Map<String, Object> request, String field) {
        OptionalLong millis = Json.number(request, field);
        return millis.isPresent() ? Duration.ofMillis(millis.getAsLong()) : null;
    }

    private static long millisSince(long nanos) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - nanos);
    }
}
