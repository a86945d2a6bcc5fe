package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import io.github.leasehold.internal.http.LineStream;
import io.github.leasehold.internal.json.Json;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Follows the events of a session. An event only means "ask now": losing the stream loses nothing, because renewals then ask about every
 * lease.
 */
final class SessionEvents {
    /** The server sends a comment every 10 s. */
    private static final long SILENCE_MILLIS = 25_000;
    private static final long OPEN_MILLIS = 5_000;
    private static final long PAUSE_MILLIS = 500;

    private final SessionWorker worker;
    private final Servers servers;
    private final Thread thread;
    private volatile LineStream stream;
    private volatile boolean connected;

    SessionEvents(SessionWorker worker, Servers servers) {
        this.worker = worker;
        this.servers = servers;
        thread = ClientThreads.daemon(this::loop, "leasehold-events");
    }

    boolean isConnected() {
        return connected;
    }

    /** Follows another session from now on. Without a thread for it, renewals ask about every lease. */
    synchronized void follow() {
        try {
            if (thread.getState() == Thread.State.NEW) {
                thread.start();
            }
        } catch (OutOfMemoryError noThread) {
            return;
        }
        disconnect();
    }

    /** Ends the stream; it is opened again at the server that is preferred then. */
    void disconnect() {
        LineStream current = stream;
        if (current != null) {
            current.close();
        }
        LockSupport.unpark(thread);
    }

    void stop() {
        disconnect();
    }

    private void loop() {
        while (!worker.isStopped()) {
            Session session = worker.session();
            if (session != null) {
                try {
                    read(session);
                } catch (Throwable ended) {
                    // Opened again after the pause; renewals ask meanwhile.
                }
                connected = false;
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(PAUSE_MILLIS / 2 + ThreadLocalRandom.current().nextLong(PAUSE_MILLIS)));
            Thread.interrupted();
        }
    }

    private void read(Session session) throws IOException {
        ApiRequest request = session.authorize(ApiRequest.get("/v1/sessions/" + session.id + "/events"));
        try (LineStream opened = servers.openStream(request.header("Accept", "text/event-stream"), OPEN_MILLIS)) {
            if (opened.head().status() != 200) {
                return;
            }
            stream = opened;
            connected = true;
            worker.askAll();
            for (String line = opened.nextLine(SILENCE_MILLIS); line != null; line = opened.nextLine(SILENCE_MILLIS)) {
                if (worker.isStopped() || worker.session() != session) {
                    return;
                }
                if (line.startsWith("data:")) {
                    apply(session, Json.parseObject(line.substring("data:".length()).strip()));
                }
            }
        } finally {
            stream = null;
            connected = false;
        }
    }

    private void apply(Session session, Map<String, Object> event) {
        switch (Json.text(event, "event").orElse("")) {
            case "ended", "draining" -> Json.text(event, "lease").map(session::lease).ifPresent(worker::ask);
            // Names the predecessor; the successor has the same resource.
            case "drained" -> session.leases().forEach(lease -> {
                if (Json.text(event, "resource").map(lease.resource()::equals).orElse(true)) {
                    worker.ask(lease);
                }
            });
            default -> { }
        }
    }
}
