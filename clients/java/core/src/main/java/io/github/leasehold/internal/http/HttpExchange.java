package io.github.leasehold.internal.http;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * HTTP/1.1 over one connection: writes requests and reads responses. Small on purpose: it speaks to Leasehold servers, and to no others.
 */
final class HttpExchange {
    private static final int MAX_HEAD = 64 * 1024;
    private static final int MAX_BODY = 64 * 1024 * 1024;

    private final Connection connection;
    private final byte[] buffer = new byte[8 * 1024];
    private int start;
    private int end;
    private long deadline;
    private boolean anyByteRead;
    private boolean keepAlive;
    private Map<String, String> headers = Map.of();

    HttpExchange(Connection connection) {
        this.connection = connection;
    }

    /** Whether a byte of the current response has arrived. */
    boolean anyByteRead() {
        return anyByteRead;
    }

    /** Whether another request may follow on this connection. */
    boolean keepsAlive() {
        return keepAlive;
    }

    /** Whether a request may follow: everything was read, and the server has not closed the connection. */
    boolean isIdleAndOpen() {
        return start == end && connection.isIdleAndOpen();
    }

    void close() {
        connection.close();
    }

    /** Sends a request and reads its response; of a streaming one only the head. */
    ApiResponse send(ServerAddress address, ApiRequest request, long timeoutMillis) throws IOException {
        deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        anyByteRead = false;
        keepAlive = false;
        connection.write(encode(address, request), timeoutMillis);
        int status = readHead();
        while (status >= 100 && status < 200) {
            status = readHead();
        }
        if (request.isStreaming() && status == 200) {
            return new ApiResponse(status, headers, "");
        }
        String body = readBody(status);
        keepAlive = !"close".equalsIgnoreCase(headers.get("connection"));
        return new ApiResponse(status, headers, body);
    }

    /** The next line of a stream, or null at its end. */
    String nextLine(long timeoutMillis) throws IOException {
        deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        while (true) {
            int next = nextStreamByte();
            if (next < 0) {
                return null;
            }
            if (next == '\n') {
                String text = line.toString(StandardCharsets.UTF_8);
                return text.endsWith("\r") ? text.substring(0, text.length() - 1) : text;
            }
            if (line.size() > MAX_HEAD) {
                throw new ProtocolException("a line of the stream is too long");
            }
            line.write(next);
        }
    }

    private static byte[] encode(ServerAddress address, ApiRequest request) {
        byte[] body = request.body() == null ? new byte[0] : request.body().getBytes(StandardCharsets.UTF_8);
        StringBuilder head = new StringBuilder(256);
        head.append(request.method()).append(' ').append(request.path()).append(" HTTP/1.1\r\n");
        head.append("Host: ").append(address.authority()).append("\r\n");
        if (request.body() != null) {
            head.append("Content-Type: application/json\r\nContent-Length: ").append(body.length).append("\r\n");
        }
        request.headers().forEach((name, value) -> {
            if (value.chars().anyMatch(c -> c < ' ' || c > '~')) {
                throw new IllegalArgumentException("header " + name + " has a character that is not visible ASCII");
            }
            head.append(name).append(": ").append(value).append("\r\n");
        });
        head.append("\r\n");
        byte[] bytes = head.toString().getBytes(StandardCharsets.US_ASCII);
        byte[] all = java.util.Arrays.copyOf(bytes, bytes.length + body.length);
        System.arraycopy(body, 0, all, bytes.length, body.length);
        return all;
    }

    private int readHead() throws IOException {
        String status = readLine(MAX_HEAD);
        if (!status.startsWith("HTTP/1.1 ") || status.length() < 12) {
            throw new ProtocolException("not an HTTP/1.1 response; check that the address is a Leasehold server and whether it needs TLS");
        }
        Map<String, String> fields = new LinkedHashMap<>();
        int size = status.length();
        for (String line = readLine(MAX_HEAD); !line.isEmpty(); line = readLine(MAX_HEAD)) {
            size += line.length();
            int colon = line.indexOf(':');
            if (colon <= 0 || size > MAX_HEAD) {
                throw new ProtocolException("an invalid header in the response");
            }
            fields.put(line.substring(0, colon).toLowerCase(Locale.ROOT), line.substring(colon + 1).trim());
        }
        headers = fields;
        try {
            return Integer.parseInt(status.substring(9, 12));
        } catch (NumberFormatException invalid) {
            throw new ProtocolException("an invalid status in the response");
        }
    }

    private String readBody(int status) throws IOException {
        if (status == 204 || status == 304) {
            return "";
        }
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        if (isChunked()) {
            for (int size = readChunkSize(); size > 0; size = readChunkSize()) {
                copy(body, size);
                readLine(2);
            }
            while (!readLine(MAX_HEAD).isEmpty()) {
                // Trailers are not used.
            }
        } else if (headers.containsKey("content-length")) {
            copy(body, parseSize(headers.get("content-length"), 10));
        } else {
            throw new ProtocolException("a response without a length");
        }
        return body.toString(StandardCharsets.UTF_8);
    }

    private boolean isChunked() {
        return "chunked".equalsIgnoreCase(headers.get("transfer-encoding"));
    }

    private int chunkLeft;

    /** The next byte of a stream's body, or -1 at its end. */
    private int nextStreamByte() throws IOException {
        if (!isChunked()) {
            return start < end || fill() ? buffer[start++] & 0xff : -1;
        }
        if (chunkLeft == 0) {
            chunkLeft = readChunkSize();
            if (chunkLeft == 0) {
                return -1;
            }
        }
        int next = readByte();
        if (--chunkLeft == 0) {
            readLine(2);
        }
        return next;
    }

    private int readChunkSize() throws IOException {
        String line = readLine(256);
        int semicolon = line.indexOf(';');
        return parseSize(semicolon < 0 ? line : line.substring(0, semicolon), 16);
    }

    private static int parseSize(String text, int radix) throws ProtocolException {
        try {
            int size = Integer.parseInt(text.trim(), radix);
            if (size >= 0 && size <= MAX_BODY) {
                return size;
            }
        } catch (NumberFormatException invalid) {
            throw new ProtocolException("an invalid length in the response");
        }
        throw new ProtocolException("the response is larger than " + MAX_BODY + " bytes");
    }

    private void copy(ByteArrayOutputStream to, int count) throws IOException {
        for (int left = count; left > 0; ) {
            if (start == end && !fill()) {
                throw new EOFException("the connection ended within a response");
            }
            int part = Math.min(left, end - start);
            to.write(buffer, start, part);
            start += part;
            left -= part;
        }
        if (to.size() > MAX_BODY) {
            throw new ProtocolException("the response is larger than " + MAX_BODY + " bytes");
        }
    }

    private String readLine(int limit) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = readByte(); next != '\n'; next = readByte()) {
            line.append((char) next);
            if (line.length() > limit) {
                throw new ProtocolException("a line of the response is too long");
            }
        }
        int length = line.length();
        return length > 0 && line.charAt(length - 1) == '\r' ? line.substring(0, length - 1) : line.toString();
    }

    private int readByte() throws IOException {
        if (start == end && !fill()) {
            throw new EOFException("the connection ended before a response");
        }
        return buffer[start++] & 0xff;
    }

    private boolean fill() throws IOException {
        long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
        if (left <= 0) {
            throw new SocketTimeoutException("no reply in time");
        }
        int count = connection.read(buffer, 0, buffer.length, left);
        start = 0;
        end = Math.max(0, count);
        anyByteRead |= count > 0;
        return count > 0;
    }
}
