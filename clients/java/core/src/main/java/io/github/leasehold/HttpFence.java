package io.github.leasehold;

import io.github.leasehold.internal.http.ApiResponse;
import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;

/**
 * Presents the token of a lease to an HTTP service behind a fence, such as {@code leasehold fence http} or the servlet filter.
 *
 * <pre>{@code
 * HttpFence fence = new HttpFence(HttpClient.newHttpClient(), lease);
 * fence.claim(URI.create("http://127.0.0.1:7422"));              // before reading
 * fence.send(HttpRequest.newBuilder(invoices).POST(body).build());
 * }</pre>
 */
public final class HttpFence {
    /** Header that carries the token. */
    public static final String HEADER = "Lease-Token";

    private final HttpClient http;
    private final Lease lease;

    /**
     * A fence for requests under this lease.
     *
     * @param http the HTTP client to send with
     * @param lease the lease whose token is presented
     */
    public HttpFence(HttpClient http, Lease lease) {
        this.http = http;
        this.lease = lease;
    }

    /**
     * Claims the service for this holder: every earlier holder is refused from then on. Claim before you read.
     *
     * @param fence address of the fence
     * @throws StaleTokenException if a later holder has claimed
     * @throws UnavailableException if requests of an earlier holder are still in flight; retry later
     * @throws IOException if the fence cannot be reached
     * @throws InterruptedException if the thread is interrupted
     */
    public void claim(java.net.URI fence) throws IOException, InterruptedException {
        send(HttpRequest.newBuilder(fence.resolve("/-/claim")).POST(HttpRequest.BodyPublishers.noBody()).build());
    }

    /**
     * Sends a request with the token. It does not ask whether the lease is held: the fence decides.
     *
     * @param request the request
     * @return the response of the service
     * @throws StaleTokenException if a later holder has claimed; the request did not reach the service
     * @throws TokenRefusedException if the fence refused the token for another reason
     * @throws IOException if the service cannot be reached
     * @throws InterruptedException if the thread is interrupted
     */
    public HttpResponse<String> send(HttpRequest request) throws IOException, InterruptedException {
        HttpRequest fenced = HttpRequest.newBuilder(request, (name, value) -> !name.equalsIgnoreCase(HEADER)).header(HEADER, lease.token()).build();
        HttpResponse<String> response = http.send(fenced, HttpResponse.BodyHandlers.ofString());
        String type = response.headers().firstValue("content-type").orElse("");
        if (response.statusCode() >= 400 && type.startsWith("application/problem+json") && response.body().contains("\"urn:leasehold:error:")) {
            throw LeaseholdException.of(new ApiResponse(response.statusCode(), Map.of(), response.body()));
        }
        return response;
    }
}
