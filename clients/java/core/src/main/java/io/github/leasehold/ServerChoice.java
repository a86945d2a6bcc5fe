package io.github.leasehold;

import io.github.leasehold.internal.http.ServerAddress;
import java.util.List;
import java.util.function.Consumer;

/** The configured servers, and the one that answered last. */
final class ServerChoice {
    private final List<ServerAddress> addresses;
    private volatile int preferred;
    private volatile Consumer<ServerAddress> onLeft = address -> {};

    ServerChoice(List<ServerAddress> addresses) {
        this.addresses = List.copyOf(addresses);
    }

    int count() {
        return addresses.size();
    }

    int preferred() {
        return preferred;
    }

    ServerAddress address(int index) {
        return addresses.get(index);
    }

    int after(int index) {
        return (index + 1) % addresses.size();
    }

    /** Index of a server that another one named; -1 if it is not configured, so that no credential is sent to it. */
    int indexOf(String named) {
        for (int index = 0; index < addresses.size(); index++) {
            if (addresses.get(index).isNamed(named)) {
                return index;
            }
        }
        return -1;
    }

    /** Called when another server answers than before. What still waits for the earlier one should try again. */
    void onLeft(Consumer<ServerAddress> action) {
        onLeft = action;
    }

    void prefer(int index) {
        int before = preferred;
        if (before != index) {
            preferred = index;
            onLeft.accept(addresses.get(before));
        }
    }
}
