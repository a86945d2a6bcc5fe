package io.github.leasehold;

import io.github.leasehold.internal.json.Json;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A message that this client works on. Acknowledge it when the work is done; {@link #close} returns it to the queue otherwise.
 */
public final class ReceivedMessage implements AutoCloseable {
    private final MessageQueue queue;
    private final Session session;
    private final String item;
    private final String receipt;
    private final String token;
    private final byte[] body;
    private final long attempt;
    private final AtomicBoolean settled = new AtomicBoolean();
    private volatile long deadline;

    ReceivedMessage(MessageQueue queue, Session session, Map<String, Object> delivery, long sent) {
        this.queue = queue;
        this.session = session;
        item = Body.require(delivery, "item");
        receipt = Body.require(delivery, "receipt");
        token = Json.text(delivery, "token").orElse("");
        body = Body.bytes(delivery, "body").orElse(new byte[0]);
        attempt = Json.number(delivery, "attempt").orElse(1);
        deadline = sent + ClockDrift.shrink(Body.requireNumber(delivery, "remaining_ms"));
    }

    /**
     * Id of the message.
     *
     * @return the id, which rises with every message of the queue
     */
    public long id() {
        return Long.parseLong(item);
    }

    /**
     * Receipt of this delivery: the number of its token.
     *
     * @return the number as text
     */
    public String receipt() {
        return receipt;
    }

    /**
     * Body of the message.
     *
     * @return the bytes
     */
    public byte[] body() {
        return body.clone();
    }

    /**
     * Body of the message as text.
     *
     * @return the bytes, decoded as UTF-8
     */
    public String text() {
        return new String(body, StandardCharsets.UTF_8);
    }

    /**
     * Number of this delivery.
     *
     * @return 1 for the first one
     */
    public long attempt() {
        return attempt;
    }

    /**
     * Text of the fencing token of this delivery. Present it to fences.
     *
     * @return the token
     */
    public String token() {
        return token;
    }

    /**
     * Time until the message may be delivered to others, by the local clock. It ends earlier if the session does.
     *
     * @return the time; zero if it has passed
     */
    public Duration remaining() {
        long until = Math.min(deadline, session.deadline());
        return session.hasEnded() ? Duration.ZERO : Duration.ofNanos(Math.max(0, until - queue.client().clock().nanos()));
    }

    /**
     * Acknowledges the message, which deletes it.
     *
     * @throws LeaseholdException if it belongs to another worker now
     */
    public void ack() {
        queue.deliveryCall(session, "ack", reference(null, null));
        settled.set(true);
    }

    /**
     * Returns the message to the queue.
     *
     * @param delay time before it can be received again
     */
    public void nack(Duration delay) {
        settled.set(true);
        queue.deliveryCall(session, "nack", reference("delay", delay.isZero() ? null : Body.duration(delay)));
    }

    /**
     * Keeps the message invisible to others for longer.
     *
     * @param visibility time from now on
     */
    public void extend(Duration visibility) {
        Servers.Reply reply = queue.deliveryCall(session, "extend", reference("visibility", Body.duration(visibility)));
        long left = Json.number(reply.body(), "remaining_ms").orElse(visibility.toMillis());
        deadline = queue.client().settings().countFrom(reply.sent(), queue.client().clock().nanos()) + ClockDrift.shrink(left);
    }

    /** Returns the message to the queue unless it was acknowledged. A failure is not thrown: its visibility then ends by itself. */
    @Override
    public void close() {
        if (settled.compareAndSet(false, true)) {
            try {
                queue.deliveryCall(session, "nack", reference(null, null));
            } catch (LeaseholdException | IllegalStateException notConfirmed) {
                // Others receive it when its visibility ends.
            }
        }
    }

    private String reference(String field, String value) {
        Map<String, Object> fields = Body.map("item", item, "receipt", receipt);
        if (value != null) {
            fields.put(field, value);
        }
        return Json.write(fields);
    }
}
