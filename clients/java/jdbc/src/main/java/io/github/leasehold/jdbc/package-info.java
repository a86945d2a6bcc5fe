/** Fence for PostgreSQL over JDBC: {@link io.github.leasehold.jdbc.FencedDataSource} presents the token on every connection. */
package io.github.leasehold.jdbc;
