package io.github.leasehold.internal.http;

import java.util.LinkedHashMap;
import java.util.Map;

/** One request: method, path with query, headers and a JSON body. */
public final class ApiRequest {
    private final String method;
    private final String path;
    private final String body;
    private final Map<String, String> headers = new LinkedHashMap<>();
    private boolean streams;

    private ApiRequest(String method, String path, String body) {
        this.method = method;
        this.path = path;
        this.body = body;
    }

    /** A query. */
    public static ApiRequest get(String path) {
        return new ApiRequest("GET", path, null);
    }

    /** A command with a JSON body. */
    public static ApiRequest post(String path, String body) {
        return new ApiRequest("POST", path, body);
    }

    /** Adds a header, unless the value is null. */
    public ApiRequest header(String name, String value) {
        if (value != null) {
            headers.put(name, value);
        }
        return this;
    }

    /** The response is a stream without an end. */
    public ApiRequest streaming() {
        streams = true;
        return this;
    }

    boolean isStreaming() {
        return streams;
    }

    String method() {
        return method;
    }

    String path() {
        return path;
    }

    String body() {
        return body;
    }

    Map<String, String> headers() {
        return headers;
    }

    @Override
    public String toString() {
        return method + " " + path;
    }
}
