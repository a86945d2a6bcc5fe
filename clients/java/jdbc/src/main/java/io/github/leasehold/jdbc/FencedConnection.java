package io.github.leasehold.jdbc;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;

/** A connection that presents a token until it is closed, and converts the errors of the fence. */
final class FencedConnection implements InvocationHandler {
    private final Connection target;
    private final String resource;
    private final long slot;
    private boolean closed;

    private FencedConnection(Connection target, String resource, long slot) {
        this.target = target;
        this.resource = resource;
        this.slot = slot;
    }

    static Connection wrap(Connection target, String resource, long slot) {
        return proxy(Connection.class, new FencedConnection(target, resource, slot));
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        switch (method.getName()) {
            case "close" -> {
                close();
                return null;
            }
            case "isClosed" -> {
                return closed || target.isClosed();
            }
            case "equals" -> {
                return proxy == arguments[0];
            }
            case "hashCode" -> {
                return System.identityHashCode(proxy);
            }
            default -> {
                return wrapStatement((Connection) proxy, call(target, method, arguments));
            }
        }
    }

    /** Removes the token, so that a pool does not pass it to its next user. A connection where that fails is aborted. */
    private void close() throws SQLException {
        if (closed) {
            return;
        }
        closed = true;
        try {
            if (!target.isClosed()) {
                boolean autoCommit = target.getAutoCommit();
                if (!autoCommit) {
                    target.rollback();
                    target.setAutoCommit(true);
                }
                try (PreparedStatement clear = target.prepareStatement("SELECT leasehold.clear_session_token(?, ?)")) {
                    clear.setString(1, resource);
                    clear.setLong(2, slot);
                    clear.execute();
                }
                target.setAutoCommit(autoCommit);
            }
        } catch (SQLException broken) {
            target.abort(Runnable::run);
        } finally {
            target.close();
        }
    }

    private static Object wrapStatement(Connection connection, Object result) {
        InvocationHandler handler = (proxy, method, arguments) ->
                switch (method.getName()) {
                    case "getConnection" -> connection;
                    case "equals" -> proxy == arguments[0];
                    case "hashCode" -> System.identityHashCode(proxy);
                    default -> call(result, method, arguments);
                };
        if (result instanceof CallableStatement) {
            return proxy(CallableStatement.class, handler);
        }
        if (result instanceof PreparedStatement) {
            return proxy(PreparedStatement.class, handler);
        }
        return result instanceof Statement ? proxy(Statement.class, handler) : result;
    }

    private static Object call(Object target, Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException thrown) {
            throw thrown.getCause() instanceof SQLException sql ? FenceErrors.convert(sql) : thrown.getCause();
        }
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader() == null ? FencedConnection.class.getClassLoader() : type.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
