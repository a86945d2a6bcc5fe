package io.github.leasehold;

import io.github.leasehold.internal.json.Json;
import io.github.leasehold.internal.json.JsonException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Runs the scenarios of {@code clients/conformance} against the Java client: one JSON request per line on standard input, one reply per line
 * on standard output. It is in the client's package to reach the hooks that break a property on purpose.
 */
public final class ConformanceDriver {
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final DriverOperations operations = new DriverOperations();
    private final Map<Long, CompletableFuture<?>> running = new ConcurrentHashMap<>();

    /** Serves requests until the input ends or {@code exit}. */
    public static void main(String[] arguments) throws IOException {
        new ConformanceDriver().serve();
        // Like a crash: nothing is closed or released.
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            Map<String, Object> request;
            try {
                request = Json.parseObject(line);
            } catch (JsonException invalid) {
                System.err.println("not a request: " + invalid.getMessage());
                continue;
            }
            long id = Json.number(request, "id").orElse(0);
            String op = Json.text(request, "op").orElse("");
            if (op.equals("exit")) {
                reply(id, "ok", Map.of());
                return;
            }
            if (op.equals("cancel")) {
                CompletableFuture<?> target = running.get(Json.number(request, "request").orElse(-1));
                reply(id, "ok", Map.of("canceled", target != null && target.cancel(true)));
                continue;
            }
            start(id, op, request);
        }
    }

    private void start(long id, String op, Map<String, Object> request) {
        CompletableFuture<Map<String, Object>> future;
        try {
            future = operations.start(id, op, request);
        } catch (RuntimeException failed) {
            future = CompletableFuture.failedFuture(failed);
        }
        running.put(id, future);
        future.whenComplete((result, error) -> {
            running.remove(id);
            if (error == null) {
                reply(id, "ok", result);
            } else {
                reply(id, "error", describe(error));
            }
        });
    }

    private void reply(long id, String kind, Map<String, Object> body) {
        String line = Json.write(Body.map("id", id, kind, body));
        synchronized (out) {
            out.println(line);
            out.flush();
        }
    }

    /** The error as the client exposes it. */
    private static Map<String, Object> describe(Throwable thrown) {
        Throwable error = thrown;
        while (error instanceof CompletionException && error.getCause() != null) {
            error = error.getCause();
        }
        Map<String, Object> body = new LinkedHashMap<>();
        if (error instanceof LeaseholdException known) {
            body.put("code", known.code());
            body.put("message", known.detail());
            body.put("next_step", known.nextStep());
            body.put("retryable", known.isRetryable());
            for (String name : new String[] {"holder", "state", "reason", "field", "request_id"}) {
                known.field(name).ifPresent(value -> body.put(name, value));
            }
        } else if (error instanceof CancellationException) {
            put(body, "CANCELLED", "the request was canceled", "Acquire again if you still need the lease.");
        } else if (error instanceof IllegalStateException) {
            put(body, "UNAVAILABLE", String.valueOf(error.getMessage()), "Create another client.");
        } else if (error instanceof DriverException driver) {
            put(body, driver.code(), error.getMessage(), "Check the request.");
        } else {
            put(body, "DRIVER", String.valueOf(error), "Read the log of the driver.");
            error.printStackTrace();
        }
        return body;
    }

    private static void put(Map<String, Object> body, String code, String message, String nextStep) {
        body.put("code", code);
        body.put("message", message);
        body.put("next_step", nextStep);
        body.put("retryable", false);
    }
}
