package io.github.leasehold.examples;

import io.github.leasehold.AcquireOptions;
import io.github.leasehold.Lease;
import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.StaleTokenException;
import io.github.leasehold.jdbc.FencedDataSource;
import java.sql.Connection;
import java.sql.Statement;
import java.time.Duration;
import org.postgresql.ds.PGSimpleDataSource;

/** Writes to a protected PostgreSQL table until a later holder takes over, whatever happens to this process in between. */
public final class FencedWriteExample {
    private FencedWriteExample() {}

    /** Arguments: the name of this worker, the URL of the database, the ttl in milliseconds. */
    public static void main(String[] arguments) throws Exception {
        PGSimpleDataSource database = new PGSimpleDataSource();
        database.setUrl(arguments[1]);
        Duration ttl = Duration.ofMillis(Long.parseLong(arguments[2]));
        try (LeaseholdClient client = LeaseholdClient.builder().holder(arguments[0]).sessionTtl(ttl).build();
                Lease lease = client.acquire("jobs/settle", AcquireOptions.defaults().wait(Duration.ofMinutes(1)));
                Connection connection = FencedDataSource.claim(database, lease).getConnection();
                Statement statement = connection.createStatement()) {
            System.out.println("claimed");
            while (true) {
                statement.executeUpdate("INSERT INTO paid (cents) VALUES (" + lease.tokenNumber() + ")");
                Thread.sleep(20);
            }
        } catch (StaleTokenException refused) {
            System.out.println(refused.getMessage());
            System.exit(3);
        }
    }
}
