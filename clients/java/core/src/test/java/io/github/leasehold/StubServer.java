package io.github.leasehold;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.function.Function;

/** Replies that no server of today sends: of a newer version, or in the middle of a failover. */
final class StubServer implements AutoCloseable {
    record Reply(int status, String body) {}

    static final String SESSION = "{\"session\":\"1.0\",\"secret\":\"00\",\"ttl_ms\":30000,\"remaining_ms\":30000,\"max_ttl_ms\":60000,\"new_field\":{\"x\":[1]}}";

    private final HttpServer http;
    final List<String> requests = new CopyOnWriteArrayList<>();

    StubServer(Function<String, Reply> replies) throws IOException {
        http = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        http.setExecutor(Executors.newCachedThreadPool(task -> ClientThreads.daemon(task, "stub")));
        http.createContext("/", exchange -> answer(exchange, replies));
        http.start();
    }

    private void answer(HttpExchange exchange, Function<String, Reply> replies) throws IOException {
        String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        requests.add(exchange.getRequestMethod() + " " + exchange.getRequestURI() + " " + exchange.getRequestHeaders().entrySet() + " " + body);
        String path = exchange.getRequestURI().getPath();
        Reply reply = path.equals("/v1/sessions") ? new Reply(200, SESSION) : replies.apply(path);
        byte[] bytes = reply.body().getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(reply.status(), bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    String address() {
        return "127.0.0.1:" + http.getAddress().getPort();
    }

    @Override
    public void close() {
        http.stop(0);
    }
}
