package io.github.leasehold;

import io.github.leasehold.internal.http.ServerAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.function.LongBinaryOperator;
import javax.net.ssl.SSLContext;

/**
 * Settings of a client.
 *
 * @param deadlineOrigin chooses from which of (sent, received) a local deadline counts. Always sent; the conformance driver breaks it on
 *     purpose, to see tests fail
 * @param renewalExecutor where a pass of the renewal thread runs. Always that thread itself; broken on purpose likewise
 */
record ClientSettings(
        List<ServerAddress> servers,
        String holder,
        Duration sessionTtl,
        Duration requestTimeout,
        SSLContext tls,
        Path bearerFile,
        HolderClock clock,
        LongBinaryOperator deadlineOrigin,
        Executor renewalExecutor) {

    long countFrom(long sent, long received) {
        return deadlineOrigin.applyAsLong(sent, received);
    }
}
