package io.github.leasehold.internal.http;

import java.io.IOException;

/** A response that is read line by line, such as server-sent events. Any thread may close it. */
public final class LineStream implements AutoCloseable {
    private final HttpExchange exchange;
    private final ApiResponse head;

    LineStream(HttpExchange exchange, ApiResponse head) {
        this.exchange = exchange;
        this.head = head;
    }

    /** Status and headers; with the body if the server refused. */
    public ApiResponse head() {
        return head;
    }

    /** The next line, or null at the end. Fails if nothing arrives within the timeout. */
    public String nextLine(long timeoutMillis) throws IOException {
        return exchange.nextLine(timeoutMillis);
    }

    @Override
    public void close() {
        exchange.close();
    }
}
