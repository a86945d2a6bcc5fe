package io.github.leasehold.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.HttpFence;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.StaleTokenException;
import io.github.leasehold.TokenRefusedException;
import io.github.leasehold.UnavailableException;
import io.github.leasehold.testkit.LeaseholdServer;
import jakarta.servlet.AsyncContext;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The servlet filter in a real Jetty, with tokens of a real server. */
class FenceFilterTest {
    private static LeaseholdServer server;
    private static LeaseholdClient client;
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private final List<String> applied = new CopyOnWriteArrayList<>();
    private volatile CountDownLatch hold = new CountDownLatch(0);
    @TempDir
    private Path directory;
    private Server jetty;
    private URI service;
    private String resource;
    private static int number;

    @BeforeAll
    static void startServer() {
        server = LeaseholdServer.start();
        client = LeaseholdClient.builder().servers(server.address()).holder("w-1").build();
    }

    @AfterAll
    static void stopServer() {
        client.close();
        server.close();
    }

    @BeforeEach
    void startService() throws Exception {
        resource = "jobs/" + number++;
        FenceFilter.arm(mark(), server.cluster(), resource);
        start(Duration.ofMillis(300), Duration.ofSeconds(2));
    }

    private void start(Duration claimTimeout, Duration settleTime) throws Exception {
        jetty = new Server();
        ServerConnector connector = new ServerConnector(jetty);
        connector.setHost("127.0.0.1");
        jetty.addConnector(connector);
        ServletContextHandler context = new ServletContextHandler("/app");
        FilterHolder filter = new FilterHolder(FenceFilter.open(mark(), server.cluster(), resource, claimTimeout, settleTime));
        filter.setAsyncSupported(true);
        context.addFilter(filter, "/*", EnumSet.of(DispatcherType.REQUEST));
        ServletHolder servlet = new ServletHolder(new Ledger());
        servlet.setAsyncSupported(true);
        context.addServlet(servlet, "/*");
        jetty.setHandler(context);
        jetty.start();
        service = URI.create("http://127.0.0.1:" + connector.getLocalPort() + "/app/");
    }

    @AfterEach
    void stopService() throws Exception {
        hold.countDown();
        jetty.stop();
    }

    private Path mark() {
        return directory.resolve("settle.mark");
    }

