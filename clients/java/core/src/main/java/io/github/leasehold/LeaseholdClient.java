package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import io.github.leasehold.internal.http.Cancellation;
import io.github.leasehold.internal.http.ConnectionPool;
import io.github.leasehold.internal.json.Json;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A client of Leasehold: acquires leases with fencing tokens and keeps them renewed.
 *
 * <pre>{@code
 * try (LeaseholdClient client = LeaseholdClient.builder().servers("127.0.0.1:7421").holder("worker-1").build();
 *         Lease lease = client.acquire("jobs/settle", AcquireOptions.defaults().wait(Duration.ofMinutes(1)))) {
 *     write(lease.token());
 * }
 * }</pre>
 *
 * <p>A client has one session, opened by the first acquire and renewed by a daemon thread that nothing in the program can block. All its
 * leases end with the session. Create one client per process and share it; all methods are safe to call from several threads, also from
 * virtual ones. Nothing is connected before it is needed.
 *
 * <p>Methods that wait for others throw {@link InterruptedException}, and their {@code Async} variants can be canceled: either withdraws the
 * wait and releases a lease that is granted meanwhile. Other methods are bounded by the request timeout. All errors are a
 * {@link LeaseholdException}.
 */
public final class LeaseholdClient implements AutoCloseable {
    private static final long CLOSE_MILLIS = 3_000;

    private final ClientSettings settings;
    private final SeenToken seen = new SeenToken();
    private final Servers servers;
    private final Servers renewalServers;
    private final SessionWorker worker;
    private final ExecutorService threads = ClientThreads.requests();
    private final Callbacks callbacks = new Callbacks();
    private final Withdrawals withdrawals = new Withdrawals(callbacks);
    private final ReentrantLock opening = new ReentrantLock();
    private final Set<Cancellation> running = ConcurrentHashMap.newKeySet();
    private final AtomicBoolean closed = new AtomicBoolean();

    LeaseholdClient(ClientSettings settings) {
        this.settings = settings;
        ServerChoice choice = new ServerChoice(settings.servers());
        ConnectionPool pool = new ConnectionPool(settings.tls());
        servers = new Servers(choice, pool, settings.bearerFile(), seen, settings.clock());
        renewalServers = new Servers(choice, new ConnectionPool(settings.tls()), settings.bearerFile(), seen, settings.clock());
        worker = new SessionWorker(settings, renewalServers, callbacks);
        choice.onLeft(left -> {
            pool.abort(left);
            worker.leftServer();
        });
        // A server that renews the session leads. What waits for another one since before waits in vain, for example for a frozen leader.
        worker.onRenewed(sent -> pool.abortOthers(choice.address(choice.preferred()), sent));
    }

    /**
     * A builder, with the settings of the environment: {@code LEASEHOLD_ADDR}, {@code LEASEHOLD_TLS_CA}, {@code LEASEHOLD_TLS_CERT},
     * {@code LEASEHOLD_TLS_KEY} and {@code LEASEHOLD_BEARER_FILE}, as of the command line.
     *
     * @return a new builder
     */
    public static ClientBuilder builder() {
        return new ClientBuilder(System.getenv());
    }

    /**
     * A client for these servers, with defaults.
     *
     * @param servers addresses separated by commas: {@code HOST:PORT}, {@code https://HOST:PORT} or {@code unix:PATH}
     * @return a new client; nothing is connected yet
     */
    public static LeaseholdClient of(String servers) {
        return builder().servers(servers).build();
    }

    /**
     * Acquires an exclusive lease if it is free.
     *
     * @param resource name of the resource
     * @return the lease; close it to release it
     * @throws BusyException if others hold it
     * @throws OutcomeUnknownException if the reply was lost; it can be resolved
     * @throws InterruptedException if the thread is interrupted
     */
    public Lease acquire(String resource) throws InterruptedException {
        return acquire(resource, AcquireOptions.defaults());
    }

