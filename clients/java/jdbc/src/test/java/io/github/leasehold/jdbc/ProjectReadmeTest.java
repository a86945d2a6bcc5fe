package io.github.leasehold.jdbc;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.testkit.LeaseholdServer;
import io.github.leasehold.testkit.PostgresServer;
import java.sql.Statement;
import java.time.Duration;
import javax.sql.DataSource;
import org.junit.jupiter.api.Test;
import org.postgresql.ds.PGSimpleDataSource;

/** The snippet of the repository's README. {@code crates/cli/tests/readme.rs} compares it with this file. */
class ProjectReadmeTest {
    private static void settle(LeaseholdServer server, DataSource pool) throws Exception {
        AcquireOptions patient = AcquireOptions.defaults().wait(Duration.ofMinutes(1));
        try (LeaseholdClient client = LeaseholdClient.of(server.address()); Lease lease = client.acquire("jobs/settle", patient)) {
            FencedDataSource fenced = FencedDataSource.claim(pool, lease); // before anything is read
            fenced.write(connection -> { // check and write are one step
                try (Statement statement = connection.createStatement()) {
                    return statement.executeUpdate("INSERT INTO paid VALUES (7, 1200)");
                }
            });
        }
    }

    @Test
    void theSnippetOfTheReadmeWritesUnderItsLease() throws Exception {
        try (LeaseholdServer server = LeaseholdServer.start(); PostgresServer postgres = PostgresServer.start()) {
            postgres.protect("jobs/settle", server.cluster());
            PGSimpleDataSource pool = new PGSimpleDataSource();
            pool.setUrl(postgres.url("app"));
            settle(server, pool);
            assertEquals("7|1200", postgres.psql("SELECT id, cents FROM paid").strip());
        }
    }
}