    /** Applies every request that reaches it. */
    private final class Ledger extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
            String path = request.getPathInfo();
            if (path.equals("/async")) {
                AsyncContext async = request.startAsync();
                async.setTimeout(0);
                new Thread(() -> {
                    await();
                    applied.add("async");
                    async.complete();
                }).start();
                return;
            }
            await();
            applied.add(request.getMethod() + " " + path);
            if (path.equals("/broken")) {
                throw new IOException("the service failed in the middle");
            }
            response.getWriter().write("applied");
        }

        private void await() {
            try {
                hold.await();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private HttpRequest post(String path) {
        return HttpRequest.newBuilder(service.resolve(path)).POST(HttpRequest.BodyPublishers.ofString("{}")).build();
    }

    private void claim(Lease lease) throws Exception {
        new HttpFence(HTTP, lease).send(post("-/claim"));
    }

    private Lease acquire() throws InterruptedException {
        return client.acquire(resource, AcquireOptions.defaults().wait(Duration.ofSeconds(30)));
    }

    @Test
    void aStaleTokenDoesNotReachTheService() throws Exception {
        Lease first = acquire();
        claim(first);
        assertEquals("applied", new HttpFence(HTTP, first).send(post("invoices")).body());
        first.close();
        Lease second = acquire();
        claim(second);
        StaleTokenException stale = assertThrows(StaleTokenException.class, () -> new HttpFence(HTTP, first).send(post("invoices")));
        assertEquals(Long.toString(second.tokenNumber()), stale.mark().orElseThrow());
        assertEquals(List.of("POST /invoices"), applied);
        second.close();
    }

    @Test
    void aRequestWithoutAValidTokenIsRefusedAndReadsPass() throws Exception {
        HttpResponse<String> none = HTTP.send(post("invoices"), HttpResponse.BodyHandlers.ofString());
        assertEquals(400, none.statusCode());
        assertEquals("application/problem+json;charset=utf-8", none.headers().firstValue("content-type").orElseThrow().toLowerCase());
        assertTrue(none.body().contains("\"code\":\"TOKEN_INVALID\"") && none.body().contains("\"reason\":\"absent\""), none.body());
        assertEquals("applied", HTTP.send(HttpRequest.newBuilder(service.resolve("invoices")).build(), HttpResponse.BodyHandlers.ofString()).body());
        HttpRequest override = HttpRequest.newBuilder(service.resolve("invoices")).header("X-HTTP-Method-Override", "DELETE").build();
        assertEquals(400, HTTP.send(override, HttpResponse.BodyHandlers.ofString()).statusCode());
        try (Lease other = client.acquire("another/" + resource); Lease lease = acquire()) {
            assertEquals("resource", assertThrows(TokenRefusedException.class, () -> new HttpFence(HTTP, other).send(post("x"))).field("reason").orElseThrow());
            for (String bad : List.of("x", lease.token() + "0", lease.token().replace("lh1", "lh9"), lease.token().replaceAll("-[0-9a-f]{8}$", "-00000000"))) {
                HttpRequest request = HttpRequest.newBuilder(post("x"), (name, value) -> true).header("Lease-Token", bad).build();
                assertEquals(400, HTTP.send(request, HttpResponse.BodyHandlers.ofString()).statusCode(), bad);
            }
            HttpRequest sequence = HttpRequest.newBuilder(post("x"), (name, value) -> true).header("Lease-Sequence", "1").build();
            assertEquals(400, HTTP.send(sequence, HttpResponse.BodyHandlers.ofString()).statusCode());
        }
        assertEquals(List.of("GET /invoices"), applied);
    }

    @Test
    void aClaimWaitsForRequestsInFlightAndThenFailsWithoutAChange() throws Exception {
        Lease first = acquire();
        claim(first);
        for (String path : List.of("slow", "async")) {
            hold = new CountDownLatch(1);
            int before = applied.size();
            CompletableFuture<?> inFlight = HTTP.sendAsync(HttpRequest.newBuilder(post(path), (n, v) -> true).header("Lease-Token", first.token()).build(),
                    HttpResponse.BodyHandlers.ofString());
            Lease second = null;
            if (path.equals("slow")) {
                // Reads pass, so this shows when the request is in the service.
                while (Files.readString(mark()).contains("in_flight no")) {
                    Thread.sleep(5);
                }
            } else {
                Thread.sleep(300);
            }
            first.close();
            second = acquire();
            Lease next = second;
            UnavailableException blocked = assertThrows(UnavailableException.class, () -> claim(next));
            assertTrue(blocked.retryAfter().isPresent());
            assertEquals(before, applied.size());
            hold.countDown();
            inFlight.join();
            claim(next);
            assertEquals(before + 1, applied.size());
            first = next;
        }
        first.close();
    }

    @Test
    void afterAnUnknownOutcomeNoHigherTokenPassesForTheSettleTime() throws Exception {
        Lease first = acquire();
        claim(first);
        assertEquals(500, HTTP.send(HttpRequest.newBuilder(post("broken"), (n, v) -> true).header("Lease-Token", first.token()).build(),
                HttpResponse.BodyHandlers.ofString()).statusCode());
        first.close();
        Lease second = acquire();
        assertThrows(UnavailableException.class, () -> claim(second));
        long until = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (true) {
            try {
                claim(second);
                break;
            } catch (UnavailableException settling) {
                assertTrue(System.nanoTime() < until);
            }
        }
        second.close();
    }

    @Test
    void theMarkSurvivesARestartAndBelongsToOneProcess() throws Exception {
        Lease first = acquire();
        claim(first);
        first.close();
        Lease second = acquire();
        claim(second);
        assertThrows(IOException.class, () -> FenceFilter.open(mark(), server.cluster(), resource));
        jetty.stop();
        assertThrows(IOException.class, () -> FenceFilter.open(mark(), server.cluster(), "another"), "the mark of another resource");
        start(Duration.ofMillis(300), Duration.ofSeconds(2));
        assertThrows(StaleTokenException.class, () -> new HttpFence(HTTP, first).send(post("invoices")));
        assertEquals("applied", new HttpFence(HTTP, second).send(post("invoices")).body());
        jetty.stop();
        assertFalse(Files.readString(mark()).contains("in_flight yes"), "a clean end");
        Files.writeString(mark(), Files.readString(mark()).replaceFirst("\nmark \\d+", "\nmark 1"));
        assertThrows(IOException.class, () -> FenceFilter.open(mark(), server.cluster(), resource), "a damaged mark");
        Files.delete(mark());
        assertThrows(IOException.class, () -> FenceFilter.open(mark(), server.cluster(), resource), "a missing mark");
        second.close();
    }
}
