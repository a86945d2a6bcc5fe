package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import io.github.leasehold.internal.http.ApiResponse;
import io.github.leasehold.internal.http.Cancellation;
import io.github.leasehold.internal.http.ConnectionPool;
import io.github.leasehold.internal.http.LineStream;
import io.github.leasehold.internal.http.NotSentException;
import io.github.leasehold.internal.http.ServerAddress;
import io.github.leasehold.internal.json.Json;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Routing and retries: the server that answered last, then the others, then the leader they name. Every request that passes here may be
 * sent twice, because it changes nothing, is harmless to repeat, or has an idempotency key.
 */
final class Servers implements AutoCloseable {
    private static final int MAX_HINTS = 3;
    private static final long PAUSE_MIN_MILLIS = 20;
    private static final long PAUSE_MAX_MILLIS = 500;

    /**
     * A successful reply.
     *
     * @param body the JSON object
     * @param sent time of the holder's clock before the answered attempt was sent
     */
    record Reply(Map<String, Object> body, long sent) {}

    private final ServerChoice choice;
    private final ConnectionPool pool;
    private final Path bearerFile;
    private final SeenToken seen;
    private final HolderClock clock;

    Servers(ServerChoice choice, ConnectionPool pool, Path bearerFile, SeenToken seen, HolderClock clock) {
        this.choice = choice;
        this.pool = pool;
        this.bearerFile = bearerFile;
        this.seen = seen;
        this.clock = clock;
    }

    /**
     * Sends a request until a server has decided it.
     *
     * @param totalMillis time for all attempts
     * @param attemptMillis time for one attempt
     * @throws OutcomeUnknownException if an attempt may have been executed, and no server answered in time
     * @throws UnavailableException if no server received the request in time
     * @throws CancellationException if it was canceled
     */
    Reply send(ApiRequest request, long totalMillis, long attemptMillis, Cancellation cancellation) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(totalMillis);
        boolean mayHaveArrived = false;
        int hints = 0;
        int failures = 0;
        String last = "no attempt was made";
        Throwable cause = null;
        int server = choice.preferred();
        while (true) {
            long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
            if (cancellation.isCanceled()) {
                throw new CancellationException("the request was canceled");
            }
            if (left <= 0) {
                throw outOfTime(request, mayHaveArrived, last, cause);
            }
            ServerAddress address = choice.address(server);
            long pause = Math.min(PAUSE_MAX_MILLIS, PAUSE_MIN_MILLIS << Math.min(failures / choice.count(), 5));
            int next = choice.after(server);
            try {
                long sent = clock.nanos();
                ApiResponse response = pool.send(address, withIdentity(request), Math.min(left, attemptMillis), cancellation);
                if (response.isSuccess()) {
                    choice.prefer(server);
                    return new Reply(parse(response), sent);
                }
                LeaseholdException problem = LeaseholdException.of(response);
                last = address + ": " + problem.getMessage();
                cause = problem;
                switch (problem.code()) {
                    case "NOT_LEADER" -> {
                        int leader = problem.field("leader").map(choice::indexOf).orElse(-1);
                        if (leader >= 0 && leader != server && hints++ < MAX_HINTS) {
                            server = leader;
                            continue;
                        }
                    }
                    case "UNAVAILABLE" -> pause = problem.millis("retry_after_ms").map(java.time.Duration::toMillis).orElse(pause);
                    case "INDETERMINATE" -> {
                        mayHaveArrived = true;
                        next = server;
                    }
                    default -> {
                        choice.prefer(server);
                        throw problem;
                    }
                }
            } catch (NotSentException notSent) {
                last = address + ": " + notSent.getMessage();
                cause = notSent;
            } catch (IOException broken) {
                mayHaveArrived = true;
                last = address + ": " + broken.getMessage();
                cause = broken;
            }
            failures++;
            if (failures % choice.count() == 0) {
                pause(pause, until, cancellation);
            }
            server = next;
        }
    }

    /** Opens a stream of events at the preferred server. */
    LineStream openStream(ApiRequest request, long timeoutMillis) throws IOException {
        return pool.openStream(choice.address(choice.preferred()), withIdentity(request), timeoutMillis);
    }

    @Override
    public void close() {
        pool.close();
    }

    private static LeaseholdException outOfTime(ApiRequest request, boolean mayHaveArrived, String last, Throwable cause) {
        if (mayHaveArrived) {
            String detail = "no reply to " + request + " in time; the last attempt: " + last;
            return new OutcomeUnknownException(new Problem("INDETERMINATE", detail, "Resolve the outcome, or read the current state.", Map.of(), cause), null);
        }
        return new UnavailableException(Problem.unavailable("no server answered " + request + "; the last attempt: " + last, cause));
    }

    private static Map<String, Object> parse(ApiResponse response) {
        try {
            if (response.body().isEmpty()) {
                return Map.of();
            }
            Object value = Json.parse(response.body());
            if (value instanceof Map<?, ?>) {
                return Json.parseObject(response.body());
            }
            return Map.of("list", value);
        } catch (IOException invalid) {
            throw Body.invalidReply(invalid.getMessage(), invalid);
        }
    }

    private ApiRequest withIdentity(ApiRequest request) {
        if (bearerFile != null) {
            try {
                request.header("Authorization", "Bearer " + Files.readString(bearerFile).strip());
            } catch (IOException unreadable) {
                throw new InvalidRequestException(new Problem(
                        "CONFIG", "cannot read the bearer token: " + unreadable.getMessage(), "Check the file.", Map.of("key", "bearer_file"), unreadable));
            }
        }
        return seen.addTo(request);
    }

    private static void pause(long millis, long until, Cancellation cancellation) {
        long jitter = ThreadLocalRandom.current().nextLong(Math.max(1, millis / 2) + 1);
        long wake = Math.min(until, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis / 2 + jitter));
        Thread thread = Thread.currentThread();
        Runnable unpark = () -> LockSupport.unpark(thread);
        cancellation.onCancel(unpark);
        try {
            for (long left = wake - System.nanoTime(); left > 0 && !cancellation.isCanceled(); left = wake - System.nanoTime()) {
                LockSupport.parkNanos(left);
                if (Thread.interrupted()) {
                    // Requests run on threads of the client, which only its own close interrupts.
                    cancellation.cancel();
                }
            }
        } finally {
            cancellation.remove(unpark);
        }
    }
}
