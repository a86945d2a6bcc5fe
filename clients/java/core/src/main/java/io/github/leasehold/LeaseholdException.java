package io.github.leasehold;

import io.github.leasehold.internal.http.ApiResponse;
import io.github.leasehold.internal.json.Json;
import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/**
 * A refusal by a server or a fence, or a failure to reach one. The hierarchy is closed: these are all errors of the client.
 *
 * <p>Decide by the class, {@link #code} and {@link #isRetryable}, not by the text. The message is one line: what happened, with the values,
 * and the next step.
 */
public abstract sealed class LeaseholdException extends RuntimeException
        permits AccessDeniedException, BusyException, ConflictException, DeadlockException, InvalidRequestException, LeaseLostException,
                LeaseSuspendedException, LimitExceededException, NotFoundException, OutcomeUnknownException, ServerFailureException,
                StaleTokenException, TokenRefusedException, UnavailableException, WaitCanceledException, WaitTimeoutException {
    private static final long serialVersionUID = 1;

    /** The stable code. */
    private final String code;
    /** What happened, without the code. */
    private final String detail;
    /** What to do now. */
    private final String nextStep;
    private final transient Map<String, Object> fields;

    LeaseholdException(Problem problem) {
        super(problem.line(), problem.cause());
        code = problem.code();
        detail = problem.detail();
        nextStep = problem.nextStep();
        fields = problem.fields();
    }

    /**
     * The stable code, as listed in the reference of errors. A newer server may send a code that this version does not know.
     *
     * @return the code, such as {@code BUSY}
     */
    public final String code() {
        return code;
    }

    /**
     * What happened, without the code.
     *
     * @return the description of this occurrence
     */
    public final String detail() {
        return detail;
    }

    /**
     * What to do now.
     *
     * @return the next step; empty if the server named none
     */
    public final String nextStep() {
        return nextStep;
    }

    /**
     * Whether nothing happened, and the same request can be sent again later.
     *
     * @return true if a retry can succeed without a change of the request
     */
    public boolean isRetryable() {
        return false;
    }

    /**
     * A field of the code, such as {@code holder} of {@code BUSY}.
     *
     * @param name name of the field, as in the reference of errors
     * @return its value as text; empty if the error has no such field
     */
    public final Optional<String> field(String name) {
        return fields == null || fields.get(name) == null ? Optional.empty() : Optional.of(String.valueOf(fields.get(name)));
    }

    final Optional<Duration> millis(String name) {
        return fields != null && fields.get(name) instanceof Long ms ? Optional.of(Duration.ofMillis(ms)) : Optional.empty();
    }

    /**
     * Creates the exception of a code. Adapters use it to convert what a fence reports.
     *
     * @param code the stable code
     * @param detail what happened
     * @param nextStep what to do now; may be empty
     * @param fields the fields of the code
     * @param cause the original error, or null
     * @return the exception; a {@link ServerFailureException} if the code is unknown
     */
    public static LeaseholdException of(String code, String detail, String nextStep, Map<String, ?> fields, Throwable cause) {
        return create(new Problem(code, detail, nextStep, new LinkedHashMap<>(fields), cause), 500);
    }

    /** The exception of a response that is not a success. An unknown code is treated by its HTTP status. */
    static LeaseholdException of(ApiResponse response) {
        Map<String, Object> body;
        try {
            body = Json.parseObject(response.body());
        } catch (IOException notAProblem) {
            body = new LinkedHashMap<>();
        }
        String code = Json.text(body, "code").orElse("HTTP_" + response.status());
        String detail = Json.text(body, "detail").orElse("the server replied with status " + response.status());
        return create(new Problem(code, detail, Json.text(body, "next_step").orElse(""), body, null), response.status());
    }

    static LeaseholdException create(Problem problem, int status) {
        return switch (problem.code()) {
            case "BUSY", "HELD_FOR_OPERATOR" -> new BusyException(problem);
            case "TIMEOUT" -> new WaitTimeoutException(problem);
            case "CANCELLED" -> new WaitCanceledException(problem);
            case "DEADLOCK" -> new DeadlockException(problem);
            case "LEASE_LOST", "NOT_CURRENT" -> new LeaseLostException(problem);
            case "STALE_TOKEN" -> new StaleTokenException(problem);
            case "TOKEN_INVALID", "TOKEN_IMPLAUSIBLE", "WRONG_CLUSTER", "NOT_ADOPTED" -> new TokenRefusedException(problem);
            case "INVALID_ARGUMENT", "METHOD_NOT_ALLOWED", "UNSUPPORTED_VERSION", "CONFIG" -> new InvalidRequestException(problem);
            case "UNAUTHENTICATED", "PERMISSION_DENIED", "APPROVAL_REQUIRED" -> new AccessDeniedException(problem);
            case "NOT_FOUND" -> new NotFoundException(problem);
            case "CONFLICT", "ACCESS_CHANGE", "REQUEST_TOO_OLD" -> new ConflictException(problem);
            case "RESOURCE_EXHAUSTED" -> new LimitExceededException(problem);
            case "UNAVAILABLE", "NOT_LEADER", "QUARANTINED", "ROLLED_BACK", "STORAGE_FULL" -> new UnavailableException(problem);
            case "INDETERMINATE" -> new OutcomeUnknownException(problem, null);
            default -> ofUnknownCode(problem, status);
        };
    }

    private static LeaseholdException ofUnknownCode(Problem problem, int status) {
        return switch (status) {
            case 400, 405 -> new InvalidRequestException(problem);
            case 401, 403, 428 -> new AccessDeniedException(problem);
            case 404 -> new NotFoundException(problem);
            case 408 -> new WaitTimeoutException(problem);
            case 409 -> new ConflictException(problem);
            case 410, 412 -> new LeaseLostException(problem);
            case 423 -> new BusyException(problem);
            case 429 -> new LimitExceededException(problem);
            case 503 -> new UnavailableException(problem);
            case 504 -> new OutcomeUnknownException(problem, null);
            default -> new ServerFailureException(problem);
        };
    }
}
