package io.github.leasehold.examples;

import io.github.leasehold.LeaseholdClient;
import io.github.leasehold.MessageQueue;
import io.github.leasehold.ReceivedMessage;
import java.time.Duration;
import java.util.Optional;

/** Sends three messages and works on them. A message that is not acknowledged returns to the queue. */
public final class QueueExample {
    private QueueExample() {}

    /** Sends, then receives until the queue is empty. */
    public static void main(String[] arguments) throws Exception {
        try (LeaseholdClient client = LeaseholdClient.builder().holder("worker-" + ProcessHandle.current().pid()).build()) {
            MessageQueue queue = client.queue("jobs/mail");
            for (int number = 1; number <= 3; number++) {
                queue.send("mail " + number);
            }
            Optional<ReceivedMessage> next;
            while ((next = queue.receive(Duration.ofSeconds(1))).isPresent()) {
                try (ReceivedMessage message = next.get()) {
                    System.out.println("sending " + message.text());
                    message.ack();
                }
            }
        }
    }
}
