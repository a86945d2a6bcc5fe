package io.github.leasehold.servlet;

import io.github.leasehold.LeaseholdException;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;

/**
 * Refuses requests with a stale fencing token before they reach a servlet.
 *
 * <pre>{@code
 * FenceFilter fence = FenceFilter.open(Path.of("settle.mark"), "00c0ffee00c0ffee", "jobs/settle");
 * context.addFilter("fence", fence).addMappingForUrlPatterns(EnumSet.of(DispatcherType.REQUEST, DispatcherType.ASYNC), true, "/invoices/*");
 * }</pre>
 *
 * <p>A request that can change something presents its token in the header {@code Lease-Token}. GET, HEAD, OPTIONS and TRACE pass without
 * one. A new holder claims with {@code POST /-/claim} before it reads. What is promised:
 *
 * <ul>
 *   <li>A request is in flight until its response is complete. A higher token is admitted only when no request is in flight; a claim waits
 *       for them for the claim timeout, then it fails with 503 and changes nothing.
 *   <li>After an unknown outcome (an exception, a response 502 or 504, or the end of the process) no higher token is admitted for the settle
 *       time.
 *   <li>The mark is on disk before a request under it passes. One process at a time uses a mark file.
 *   <li>If the mark is missing or damaged, everything is refused until an operator arms it.
 * </ul>
 *
 * <p>Not promised: requests that reach the servlet by another path or filter mapping are not stopped; the mark and the effect are not one
 * step; {@code Lease-Sequence} is not supported, and refused.
 */
public final class FenceFilter implements Filter, AutoCloseable {
    /** Path of a claim, below the context path. */
    public static final String CLAIM_PATH = "/-/claim";

    private static final Set<String> READS = Set.of("GET", "HEAD", "OPTIONS", "TRACE");
    private static final Set<String> METHOD_OVERRIDES = Set.of("x-http-method", "x-http-method-override", "x-method-override");

    private final TokenCheck check;
    private final Gate gate;
    private final Duration claimTimeout;

    private FenceFilter(TokenCheck check, Gate gate, Duration claimTimeout) {
        this.check = check;
        this.gate = gate;
        this.claimTimeout = claimTimeout;
    }

    /**
     * Arms the mark of a resource, once. An existing mark stays as it is.
     *
     * @param mark file of the mark
     * @param cluster id of the cluster that grants the leases, in 16 hexadecimal digits
     * @param resource name of the resource
     * @throws IOException if the file cannot be written
     */
    public static void arm(Path mark, String cluster, String resource) throws IOException {
        MarkFile.arm(mark, TokenCheck.of(cluster, resource, 0));
    }

    /**
     * Opens a fence with a claim timeout of 5 s and a settle time of 30 s.
     *
     * @param mark file of the mark
     * @param cluster id of the cluster
     * @param resource name of the resource
     * @return the filter
     * @throws IOException if the file cannot be read, or another process uses it
     */
    public static FenceFilter open(Path mark, String cluster, String resource) throws IOException {
        return open(mark, cluster, resource, Duration.ofSeconds(5), Duration.ofSeconds(30));
    }

    /**
     * Opens a fence.
     *
     * @param mark file of the mark
     * @param cluster id of the cluster
     * @param resource name of the resource
     * @param claimTimeout how long a claim waits for requests in flight
     * @param settleTime how long after an unknown outcome no higher token is admitted
     * @return the filter
     * @throws IOException if the file cannot be read, or another process uses it
     */
    public static FenceFilter open(Path mark, String cluster, String resource, Duration claimTimeout, Duration settleTime) throws IOException {
        TokenCheck check = TokenCheck.of(cluster, resource, 0);
        return new FenceFilter(check, new Gate(MarkFile.open(mark, check), settleTime), claimTimeout);
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest http) || !(response instanceof HttpServletResponse reply)) {
            throw new ServletException("the fence needs HTTP");
        }
        try {
            String path = http.getRequestURI().substring(http.getContextPath().length());
            if (path.equals(CLAIM_PATH) && http.getMethod().equals("POST")) {
                long number = check.verify(token(http));
                gate.claim(number, claimTimeout);
                Problems.done(reply, number);
            } else if (READS.contains(http.getMethod()) && METHOD_OVERRIDES.stream().allMatch(name -> http.getHeader(name) == null)) {
                chain.doFilter(request, response);
            } else {
                forward(http, reply, chain);
            }
        } catch (LeaseholdException refused) {
            Problems.write(reply, refused);
        }
    }

    private void forward(HttpServletRequest request, HttpServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (request.getHeader("Lease-Sequence") != null) {
            throw Problems.invalid("lease-sequence", "not supported by this fence; remove the header");
        }
        Gate.Passage passage = gate.enter(check.verify(token(request)), claimTimeout);
        boolean isAsync = false;
        boolean known = false;
        try {
            chain.doFilter(request, response);
            isAsync = request.isAsyncStarted();
            if (isAsync) {
                request.getAsyncContext().addListener(new AsyncEnd(passage, response));
            }
            known = isKnown(response);
        } finally {
            if (!isAsync) {
                passage.leave(known);
            }
        }
    }

    /** A gateway's status says that the request may still be executed elsewhere. */
    private static boolean isKnown(HttpServletResponse response) {
        return response.getStatus() != 502 && response.getStatus() != 504;
    }

    private static String token(HttpServletRequest request) {
        java.util.Enumeration<String> all = request.getHeaders("Lease-Token");
        String token = all != null && all.hasMoreElements() ? all.nextElement() : "";
        if (all != null && all.hasMoreElements()) {
            throw Problems.invalid("lease-token", "present more than once; send one token");
        }
        return token;
    }

    /** Releases the mark file. A clean end: the next process does not wait for the settle time. */
    @Override
    public void close() {
        gate.close();
    }

    @Override
    public void destroy() {
        close();
    }

    private record AsyncEnd(Gate.Passage passage, HttpServletResponse response) implements AsyncListener {
        @Override
        public void onComplete(AsyncEvent event) {
            passage.leave(isKnown(response));
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            passage.leave(false);
        }

        @Override
        public void onError(AsyncEvent event) {
            passage.leave(false);
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this);
        }
    }
}
