package io.github.leasehold.jdbc;

import io.github.leasehold.LeaseholdException;
import java.sql.SQLException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Converts errors of the PostgreSQL fence by their SQLSTATE. */
public final class FenceErrors {
    private static final Pattern VALUE = Pattern.compile("\\b(presented|mark|reason|incarnation)=(\\S+)");
    private static final Map<String, String> CODES = Map.of(
            "LH001", "STALE_TOKEN",
            "LH002", "TOKEN_INVALID",
            "LH003", "TOKEN_IMPLAUSIBLE",
            "LH004", "WRONG_CLUSTER",
            "LH005", "STORAGE_FAILED",
            "LH006", "UNAVAILABLE",
            "LH007", "STORAGE_FAILED",
            "LH008", "UNSUPPORTED_VERSION",
            "LH009", "CONFLICT",
            "LH010", "NOT_ADOPTED");

    private FenceErrors() {}

    /**
     * Converts an error of the fence. Frameworks that wrap exceptions of the driver call it with the original one.
     *
     * @param error an error of the driver
     * @return the error itself, if it is not of the fence
     * @throws LeaseholdException if the fence reported it; a stale token is a {@link io.github.leasehold.StaleTokenException}
     */
    public static SQLException convert(SQLException error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLException sql && sql.getSQLState() != null && CODES.containsKey(sql.getSQLState())) {
                throw of(sql);
            }
        }
        return error;
    }

    private static LeaseholdException of(SQLException error) {
        String text = String.valueOf(error.getMessage());
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("sqlstate", error.getSQLState());
        Matcher values = VALUE.matcher(text);
        while (values.find()) {
            fields.put(values.group(1), values.group(2));
        }
        String firstLine = text.lines().findFirst().orElse("").replaceFirst("^ERROR: ", "");
        String code = CODES.get(error.getSQLState());
        String detail = firstLine.startsWith(code + ": ") ? firstLine.substring(code.length() + 2) : firstLine;
        return LeaseholdException.of(code, detail, nextStep(text), fields, error);
    }

    /** The hint of the server, which is its advice. */
    private static String nextStep(String text) {
        return text.lines().map(String::strip).filter(line -> line.startsWith("Hint: ")).map(line -> line.substring("Hint: ".length())).findFirst()
                .orElse("Stop writing, and acquire the lease again.");
    }
}