    /**
     * Acquires a lease.
     *
     * @param resource name of the resource
     * @param options wait, ttl, access and more
     * @return the lease; close it to release it
     * @throws BusyException if others hold it, and the options have no wait
     * @throws WaitTimeoutException if it was not granted within the wait
     * @throws OutcomeUnknownException if the reply was lost; it can be resolved
     * @throws InterruptedException if the thread is interrupted; the wait is then withdrawn
     */
    public Lease acquire(String resource, AcquireOptions options) throws InterruptedException {
        return awaitOrCancel(acquireAsync(resource, options));
    }

    /**
     * Acquires a lease if it is free.
     *
     * @param resource name of the resource
     * @param options ttl, access and more; a wait is ignored
     * @return the lease; empty if others hold it
     * @throws InterruptedException if the thread is interrupted
     */
    public Optional<Lease> tryAcquire(String resource, AcquireOptions options) throws InterruptedException {
        try {
            return Optional.of(acquire(resource, options.wait(Duration.ZERO)));
        } catch (BusyException busy) {
            return Optional.empty();
        }
    }

    /**
     * Acquires a lease. Canceling the future, or completing it in any other way, withdraws the wait and releases a lease that is granted
     * meanwhile.
     *
     * @param resource name of the resource
     * @param options wait, ttl, access and more
     * @return completes with the lease
     */
    public CompletableFuture<Lease> acquireAsync(String resource, AcquireOptions options) {
        Body.name("resource", resource);
        return submit(cancellation -> Acquisition.ofOne(this, resource, options).run(cancellation).get(0), Lease::releaseAsync);
    }

    /**
     * Acquires several leases in one step: all or none.
     *
     * @param resources the resources and how each is acquired
     * @param options options of all of them; their own access is ignored
     * @return the leases in the order of the resources
     * @throws InterruptedException if the thread is interrupted; the wait is then withdrawn
     */
    public List<Lease> acquireAll(List<ResourceAccess> resources, AcquireOptions options) throws InterruptedException {
        return awaitOrCancel(acquireAllAsync(resources, options));
    }

    /**
     * Acquires several leases in one step: all or none.
     *
     * @param resources the resources and how each is acquired
     * @param options options of all of them; their own access is ignored
     * @return completes with the leases in the order of the resources
     */
    public CompletableFuture<List<Lease>> acquireAllAsync(List<ResourceAccess> resources, AcquireOptions options) {
        if (resources.isEmpty()) {
            throw new InvalidRequestException(Problem.invalid("resources", "empty; name at least one resource"));
        }
        return submit(
                cancellation -> Acquisition.ofSeveral(this, List.copyOf(resources), options).run(cancellation),
                leases -> leases.forEach(Lease::releaseAsync));
    }

    /**
     * A message queue by its name. It needs no setup: a queue exists while it has messages.
     *
     * @param name name of the queue
     * @return the queue
     */
    public MessageQueue queue(String name) {
        return new MessageQueue(this, Body.name("queue", name), Duration.ofSeconds(30));
    }

    /**
     * An election among all clients that use this resource.
     *
     * @param resource name of the resource
     * @return the election
     */
    public LeaderElection election(String resource) {
        return new LeaderElection(this, Body.name("resource", resource), AcquireOptions.defaults());
    }

    /**
     * An instance of a service to register: the lease on {@code service/instance}.
     *
     * @param service name of the service
     * @param instance name of the instance
     * @return the registration; nothing is sent yet
     */
    public ServiceRegistration service(String service, String instance) {
        return new ServiceRegistration(this, Body.name("service", service) + "/" + Body.name("instance", instance), AcquireOptions.defaults());
    }

    /**
     * The instances of a service that are registered now.
     *
     * @param service name of the service
     * @return the instances in the order of their names
     */
    public List<ServiceInstance> instances(String service) {
        return ServiceInstance.list(this, Body.name("service", service));
    }

