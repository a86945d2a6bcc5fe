package io.github.leasehold.jdbc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.github.leasehold.AcquireOptions;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseLostException;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.StaleTokenException;
import io.github.leasehold.TokenRefusedException;
import io.github.leasehold.testkit.LeaseholdServer;
import io.github.leasehold.testkit.PostgresServer;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import javax.sql.DataSource;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.postgresql.ds.PGSimpleDataSource;

/** The JDBC fence, with a real server, a real PostgreSQL and a real pool. */
class FencedDataSourceTest {
    private static final String RESOURCE = "jobs/settle";
    private static LeaseholdServer server;
    private static PostgresServer postgres;

    private LeaseholdClient client;

    @BeforeAll
    static void startServers() {
        server = LeaseholdServer.start();
        postgres = PostgresServer.start();
        postgres.protect(RESOURCE, server.cluster());
    }

    @AfterAll
    static void stopServers() {
        postgres.close();
        server.close();
    }

    @BeforeEach
    void emptyTable() throws Exception {
        client = LeaseholdClient.builder().servers(server.address()).holder("w-1").build();
        try (Lease lease = lease(); Connection connection = FencedDataSource.claim(app(), lease).getConnection(); Statement statement = connection.createStatement()) {
            statement.executeUpdate("DELETE FROM paid");
        }
    }

    @AfterEach
    void closeClient() {
        client.close();
    }

    private Lease lease() throws InterruptedException {
        return client.acquire(RESOURCE, AcquireOptions.defaults().wait(Duration.ofSeconds(30)));
    }

    private static DataSource app() {
        PGSimpleDataSource source = new PGSimpleDataSource();
        source.setUrl(postgres.url("app"));
        return source;
    }

