package io.github.leasehold.jdbc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.github.leasehold.AcquireOptions;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.testkit.LeaseholdServer;
import io.github.leasehold.testkit.PostgresServer;
import io.github.leasehold.testkit.TestProcess;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/**
 * A program that knows nothing of fences writes over JDBC: the token in the URL is enough, and a late write is refused. See
 * docs/how-to/fence/unmodified-programs.md.
 */
class ConnectionSettingTest {
    private static final String RESOURCE = "jobs/settle";
    private static final AcquireOptions WAIT = AcquireOptions.defaults().wait(Duration.ofSeconds(30));

    /** A program of its own: writes twice, and prints the SQLSTATE of a refusal. */
    static final class Program {
        private Program() {}

        public static void main(String[] arguments) throws SQLException {
            try (Connection connection = DriverManager.getConnection(arguments[0]); Statement statement = connection.createStatement()) {
                insertTwice(statement);
                System.out.println("written");
            } catch (SQLException refused) {
                System.out.println(refused.getSQLState());
            }
        }
    }

    private static void insertTwice(Statement statement) throws SQLException {
        for (int i = 0; i < 2; i++) {
            statement.executeUpdate("INSERT INTO paid SELECT count(*), 1200 FROM paid");
        }
    }

    private static String run(String url, Map<String, String> environment) {
        List<String> command =
                List.of(ProcessHandle.current().info().command().orElse("java"), "-cp", System.getProperty("java.class.path"), Program.class.getName(), url);
        try (TestProcess process = TestProcess.start(Path.of("."), environment, command)) {
            process.waitForExit();
            return String.join("\n", process.log());
        }
    }

    private static String claim(PostgresServer postgres, Lease lease) {
        postgres.psql("CALL leasehold.claim('" + lease.token() + "', '" + RESOURCE + "')");
        return postgres.url("app") + "&options=-c%20leasehold.token=" + lease.token();
    }

    @Test
    void theTokenInTheUrlIsEnough() throws Exception {
        try (LeaseholdServer server = LeaseholdServer.start();
                PostgresServer postgres = PostgresServer.start();
                LeaseholdClient client = LeaseholdClient.builder().servers(server.address()).holder("w-1").build()) {
            postgres.protect(RESOURCE, server.cluster());
            Lease late = client.acquire(RESOURCE, WAIT);
            String url = claim(postgres, late);
            HikariConfig config = new HikariConfig();
            config.setJdbcUrl(url);
            config.setMaximumPoolSize(1);
            try (HikariDataSource pool = new HikariDataSource(config)) {
                for (int i = 0; i < 2; i++) {
                    try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
                        insertTwice(statement);
                    }
                }
                assertEquals("written", run(url, Map.of()));
                assertEquals("6", postgres.psql("SELECT count(*) FROM paid").strip());
                Map<String, String> pgoptions = Map.of("PGOPTIONS", "-c leasehold.token=" + late.token());
                assertEquals("LH002", run(postgres.url("app"), pgoptions), "the driver does not read PGOPTIONS: its row on the page says so");
                late.close();
                claim(postgres, client.acquire(RESOURCE, WAIT));
                try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
                    assertEquals("LH001", assertThrows(SQLException.class, () -> insertTwice(statement)).getSQLState());
                }
                assertEquals("LH001", run(url, Map.of()));
                assertEquals("6", postgres.psql("SELECT count(*) FROM paid").strip());
            }
        }
    }
}