    /**
     * Reads a value of the small state of a resource.
     *
     * @param resource name of the resource
     * @param key the key
     * @return the value; empty if there is none
     */
    public Optional<StoredValue> readState(String resource, String key) {
        String path = "/v1/state/" + Body.path(Body.name("resource", resource)) + "?key=" + Body.encode(key);
        return Json.objects(query(path), "entries").stream()
                .filter(entry -> entry.get("key").equals(key))
                .findFirst()
                .map(entry -> new StoredValue(
                        key,
                        Body.bytes(entry, "value").orElse(new byte[0]),
                        Long.parseLong(Body.require(entry, "revision")),
                        Long.parseLong(Json.text(entry, "token_number").orElse("0"))));
    }

    /**
     * Releases everything that this client holds, and ends its session. Bounded: without a server it gives up after 3 s, and the leases
     * expire. Idempotent.
     */
    @Override
    public void close() {
        if (!closed.compareAndSet(false, true)) {
            return;
        }
        worker.stop();
        Session session = worker.session();
        if (session != null) {
            session.end(Loss.RELEASED);
        }
        running.forEach(Cancellation::cancel);
        if (session != null) {
            // On a thread of its own: an interrupt of the caller must not end it, and no scheduler of the program may delay it.
            CompletableFuture.runAsync(() -> closeSession(session), callbacks).join();
        }
        servers.close();
        renewalServers.close();
    }

    private void closeSession(Session session) {
        try {
            servers.send(session.authorize(ApiRequest.post(session.path("close"), "{}")), CLOSE_MILLIS, CLOSE_MILLIS, new Cancellation());
        } catch (LeaseholdException notConfirmed) {
            // The session expires by its ttl.
        }
    }

    HolderClock clock() {
        return settings.clock();
    }

    ClientSettings settings() {
        return settings;
    }

    long requestMillis() {
        return settings.requestTimeout().toMillis();
    }

    Servers servers() {
        return servers;
    }

    SessionWorker worker() {
        return worker;
    }

    void observeToken(long number, String text, String resource) {
        seen.observe(number, text, resource);
    }

    /** The session, opened if there is none. No one waits for it longer than its request takes. */
    Session session(Cancellation cancellation) {
        opening.lock();
        try {
            requireOpen();
            Session current = worker.session();
            if (current != null) {
                return current;
            }
            long ttl = settings.sessionTtl().toMillis();
            String body = Body.object("holder", settings.holder(), "ttl", Body.duration(settings.sessionTtl()));
            Servers.Reply reply;
            try {
                reply = servers.send(ApiRequest.post("/v1/sessions", body), requestMillis(), requestMillis(), cancellation);
            } catch (OutcomeUnknownException unknown) {
                // The request that needs the session was not sent. A session that was opened all the same ends by its ttl.
                throw new UnavailableException(Problem.unavailable("no session could be opened: " + unknown.getMessage(), unknown));
            }
            long counted = settings.countFrom(reply.sent(), clock().nanos());
            Session opened = new Session(
                    Body.require(reply.body(), "session"),
                    Json.text(reply.body(), "secret").orElse(null),
                    settings.holder(),
                    Math.min(ttl, Body.requireNumber(reply.body(), "ttl_ms")),
                    counted,
                    Body.requireNumber(reply.body(), "remaining_ms"));
            if (closed.get()) {
                closeSession(opened);
                throw closedException();
            }
            worker.adopt(opened);
            return opened;
        } finally {
            opening.unlock();
        }
    }

