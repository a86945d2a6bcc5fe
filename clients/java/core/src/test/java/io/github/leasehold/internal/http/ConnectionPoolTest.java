package io.github.leasehold.internal.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Connections that break at a bad moment. The servers here do what a real one does only while it dies. */
@Timeout(60)
class ConnectionPoolTest {
    private final ServerSocket listener = listen();
    private final ServerAddress address = new ServerAddress("127.0.0.1", listener.getLocalPort(), false, null);
    private final ConnectionPool pool = new ConnectionPool(null);

    private static ServerSocket listen() {
        try {
            return new ServerSocket(0, 8, InetAddress.getLoopbackAddress());
        } catch (IOException failed) {
            throw new java.io.UncheckedIOException(failed);
        }
    }

    @AfterEach
    void close() throws IOException {
        pool.close();
        listener.close();
    }

    private interface Script {
        void serve(Socket connection) throws IOException;
    }

    /** Serves the next connection on another thread. */
    private Thread serve(Script script) {
        Thread thread = new Thread(() -> {
            try (Socket connection = listener.accept()) {
                script.serve(connection);
            } catch (IOException ended) {
                // The test closes what it does not need any more.
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static void readRequest(Socket connection) throws IOException {
        InputStream in = connection.getInputStream();
        StringBuilder head = new StringBuilder();
        while (head.indexOf("\r\n\r\n") < 0) {
            int next = in.read();
            if (next < 0) {
                throw new IOException("the connection ended");
            }
            head.append((char) next);
        }
    }

    private static void reply(Socket connection) throws IOException {
        connection.getOutputStream().write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".getBytes(StandardCharsets.US_ASCII));
    }

    private ApiResponse get() throws IOException {
        return pool.send(address, ApiRequest.get("/"), 30_000, new Cancellation());
    }

    @Test
    void aServerThatDoesNotReadARequestDoesNotBlockItsSender() throws Exception {
        Thread silent = serve(connection -> {
            try {
                Thread.sleep(60_000);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        });
        ApiRequest large = ApiRequest.post("/", "x".repeat(32 * 1024 * 1024));
        assertThrows(SocketTimeoutException.class, () -> pool.send(address, large, 300, new Cancellation()));
        silent.interrupt();
    }

    @Test
    void aRequestThatTheServerMayHaveReadIsNotReportedAsNotSent() throws Exception {
        serve(connection -> {
            readRequest(connection);
            reply(connection);
            readRequest(connection);
            // It dies with the second request.
            listener.close();
        });
        assertEquals(200, get().status());
        IOException unknown = assertThrows(IOException.class, this::get);
        assertFalse(unknown instanceof NotSentException, unknown::toString);
    }

    @Test
    void aConnectionThatTheServerClosedWhileItWasIdleIsNotUsed() throws Exception {
        serve(connection -> {
            readRequest(connection);
            reply(connection);
        });
        assertEquals(200, get().status());
        Thread.sleep(200);
        listener.close();
        assertThrows(NotSentException.class, this::get, "nothing was written, so nothing can have happened");
    }

    @Test
    void requestsThatWaitForAnotherServerThanTheCurrentOneEnd() throws Exception {
        serve(connection -> {
            readRequest(connection);
            connection.getInputStream().read();
        });
        AtomicReference<Exception> thrown = new AtomicReference<>();
        Thread sender = new Thread(() -> {
            try {
                get();
            } catch (IOException ended) {
                thrown.set(ended);
            }
        });
        long before = System.nanoTime();
        sender.start();
        pool.abortOthers(new ServerAddress("127.0.0.1", 1, false, null), before);
        Thread.sleep(200);
        assertTrue(sender.isAlive(), "it was sent after that time");
        pool.abortOthers(address, System.nanoTime());
        Thread.sleep(200);
        assertTrue(sender.isAlive(), "it waits for the current server");
        pool.abortOthers(new ServerAddress("127.0.0.1", 1, false, null), System.nanoTime());
        sender.join();
        assertFalse(thrown.get() instanceof NotSentException, () -> thrown.get().toString());
    }

    @Test
    void anIdleConnectionIsUsedAgain() throws Exception {
        serve(connection -> {
            for (int request = 0; request < 3; request++) {
                readRequest(connection);
                reply(connection);
            }
        });
        for (int request = 0; request < 3; request++) {
            assertEquals(200, get().status(), "no second connection is accepted");
            Thread.sleep(150);
        }
    }
}
