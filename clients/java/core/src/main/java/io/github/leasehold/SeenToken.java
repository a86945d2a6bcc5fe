package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;

/** The highest token that this client has seen. A server that lost its newest state recognizes it and stops granting. */
final class SeenToken {
    private record Seen(long number, String text, String resource) {}

    private volatile Seen highest = new Seen(0, null, null);

    void observe(long number, String text, String resource) {
        if (number > highest.number) {
            synchronized (this) {
                if (number > highest.number) {
                    highest = new Seen(number, text, resource);
                }
            }
        }
    }

    ApiRequest addTo(ApiRequest request) {
        Seen seen = highest;
        if (seen.text != null) {
            request.header("Lease-Token-Seen", seen.text).header("Lease-Token-Seen-Resource", Body.encode(seen.resource));
        }
        return request;
    }
}
