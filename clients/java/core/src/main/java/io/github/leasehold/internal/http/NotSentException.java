package io.github.leasehold.internal.http;

import java.io.IOException;

/** No connection could be established, so the server cannot have received the request. */
public final class NotSentException extends IOException {
    private static final long serialVersionUID = 1;

    NotSentException(IOException cause) {
        super(cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage(), cause);
    }
}
