package io.github.leasehold;

/** An error of the driver itself, or a timeout of an operation that only waits. */
final class DriverException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String code;

    DriverException(String code, String message) {
        super(message);
        this.code = code;
    }

    String code() {
        return code;
    }
}
