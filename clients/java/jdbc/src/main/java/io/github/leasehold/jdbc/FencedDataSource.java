package io.github.leasehold.jdbc;

import io.github.leasehold.Lease;
import java.io.PrintWriter;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.Types;
import java.time.Duration;
import java.util.logging.Logger;
import javax.sql.DataSource;

/**
 * A data source whose connections present the fencing token of a lease, so that PostgreSQL checks it with every write to a protected table.
 *
 * <pre>{@code
 * try (Lease lease = client.acquire("jobs/settle")) {
 *     DataSource fenced = FencedDataSource.claim(pool, lease);
 *     try (Connection connection = fenced.getConnection(); Statement statement = connection.createStatement()) {
 *         statement.executeUpdate("INSERT INTO paid VALUES (7, 1200)");
 *     }
 * }
 * }</pre>
 *
 * <p>It works over any data source for PostgreSQL, also over a pool: a connection gets the token when it is taken, and loses it when it is
 * closed. Over PgBouncer in transaction mode it does not work, because a setting of the session does not stay with its client there; use
 * {@link #write} instead.
 *
 * <p>A refusal by the fence is thrown as {@link io.github.leasehold.LeaseholdException} with the {@link SQLException} as its cause; a stale
 * token (SQLSTATE {@code LH001}) is a {@link io.github.leasehold.StaleTokenException}.
 */
public final class FencedDataSource implements DataSource {
    private static final Duration CLAIM_TIMEOUT = Duration.ofSeconds(5);

    private final DataSource target;
    private final Lease lease;

    private FencedDataSource(DataSource target, Lease lease) {
        this.target = target;
        this.lease = lease;
    }

    /**
     * Claims the database for the holder of this lease: raises the mark, so that every earlier holder is refused from then on. Claim before
     * you read, so that no predecessor can change what you have read.
     *
     * @param target data source of the database
     * @param lease the lease; in an overlap handoff wait until it is claimable
     * @return the fenced data source
     * @throws io.github.leasehold.StaleTokenException if a later holder has claimed
     * @throws SQLException if the database cannot be reached
     */
    public static FencedDataSource claim(DataSource target, Lease lease) throws SQLException {
        try (Connection connection = target.getConnection()) {
            boolean autoCommit = connection.getAutoCommit();
            connection.setAutoCommit(true);
            try (PreparedStatement claim = connection.prepareStatement("CALL leasehold.claim(?, ?, ?, make_interval(secs => ?))")) {
                setLease(claim, lease);
                claim.setDouble(4, CLAIM_TIMEOUT.toMillis() / 1000.0);
                claim.execute();
            } finally {
                restore(connection, autoCommit);
            }
        } catch (SQLException refused) {
            throw FenceErrors.convert(refused);
        }
        return new FencedDataSource(target, lease);
    }

    /**
     * A fenced data source without a claim, for a holder that has claimed before, such as another process of the same lease.
     *
     * @param target data source of the database
     * @param lease the lease
     * @return the fenced data source
     */
    public static FencedDataSource of(DataSource target, Lease lease) {
        return new FencedDataSource(target, lease);
    }

    /**
     * Work inside one transaction.
     *
     * @param <T> type of its result
     */
    @FunctionalInterface
    public interface TransactionWork<T> {
        /**
         * Runs statements. The transaction is committed afterwards.
         *
         * @param connection the connection; do not commit or close it
         * @return the result
         * @throws SQLException what the database reports; the transaction is rolled back
         */
        T run(Connection connection) throws SQLException;
    }

    /**
     * Runs a transaction that presents the token itself ({@code leasehold.admit}). Use it where a setting of the session is impossible, and
     * for long transactions: the server ends one that stalls longer than the lease remains.
     *
     * @param <T> type of the result
     * @param work the statements
     * @return the result of the work
     * @throws io.github.leasehold.StaleTokenException if a later holder has claimed; nothing was written
     * @throws SQLException what the database reports
     */
    public <T> T write(TransactionWork<T> work) throws SQLException {
        lease.requireHeld();
        try (Connection connection = target.getConnection()) {
            boolean autoCommit = connection.getAutoCommit();
            connection.setAutoCommit(false);
            try {
                try (PreparedStatement admit = connection.prepareStatement("SELECT leasehold.admit(?, ?, ?, make_interval(secs => ?))")) {
                    setLease(admit, lease);
                    admit.setDouble(4, remainingSeconds());
                    admit.execute();
                }
                T result = work.run(connection);
                connection.commit();
                return result;
            } catch (SQLException | RuntimeException | Error failed) {
                rollBack(connection, failed);
                throw failed;
            } finally {
                restore(connection, autoCommit);
            }
        } catch (SQLException refused) {
            throw FenceErrors.convert(refused);
        }
    }

    /** A data source may hand out the same connection again. One that is broken is not handed out, so its failure says nothing. */
    private static void restore(Connection connection, boolean autoCommit) {
        try {
            connection.setAutoCommit(autoCommit);
        } catch (SQLException broken) {
            // What happened before is reported.
        }
    }

    private static void rollBack(Connection connection, Throwable failed) {
        try {
            connection.rollback();
        } catch (SQLException broken) {
            failed.addSuppressed(broken);
        }
    }

    @Override
    public Connection getConnection() throws SQLException {
        return present(target.getConnection());
    }

    @Override
    public Connection getConnection(String user, String password) throws SQLException {
        return present(target.getConnection(user, password));
    }

    private Connection present(Connection connection) throws SQLException {
        try {
            lease.requireHeld();
            boolean autoCommit = connection.getAutoCommit();
            if (!autoCommit) {
                connection.setAutoCommit(true);
            }
            try (PreparedStatement token = connection.prepareStatement("CALL leasehold.set_session_token(?, ?, ?, make_interval(secs => ?))")) {
                setLease(token, lease);
                token.setDouble(4, remainingSeconds());
                token.execute();
            }
            if (!autoCommit) {
                connection.setAutoCommit(false);
            }
            return FencedConnection.wrap(connection, lease.resource(), slot(lease));
        } catch (SQLException refused) {
            connection.close();
            throw FenceErrors.convert(refused);
        } catch (RuntimeException notHeld) {
            connection.close();
            throw notHeld;
        }
    }

    private double remainingSeconds() {
        return Math.max(0.001, lease.remaining().toMillis() / 1000.0);
    }

    private static long slot(Lease lease) {
        return lease.slot().orElse(0);
    }

    private static void setLease(PreparedStatement statement, Lease lease) throws SQLException {
        statement.setString(1, lease.token());
        statement.setString(2, lease.resource());
        statement.setObject(3, slot(lease), Types.BIGINT);
    }

    @Override
    public PrintWriter getLogWriter() throws SQLException {
        return target.getLogWriter();
    }

    @Override
    public void setLogWriter(PrintWriter writer) throws SQLException {
        target.setLogWriter(writer);
    }

    @Override
    public void setLoginTimeout(int seconds) throws SQLException {
        target.setLoginTimeout(seconds);
    }

    @Override
    public int getLoginTimeout() throws SQLException {
        return target.getLoginTimeout();
    }

    @Override
    public Logger getParentLogger() throws SQLFeatureNotSupportedException {
        return target.getParentLogger();
    }

    @Override
    public <T> T unwrap(Class<T> type) throws SQLException {
        return type.isInstance(this) ? type.cast(this) : target.unwrap(type);
    }

    @Override
    public boolean isWrapperFor(Class<?> type) throws SQLException {
        return type.isInstance(this) || target.isWrapperFor(type);
    }
}