    /** Runs a request on a thread of the client. The future's end cancels it; a result that no one receives is undone. */
    <T> CompletableFuture<T> submit(Function<Cancellation, T> operation, Consumer<T> undo) {
        requireOpen();
        Cancellation cancellation = new Cancellation();
        CompletableFuture<T> future = new CompletableFuture<>();
        running.add(cancellation);
        future.whenComplete((value, error) -> cancellation.cancel());
        start(() -> {
            try {
                T value = operation.apply(cancellation);
                if (!future.complete(value)) {
                    undo.accept(value);
                }
            } catch (Throwable failed) {
                future.completeExceptionally(closed.get() && failed instanceof CancellationException ? closedException() : failed);
            } finally {
                running.remove(cancellation);
            }
        }, noThread -> {
            running.remove(cancellation);
            future.completeExceptionally(noThread);
        });
        return future;
    }

    /** Runs a short request and waits for it. */
    <T> T call(Function<Cancellation, T> operation) {
        return Futures.join(submit(operation, ignored -> { }));
    }

    static <T> T awaitOrCancel(CompletableFuture<T> future) throws InterruptedException {
        try {
            return Futures.await(future);
        } catch (InterruptedException interrupted) {
            future.cancel(true);
            throw interrupted;
        }
    }

    Map<String, Object> query(String path) {
        return call(cancellation -> servers.send(ApiRequest.get(path), requestMillis(), requestMillis(), cancellation).body());
    }

    /** A command about a lease. Its key makes it safe to repeat. */
    Servers.Reply leaseCall(Lease lease, String verb, String body) {
        if (lease.hasEnded()) {
            throw lease.loss().orElseThrow().toException(lease.resource());
        }
        ApiRequest request = ApiRequest.post("/v1/leases/" + Body.path(lease.resource()) + ":" + verb, body)
                .header("Lease-Token", lease.token())
                .header("Idempotency-Key", verb.equals("check") ? null : lease.session().nextKey());
        try {
            return call(cancellation -> servers.send(lease.session().authorize(request), requestMillis(), requestMillis(), cancellation));
        } catch (LeaseLostException ended) {
            if (ended.code().equals("LEASE_LOST") || ended.code().equals("NOT_CURRENT")) {
                lease.lose(ended.loss());
            }
            throw ended;
        }
    }

    void askNow(Lease lease) {
        worker.ask(lease);
    }

    void releaseInBackground(Lease lease, CompletableFuture<Void> done) {
        start(() -> {
            try {
                ApiRequest request = ApiRequest.post("/v1/leases/" + Body.path(lease.resource()) + ":release", "{}").header("Lease-Token", lease.token());
                servers.send(lease.session().authorize(request), requestMillis(), requestMillis(), new Cancellation());
                lease.session().actors.release(lease.actor());
                done.complete(null);
            } catch (LeaseLostException ended) {
                lease.session().actors.release(lease.actor());
                if (ended.loss().state().equals("released")) {
                    // By an earlier attempt of this release, whose reply was lost.
                    done.complete(null);
                } else {
                    done.completeExceptionally(ended);
                }
            } catch (Throwable failed) {
                done.completeExceptionally(failed);
            }
        }, done::completeExceptionally);
    }

    /** Starts a request on a thread of its own. A process without threads left gets an exception that it can retry after. */
    private void start(Runnable request, Consumer<Throwable> refused) {
        try {
            threads.execute(request);
        } catch (OutOfMemoryError noThread) {
            String detail = "no thread for the request: " + noThread.getMessage();
            refused.accept(new UnavailableException(Problem.unavailable(detail, noThread)));
        }
    }

    void withdraw(Withdrawals.Wait wait) {
        withdrawals.add(wait);
    }

    /** Cancels an exchange when the client is closed. */
    void endWithClient(Cancellation exchange) {
        running.add(exchange);
        if (closed.get()) {
            exchange.cancel();
        }
    }

    void hasEnded(Cancellation exchange) {
        running.remove(exchange);
    }

    Callbacks callbacks() {
        return callbacks;
    }

    private void requireOpen() {
        if (closed.get()) {
            throw closedException();
        }
    }

    private static IllegalStateException closedException() {
        return new IllegalStateException("the client is closed; create another one");
    }
}
