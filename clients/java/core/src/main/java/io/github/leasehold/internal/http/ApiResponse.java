package io.github.leasehold.internal.http;

import java.util.Map;

/**
 * A complete response.
 *
 * @param status HTTP status
 * @param headers headers with their names in lower case
 * @param body body as text
 */
public record ApiResponse(int status, Map<String, String> headers, String body) {
    /** Whether the server accepted the request. */
    public boolean isSuccess() {
        return status >= 200 && status < 300;
    }
}
