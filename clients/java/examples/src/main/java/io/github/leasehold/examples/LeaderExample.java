package io.github.leasehold.examples;

import io.github.leasehold.LeaseholdClient;

/** One of all processes leads; when it ends or is paused, another one does. */
public final class LeaderExample {
    private LeaderExample() {}

    /** Leads once, and resigns. */
    public static void main(String[] arguments) throws Exception {
        try (LeaseholdClient client = LeaseholdClient.builder().holder("node-" + ProcessHandle.current().pid()).build()) {
            String result = client.election("jobs/leader").lead(leadership -> {
                System.out.println("leading with token " + leadership.token());
                return "resigned";
            });
            System.out.println(result);
        }
    }
}
