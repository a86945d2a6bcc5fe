package io.github.leasehold;

import io.github.leasehold.internal.json.Json;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * A held lease. A daemon thread of the client renews it until it is released; {@link #close} releases it.
 *
 * <p>Pass {@link #token} with every write, and stop when {@link #state} is no longer {@link LeaseState#HELD}. A lease belongs to the
 * process, not to a thread: any thread may use and release it. All methods are safe to call from several threads.
 */
public final class Lease implements AutoCloseable {
    /** The drain period of a resource without a charter. */
    private static final long DEFAULT_DRAIN_MILLIS = 30_000;

    private final LeaseholdClient client;
    private final Session session;
    private final int actor;
    private final String resource;
    private final String id;
    private final String holder;
    private final OptionalInt slot;
    private final boolean timedAlone;
    private final long ttlMillis;
    private final long silenceLimitMillis;
    private final LeaseBelief belief;
    private final LeaseEvents events;
    private final AtomicReference<CompletableFuture<Void>> release = new AtomicReference<>();
    private volatile LeaseToken token;

    Lease(LeaseholdClient client, Session session, int actor, AcquireOptions options, Map<String, Object> grant, Timing timing) {
        this.client = client;
        this.session = session;
        this.actor = actor;
        resource = Body.require(grant, "resource");
        id = Body.require(grant, "lease");
        holder = Json.text(grant, "holder").orElse("");
        slot = Json.number(grant, "slot").isPresent() ? OptionalInt.of((int) Body.requireNumber(grant, "slot")) : OptionalInt.empty();
        timedAlone = options.isTimedAlone();
        ttlMillis = options.ttl == null ? session.ttlMillis : options.ttl.toMillis();
        silenceLimitMillis = Math.min(ttlMillis, Json.number(grant, "drain_ms").orElse(DEFAULT_DRAIN_MILLIS));
        belief = new LeaseBelief(session, timedAlone, ttlMillis, silenceLimitMillis);
        events = new LeaseEvents(client.callbacks());
        setToken(LeaseToken.of(grant));
        if (timedAlone) {
            belief.renewed(timing.sent(), Body.requireNumber(grant, "remaining_ms"));
        }
        Json.number(grant, "overlaps_ms").ifPresentOrElse(
                overlap -> belief.claimFrom(timing.received() + ClockDrift.stretch(overlap)), events::reportClaimable);
    }

    /** When the grant was requested and received. */
    record Timing(long sent, long received) {}

    /**
     * Name of the resource.
     *
     * @return the name
     */
    public String resource() {
        return resource;
    }

    /**
     * Id of the lease at the server.
     *
     * @return the id
     */
    public String id() {
        return id;
    }

    /**
     * Name of the holder, as others see it.
     *
     * @return the name
     */
    public String holder() {
        return holder;
    }

    /**
     * The slot, if the lease is exclusive or one of several slots.
     *
     * @return the slot number
     */
    public OptionalInt slot() {
        return slot;
    }

    /**
     * Text of the fencing token. Present it unchanged to fences, with every write.
     *
     * @return the token
     */
    public String token() {
        return token.text();
    }

    /**
     * Number of the fencing token. Compare it only with numbers of the same cluster.
     *
     * @return the number
     */
    public long tokenNumber() {
        return token.number();
    }

    /**
     * The token with a stamp for a sealed target.
     *
     * @param target name of the target in the charter
     * @return the text to present there instead of {@link #token}
     */
    public Optional<String> stampedToken(String target) {
        return Optional.ofNullable(token.stamped().get(target));
    }

    /**
     * State of the lease now, by the local clock.
     *
     * @return held, suspended or lost
     */
    public LeaseState state() {
        return observe(client.clock().nanos());
    }

    /**
     * Whether the holder may act now.
     *
     * @return true if the state is held
     */
    public boolean isHeld() {
        return state() == LeaseState.HELD;
    }

    /**
     * Fails unless the holder may act now. A check before a write does not replace a fence.
     *
     * @throws LeaseLostException if the lease has ended
     * @throws LeaseSuspendedException if the local deadline has passed
     */
    public void requireHeld() {
        switch (state()) {
            case HELD -> { }
            case SUSPENDED -> throw suspendedException();
            case LOST -> throw loss().orElseThrow().toException(resource);
        }
    }

    /**
     * Time until the local deadline, which comes before the server grants the lease to another holder.
     *
     * @return the time; zero if the lease is not held
     */
    public Duration remaining() {
        long now = client.clock().nanos();
        return observe(now) == LeaseState.HELD ? Duration.ofNanos(Math.max(0, belief.deadline() - now)) : Duration.ZERO;
    }

    /**
     * How the lease ended.
     *
     * @return state and reason; empty if it has not ended
     */
    public Optional<Loss> loss() {
        return Optional.ofNullable(belief.loss());
    }

    /**
     * Completes when the lease has ended, also by its release. Dependent stages run on a thread of the client that may block.
     *
     * @return a new future; canceling it changes nothing
     */
    public CompletableFuture<Loss> lostFuture() {
        return events.lost();
    }

    /**
     * Completes when work under this lease must stop: at the local deadline, or when the lease has ended. A lease that is renewed after its
     * deadline is held again, but this future stays complete.
     *
     * @return a new future with the state at that time; canceling it changes nothing
     */
    public CompletableFuture<LeaseState> stoppedFuture() {
        return events.stopped();
    }

    /**
     * Calls the action when the lease has ended. The action may block; it never delays a renewal.
     *
     * @param action receives how and why it ended
     */
    public void onLost(Consumer<Loss> action) {
        events.onLost(action);
    }

    /**
     * Calls the action after each change of the state, also when a suspended lease is held again.
     *
     * @param action receives the new state
     */
    public void onStateChange(Consumer<LeaseState> action) {
        events.onStateChange(action);
    }

    /**
     * Completes when a handoff or a revocation with grace has started: finish within that time, then call {@link #finishDrain}.
     *
     * @return a new future with the time to drain; canceling it changes nothing
     */
    public CompletableFuture<Duration> drainingFuture() {
        return events.draining();
    }

    /**
     * Calls the action when a handoff or a revocation with grace has started.
     *
     * @param action receives the time to drain
     */
    public void onDraining(Consumer<Duration> action) {
        events.onDraining(action);
    }

    /**
     * Whether a handoff or a revocation with grace has started.
     *
     * @return true from then on
     */
    public boolean isDraining() {
        return belief.isDraining();
    }

    /**
     * Completes when a successor may claim at its targets: at once, or, in an overlap handoff, after the predecessor has drained.
     *
     * @return a new future; canceling it changes nothing
     */
    public CompletableFuture<Void> claimableFuture() {
        return events.claimable();
    }

    /**
     * Waits until a successor may claim. Claim, then read, then write.
     *
     * @throws InterruptedException if the thread is interrupted
     * @throws LeaseLostException if the lease ends first
     */
    public void waitClaimable() throws InterruptedException {
        Futures.await(CompletableFuture.anyOf(events.claimable(), events.lost()));
        if (!events.isClaimable()) {
            throw loss().orElseThrow().toException(resource);
        }
    }

    /**
     * Runs work that stops when the lease does: at the local deadline, or when the lease has ended, the thread is interrupted. Work that
     * ignores interrupts cannot be stopped; let it check {@link #isHeld}. The lease is not released.
     *
     * @param <T> type of the result
     * @param work the work, which runs in the calling thread
     * @return the result of the work
     * @throws LeaseSuspendedException if the local deadline passed while it ran, whatever the work returned or threw
     * @throws LeaseLostException if the lease ended while it ran
     * @throws Exception what the work throws
     */
    public <T> T run(Callable<T> work) throws Exception {
        requireHeld();
        WorkInterrupter interrupter = new WorkInterrupter(Thread.currentThread());
        CompletableFuture<Void> hook = events.whenStopped(interrupter::interrupt);
        T result;
        try {
            result = work.call();
        } catch (Exception failed) {
            if (interrupter.finish()) {
                LeaseholdException stop = stopException();
                stop.addSuppressed(failed);
                throw stop;
            }
            throw failed;
        } finally {
            // After an error of the virtual machine too, no interrupt may reach what follows the work.
            interrupter.finish();
            hook.cancel(false);
        }
        if (interrupter.finish()) {
            throw stopException();
        }
        return result;
    }

    /**
     * Reports progress of the work. A lease with {@link AcquireOptions#requireProgress} ends as stalled without it.
     *
     * @param position position of the work; it must rise
     */
    public void progress(long position) {
        apply(client.leaseCall(this, "progress", Body.object("progress", Long.toString(position))));
    }

    /**
     * Starts a planned handoff. This holder then drains: it finishes its work and calls {@link #finishDrain}.
     *
     * @param options successor, mode and drain period
     */
    public void handoff(HandoffOptions options) {
        apply(client.leaseCall(this, "handoff", options.body()));
    }

    /**
     * Reports that all writes of this holder are answered, and that it starts no other. The successor may start at once.
     */
    public void finishDrain() {
        client.leaseCall(this, "drained", "{}");
        client.askNow(this);
    }

    /**
     * Asks the server whether the lease is current.
     *
     * @throws LeaseLostException if it is not
     */
    public void check() {
        apply(client.leaseCall(this, "check", "{}"));
    }

    /**
     * Issues a new, higher token for this lease. Claim with it at every target.
     *
     * @return the new token
     */
    public String rotate() {
        apply(client.leaseCall(this, "rotate", "{}"));
        return token();
    }

    /**
     * Confirms a reservation of units, so that they stay used after the lease has ended.
     */
    public void confirm() {
        client.leaseCall(this, "confirm", "{}");
        client.askNow(this);
    }

    /**
     * Changes the number of reserved units.
     *
     * @param units the new number
     */
    public void resize(int units) {
        apply(client.leaseCall(this, "resize", Body.object("units", units)));
    }

    /**
     * Stores a value in the small state of the resource, under this lease's token.
     *
     * @param key the key
     * @param value the value
     * @return the revision of the value
     */
    public long put(String key, byte[] value) {
        return putState(Body.object("key", key, "value_base64", Body.bytes(value)));
    }

    /**
     * Stores text in the small state of the resource.
     *
     * @param key the key
     * @param value the text
     * @return the revision of the value
     */
    public long put(String key, String value) {
        return put(key, value.getBytes(StandardCharsets.UTF_8));
    }

    /**
     * Stores a value if the current one has this revision.
     *
     * @param key the key
     * @param value the value; null deletes the key
     * @param expectedRevision revision of the value to replace; 0 if there must be none
     * @return the revision of the value; 0 after a deletion
     * @throws ConflictException if the value has another revision
     */
    public long putIf(String key, byte[] value, long expectedRevision) {
        String encoded = value == null ? null : Body.bytes(value);
        return putState(Body.object("key", key, "value_base64", encoded, "expected_revision", Long.toString(expectedRevision)));
    }

    /**
     * Deletes a key of the small state.
     *
     * @param key the key
     * @return 0, because no value is left
     */
    public long delete(String key) {
        return putState(Body.object("key", key));
    }

    /**
     * Reads a value of the small state of this resource.
     *
     * @param key the key
     * @return the value; empty if there is none
     */
    public Optional<StoredValue> get(String key) {
        return client.readState(resource, key);
    }

    private long putState(String body) {
        String revision = Json.text(client.leaseCall(this, "put", body).body(), "revision").orElse("0");
        try {
            return Long.parseLong(revision);
        } catch (NumberFormatException invalid) {
            throw Body.invalidReply("the revision is not a number", invalid);
        }
    }

    /**
     * Releases the lease and waits for the confirmation. Idempotent: releasing a lease again does nothing.
     *
     * @throws LeaseLostException if the lease had ended otherwise, for example by a revocation
     * @throws LeaseholdException if no server confirmed it; the lease then expires by its ttl at the latest
     */
    public void release() {
        Futures.join(releaseAsync());
    }

    /**
     * Releases the lease. Idempotent; later calls return the outcome of the first.
     *
     * @return completes when the server has confirmed it
     */
    public CompletableFuture<Void> releaseAsync() {
        CompletableFuture<Void> first = new CompletableFuture<>();
        CompletableFuture<Void> earlier = release.compareAndExchange(null, first);
        if (earlier != null) {
            return earlier.copy();
        }
        if (!lose(Loss.RELEASED)) {
            // It had ended before: by the close of the client, or in a way that the caller must know.
            Loss end = belief.loss();
            if (end.equals(Loss.RELEASED)) {
                first.complete(null);
            } else {
                first.completeExceptionally(end.toException(resource));
            }
            return first.copy();
        }
        // From here on this process does not act under the lease, whatever the server replies.
        client.releaseInBackground(this, first);
        return first.copy();
    }

    /**
     * Releases the lease, and waits for at most the client's request timeout. A failure is not thrown, so that it never hides an error of
     * the work: the lease then expires by its ttl. Call {@link #release} to see failures.
     */
    @Override
    public void close() {
        try {
            release();
        } catch (LeaseholdException notConfirmed) {
            // The lease expires by its ttl.
        }
    }

    @Override
    public String toString() {
        return "Lease[" + resource + ", " + tokenNumber() + ", " + state() + "]";
    }

    Session session() {
        return session;
    }

    int actor() {
        return actor;
    }

    boolean isTimedAlone() {
        return timedAlone;
    }

    long ttlMillis() {
        return ttlMillis;
    }

    /** How long a holder may be without contact before a handoff that it does not know of can end its lease. */
    long silenceLimitMillis() {
        return silenceLimitMillis;
    }

    /** Whether the deadline of this lease differs from that of the session. */
    boolean needsWatch() {
        return timedAlone || !events.isClaimable();
    }

    long ownSent() {
        return belief.ownSent();
    }

    boolean hasEnded() {
        return belief.loss() != null;
    }

    long deadline() {
        return belief.deadline();
    }

    /** When a successor in an overlap handoff may claim; the largest number if it may already. */
    long claimFrom() {
        return belief.claimFrom();
    }

    LeaseSuspendedException suspendedException() {
        String detail = "the lease on " + resource + " was not renewed in time";
        return new LeaseSuspendedException(Problem.of("UNAVAILABLE", detail, "Stop writing, and acquire again."));
    }

    private LeaseholdException stopException() {
        Optional<Loss> ended = loss();
        return ended.isPresent() ? ended.get().toException(resource) : suspendedException();
    }

    /** Compares the clock with the deadlines, and reports a change. */
    LeaseState observe(long now) {
        LeaseBelief.Observation observed = belief.observe(now);
        if (observed.state() != LeaseState.LOST && belief.endOverlap(now)) {
            events.reportClaimable();
        }
        if (observed.isChange()) {
            events.reportState(observed.state());
        }
        return observed.state();
    }

    /** Records the end. The first report stays. Returns whether this is it. */
    boolean lose(Loss end) {
        if (!belief.lose(end)) {
            return false;
        }
        session.remove(this);
        if (!end.equals(Loss.RELEASED)) {
            session.actors.release(actor);
        }
        events.reportLoss(end);
        return true;
    }

    /** Applies the reply to a renewal that was sent at {@code sent}. */
    void renewed(long sent, Map<String, Object> reply) {
        Json.number(reply, "remaining_ms").ifPresent(left -> belief.renewed(sent, left));
        if (LeaseToken.isIn(reply)) {
            setToken(LeaseToken.of(reply));
        }
        Json.number(reply, "drain_ms").ifPresent(left -> {
            session.watch(this);
            if (belief.startDrain(sent, left)) {
                events.reportDrain(Duration.ofMillis(left));
            }
        });
        if (Json.number(reply, "overlaps_ms").isEmpty() && belief.endOverlap()) {
            events.reportClaimable();
        }
        observe(client.clock().nanos());
    }

    private void apply(Servers.Reply reply) {
        renewed(reply.sent(), reply.body());
    }

    /** A token is replaced only by a higher one: replies may arrive in another order than they were sent. */
    private synchronized void setToken(LeaseToken fresh) {
        if (token == null || fresh.number() >= token.number()) {
            token = fresh;
        }
        client.observeToken(fresh.number(), fresh.text(), resource);
    }
}
