package io.github.leasehold;

import io.github.leasehold.internal.http.PemFiles;
import io.github.leasehold.internal.http.ServerAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Executor;
import java.util.function.LongBinaryOperator;
import javax.net.ssl.SSLContext;

/** Settings of a {@link LeaseholdClient}. Created by {@link LeaseholdClient#builder}, which reads the environment first. */
public final class ClientBuilder {
    private static final String DEFAULT_SERVER = "127.0.0.1:7421";

    private String servers;
    private String holder = "java-" + ProcessHandle.current().pid() + "-" + UUID.randomUUID().toString().substring(0, 8);
    private Duration sessionTtl = Duration.ofSeconds(30);
    private Duration requestTimeout = Duration.ofSeconds(10);
    private Path tlsCa;
    private Path tlsCertificate;
    private Path tlsKey;
    private Path bearerFile;
    private HolderClock clock = HolderClock.system();
    private LongBinaryOperator deadlineOrigin = (sent, received) -> sent;
    private Executor renewalExecutor = Runnable::run;

    ClientBuilder(Map<String, String> environment) {
        servers = environment.getOrDefault("LEASEHOLD_ADDR", DEFAULT_SERVER);
        tlsCa = file(environment, "LEASEHOLD_TLS_CA");
        tlsCertificate = file(environment, "LEASEHOLD_TLS_CERT");
        tlsKey = file(environment, "LEASEHOLD_TLS_KEY");
        bearerFile = file(environment, "LEASEHOLD_BEARER_FILE");
    }

    private static Path file(Map<String, String> environment, String name) {
        String value = environment.get(name);
        return value == null || value.isEmpty() ? null : Path.of(value);
    }

    /**
     * Addresses of the servers, tried in order.
     *
     * @param addresses separated by commas: {@code HOST:PORT}, {@code http://HOST:PORT}, {@code https://HOST:PORT} or {@code unix:PATH}
     * @return this builder
     */
    public ClientBuilder servers(String addresses) {
        servers = addresses;
        return this;
    }

    /**
     * Name of this process, which others see as the holder.
     *
     * @param name the name; by default made of the process id and a random part
     * @return this builder
     */
    public ClientBuilder holder(String name) {
        holder = name;
        return this;
    }

    /**
     * Ttl of the session, and so of every lease without a ttl of its own.
     *
     * @param ttl the ttl; 30 s by default
     * @return this builder
     */
    public ClientBuilder sessionTtl(Duration ttl) {
        sessionTtl = ttl;
        return this;
    }

    /**
     * Longest time for a request with all its retries, beyond a wait that it contains.
     *
     * @param timeout the timeout; 10 s by default
     * @return this builder
     */
    public ClientBuilder requestTimeout(Duration timeout) {
        requestTimeout = timeout;
        return this;
    }

    /**
     * Verifies the servers with these CA certificates, and connects with TLS.
     *
     * @param ca PEM file
     * @return this builder
     */
    public ClientBuilder tlsCa(Path ca) {
        tlsCa = ca;
        return this;
    }

    /**
     * Identifies this client with a certificate.
     *
     * @param certificate PEM file of the certificate
     * @param key PEM file of its private key, as PKCS #8
     * @return this builder
     */
    public ClientBuilder tlsCertificate(Path certificate, Path key) {
        tlsCertificate = certificate;
        tlsKey = key;
        return this;
    }

    /**
     * Identifies this client with a bearer token. The file is read for each request, so it can be replaced.
     *
     * @param file file with the token
     * @return this builder
     */
    public ClientBuilder bearerFile(Path file) {
        bearerFile = file;
        return this;
    }

    /**
     * Replaces the clock, for tests.
     *
     * @param clock a clock that includes suspend
     * @return this builder
     */
    public ClientBuilder clock(HolderClock clock) {
        this.clock = clock;
        return this;
    }

    /** Breaks the rule that deadlines count from the request, so that the conformance suite sees its scenarios fail. */
    ClientBuilder deadlineOrigin(LongBinaryOperator origin) {
        deadlineOrigin = origin;
        return this;
    }

    /** Breaks the rule that renewals run on a thread of their own, likewise. */
    ClientBuilder renewalExecutor(Executor executor) {
        renewalExecutor = executor;
        return this;
    }

    /**
     * Creates the client. Nothing is connected yet.
     *
     * @return the client
     * @throws InvalidRequestException if a setting is invalid; it names the setting
     */
    public LeaseholdClient build() {
        if (sessionTtl.toMillis() < 100) {
            throw config("session_ttl", "at least 100 ms, not " + sessionTtl, null);
        }
        if (requestTimeout.toMillis() < 1) {
            throw config("request_timeout", "at least 1 ms, not " + requestTimeout, null);
        }
        if (holder == null || holder.isEmpty()) {
            throw config("holder", "empty; pass a name that people recognize", null);
        }
        List<ServerAddress> addresses;
        try {
            addresses = ServerAddress.parseAll(servers);
        } catch (IllegalArgumentException invalid) {
            throw config("servers", invalid.getMessage(), invalid);
        }
        if (bearerFile != null && !Files.isReadable(bearerFile)) {
            throw config("bearer_file", "cannot read " + bearerFile, null);
        }
        return new LeaseholdClient(new ClientSettings(
                addresses, holder, sessionTtl, requestTimeout, tls(), bearerFile, clock, deadlineOrigin, renewalExecutor));
    }

    /** All three files, or none. With a bearer token the CA certificates are enough. */
    private SSLContext tls() {
        if (tlsCa == null && tlsCertificate == null && tlsKey == null) {
            return null;
        }
        boolean complete = tlsCa != null && (tlsCertificate == null) == (tlsKey == null) && (tlsCertificate != null || bearerFile != null);
        if (!complete) {
            String missing = tlsCa == null ? "tls_ca" : tlsCertificate == null ? "tls_cert" : "tls_key";
            throw config(missing, "missing; set tls_ca, tls_cert and tls_key together, or tls_ca and bearer_file", null);
        }
        try {
            return PemFiles.context(tlsCa, tlsCertificate, tlsKey);
        } catch (IllegalArgumentException invalid) {
            throw config("tls_ca", invalid.getMessage(), invalid);
        }
    }

    private static InvalidRequestException config(String key, String reason, Throwable cause) {
        return new InvalidRequestException(
                new Problem("CONFIG", key + ": " + reason, "Change the setting and try again.", Map.of("key", key, "field", key, "reason", reason), cause));
    }
}