    private static void insert(Connection connection, int id) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO paid VALUES (?, 1200)")) {
            insert.setInt(1, id);
            assertEquals(1, insert.executeUpdate());
        }
    }

    private static String ids() {
        return postgres.psql("SELECT coalesce(string_agg(id::text, ' ' ORDER BY id), '') FROM paid").strip();
    }

    @Test
    void aCurrentHolderWrites() throws Exception {
        try (Lease lease = lease()) {
            DataSource fenced = FencedDataSource.claim(app(), lease);
            try (Connection connection = fenced.getConnection()) {
                insert(connection, 1);
                connection.setAutoCommit(false);
                insert(connection, 2);
                insert(connection, 3);
                connection.commit();
            }
            assertEquals("1 2 3", ids());
        }
    }

    @Test
    void aWriteWithoutATokenIsRefused() throws Exception {
        try (Connection connection = app().getConnection()) {
            SQLException refused = assertThrows(SQLException.class, () -> insert(connection, 1));
            assertEquals("LH002", refused.getSQLState());
            assertThrows(TokenRefusedException.class, () -> FenceErrors.convert(refused));
        }
        SQLException another = new SQLException("not of the fence", "42601");
        assertEquals(another, FenceErrors.convert(another));
        assertEquals("", ids());
    }

    @Test
    void aSuccessorsClaimRefusesTheLateWriteOfItsPredecessor() throws Exception {
        Lease first = lease();
        FencedDataSource old = FencedDataSource.claim(app(), first);
        try (Connection open = old.getConnection()) {
            insert(open, 1);
            // The server grants the lease to another holder, while the first one is paused and believes that it holds it.
            server.post("/v1/leases/" + RESOURCE + ":revoke", "{\"comment\":\"test\"}");
            try (LeaseholdClient other = LeaseholdClient.builder().servers(server.address()).holder("w-2").build();
                    Lease second = other.acquire(RESOURCE, AcquireOptions.defaults().wait(Duration.ofSeconds(30)))) {
                FencedDataSource current = FencedDataSource.claim(app(), second);
                StaleTokenException stale = assertThrows(StaleTokenException.class, () -> insert(open, 2));
                assertEquals(Long.toString(first.tokenNumber()), stale.presented().orElseThrow());
                assertEquals(Long.toString(second.tokenNumber()), stale.mark().orElseThrow());
                assertEquals("LH001", ((SQLException) stale.getCause()).getSQLState());
                assertFalse(stale.nextStep().isEmpty());
                current.write(connection -> {
                    insert(connection, 3);
                    return null;
                });
                assertThrows(StaleTokenException.class, () -> FencedDataSource.claim(app(), first));
            }
        }
        assertEquals("1 3", ids());
        assertThrows(LeaseLostException.class, first::check);
    }

    @Test
    void aTransactionPresentsTheTokenItself() throws Exception {
        try (Lease lease = lease()) {
            FencedDataSource fenced = FencedDataSource.claim(app(), lease);
            assertEquals("done", fenced.write(connection -> {
                insert(connection, 7);
                return "done";
            }));
            assertThrows(IllegalStateException.class, () -> fenced.write(connection -> {
                insert(connection, 8);
                throw new IllegalStateException("the work failed");
            }));
            assertEquals("7", ids(), "what failed was rolled back");
        }
    }

    @Test
    void aPoolDoesNotPassTheTokenToItsNextUser() throws Exception {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(postgres.url("app"));
        config.setMaximumPoolSize(1);
        config.setAutoCommit(false);
        try (HikariDataSource pool = new HikariDataSource(config); Lease lease = lease()) {
            DataSource fenced = FencedDataSource.claim(pool, lease);
            try (Connection connection = fenced.getConnection()) {
                assertFalse(connection.getAutoCommit(), "the setting of the pool stays");
                insert(connection, 1);
                connection.commit();
                insert(connection, 2);
            }
            try (Connection connection = pool.getConnection()) {
                SQLException refused = assertThrows(SQLException.class, () -> insert(connection, 3));
                assertEquals("LH002", refused.getSQLState());
                connection.rollback();
            }
            try (Connection connection = fenced.getConnection()) {
                assertTrue(connection.isWrapperFor(org.postgresql.PGConnection.class));
                insert(connection, 4);
                connection.commit();
            }
            assertEquals("1 4", ids(), "the uncommitted insert was rolled back");
        }
    }

    /** A data source that hands out the same connection again and again, and closes none. */
    private static DataSource single(Connection connection) {
        Connection kept = (Connection) Proxy.newProxyInstance(FencedDataSourceTest.class.getClassLoader(), new Class<?>[] {Connection.class},
                (proxy, method, arguments) -> {
                    try {
                        return method.getName().equals("close") ? null : method.invoke(connection, arguments);
                    } catch (InvocationTargetException thrown) {
                        throw thrown.getCause();
                    }
                });
        return (DataSource) Proxy.newProxyInstance(FencedDataSourceTest.class.getClassLoader(), new Class<?>[] {DataSource.class},
                (proxy, method, arguments) -> kept);
    }

    @Test
    void aConnectionKeepsItsModeWhateverWasDoneWithIt() throws Exception {
        for (boolean autoCommit : new boolean[] {true, false}) {
            try (Connection connection = app().getConnection(); Lease lease = lease()) {
                connection.setAutoCommit(autoCommit);
                FencedDataSource fenced = FencedDataSource.claim(single(connection), lease);
                assertEquals(autoCommit, connection.getAutoCommit(), "after a claim");
                fenced.write(inside -> {
                    insert(inside, autoCommit ? 1 : 3);
                    return null;
                });
                assertEquals(autoCommit, connection.getAutoCommit(), "after a transaction");
                assertThrows(StackOverflowError.class, () -> fenced.write(inside -> {
                    insert(inside, 9);
                    throw new StackOverflowError("the work failed");
                }));
                assertEquals(autoCommit, connection.getAutoCommit(), "after an error");
                try (Connection plain = fenced.getConnection()) {
                    insert(plain, autoCommit ? 2 : 9);
                }
                assertEquals(autoCommit, connection.getAutoCommit(), "after it was closed");
            }
        }
        assertEquals("1 2 3", ids(), "what failed or was not committed is rolled back");
    }

    @Test
    void aLeaseThatIsNotHeldGivesNoConnection() throws Exception {
        Lease lease = lease();
        DataSource fenced = FencedDataSource.claim(app(), lease);
        lease.close();
        assertThrows(LeaseLostException.class, fenced::getConnection);
    }
}
