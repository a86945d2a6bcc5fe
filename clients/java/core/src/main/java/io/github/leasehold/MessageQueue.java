package io.github.leasehold;

import io.github.leasehold.internal.http.ApiRequest;
import io.github.leasehold.internal.http.Cancellation;
import io.github.leasehold.internal.json.Json;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A message queue: every message is with one worker at a time, until it is acknowledged or out of attempts. A delivery is a lease on its
 * message, with a fencing token.
 */
public final class MessageQueue {
    private final LeaseholdClient client;
    private final String name;
    private final Duration visibility;

    MessageQueue(LeaseholdClient client, String name, Duration visibility) {
        this.client = client;
        this.name = name;
        this.visibility = visibility;
    }

    /**
     * Number of messages by state.
     *
     * @param ready can be received now
     * @param delayed can be received later
     * @param inFlight received and not acknowledged
     * @param dead out of attempts
     */
    public record Stats(long ready, long delayed, long inFlight, long dead) {}

    /**
     * A message that is out of attempts.
     *
     * @param id id of the message
     * @param body body of the message
     * @param attempts how often it was delivered
     * @param reason how its last delivery ended; empty if unknown
     */
    public record DeadLetter(long id, byte[] body, long attempts, String reason) {}

    /**
     * Changes how long a received message is invisible to others, unless extended.
     *
     * @param visibility the time; 30 s by default
     * @return a queue with this setting
     */
    public MessageQueue visibility(Duration visibility) {
        return new MessageQueue(client, name, visibility);
    }

    /**
     * Sends text.
     *
     * @param body the text
     * @return id of the message, which is durable
     */
    public long send(String body) {
        return send(body.getBytes(StandardCharsets.UTF_8), SendOptions.defaults());
    }

    /**
     * Sends a message.
     *
     * @param body the message
     * @param options delay and number of attempts
     * @return id of the message, which is durable
     */
    public long send(byte[] body, SendOptions options) {
        return id(call("send", options.body(body)));
    }

    /**
     * Receives up to {@code limit} messages, oldest first. Each belongs to this client until its visibility or the session ends, or it is
     * acknowledged or returned.
     *
     * @param limit at most this many
     * @param wait how long to wait for the first one; zero returns at once
     * @return the messages; empty if there were none
     * @throws InterruptedException if the thread is interrupted; messages that arrive meanwhile are returned to the queue
     */
    public List<ReceivedMessage> receive(int limit, Duration wait) throws InterruptedException {
        return LeaseholdClient.awaitOrCancel(receiveAsync(limit, wait));
    }

    /**
     * Receives one message.
     *
     * @param wait how long to wait for it
     * @return the message; empty if there was none
     * @throws InterruptedException if the thread is interrupted
     */
    public Optional<ReceivedMessage> receive(Duration wait) throws InterruptedException {
        return receive(1, wait).stream().findFirst();
    }

    /**
     * Receives up to {@code limit} messages.
     *
     * @param limit at most this many
     * @param wait how long to wait for the first one
     * @return completes with the messages; canceling it returns messages that arrive later
     */
    public CompletableFuture<List<ReceivedMessage>> receiveAsync(int limit, Duration wait) {
        return client.submit(cancellation -> receive(limit, wait, cancellation), messages -> messages.forEach(ReceivedMessage::close));
    }

    /**
     * The remaining time of a delivery counts from before its request. So a long wait is several polls, each short compared with the
     * visibility.
     */
    private List<ReceivedMessage> receive(int limit, Duration wait, Cancellation cancellation) {
        long until = System.nanoTime() + wait.toNanos();
        long round = Math.max(1_000, visibility.toMillis() / 6);
        while (true) {
            long left = Math.max(0, TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime()));
            List<ReceivedMessage> received = poll(limit, Duration.ofMillis(Math.min(left, round)), cancellation);
            if (!received.isEmpty() || left <= round) {
                return received;
            }
        }
    }

    private List<ReceivedMessage> poll(int limit, Duration wait, Cancellation cancellation) {
        Session session = client.session(cancellation);
        String body = Body.object(
                "holder", session.holder, "session", session.id, "visibility", Body.duration(visibility), "limit", limit,
                "wait", wait.isZero() ? null : Body.duration(wait));
        // A message whose reply is lost returns after its visibility: the server stores no reply of a wait.
        ApiRequest request = session.authorize(ApiRequest.post(path("receive"), body)).header("Idempotency-Key", wait.isZero() ? session.nextKey() : null);
        long millis = wait.toMillis() + client.requestMillis();
        Servers.Reply reply = client.servers().send(request, millis, millis, cancellation);
        long counted = client.settings().countFrom(reply.sent(), client.clock().nanos());
        return Json.objects(reply.body(), "deliveries").stream().map(delivery -> new ReceivedMessage(this, session, delivery, counted)).toList();
    }

    /**
     * Number of messages by state.
     *
     * @return the numbers
     */
    public Stats stats() {
        Map<String, Object> body = client.query("/v1/queues/" + Body.path(name));
        return new Stats(count(body, "ready"), count(body, "delayed"), count(body, "in_flight"), count(body, "dead"));
    }

    /**
     * The first dead letters.
     *
     * @return the messages in the order of their ids
     */
    public List<DeadLetter> deadLetters() {
        Map<String, Object> body = client.query("/v1/queues/" + Body.path(name));
        return Json.objects(body, "dead_letters").stream()
                .map(letter -> new DeadLetter(
                        id(letter),
                        Body.bytes(letter, "body").orElse(new byte[0]),
                        count(letter, "attempts"),
                        Json.text(letter, "reason").orElse("")))
                .toList();
    }

    /**
     * Makes a dead message ready again, with all its attempts.
     *
     * @param id id of the message
     */
    public void redrive(long id) {
        call("redrive", Body.object("item", Long.toString(id)));
    }

    /**
     * Deletes a dead message.
     *
     * @param id id of the message
     */
    public void discard(long id) {
        call("drop", Body.object("item", Long.toString(id)));
    }

    LeaseholdClient client() {
        return client;
    }

    String name() {
        return name;
    }

    private String path(String verb) {
        return "/v1/queues/" + Body.path(name) + ":" + verb;
    }

    private Map<String, Object> call(String verb, String body) {
        return client.call(cancellation -> send(client.session(cancellation), verb, body, cancellation).body());
    }

    /** A command about a delivery. */
    Servers.Reply deliveryCall(Session session, String verb, String body) {
        return client.call(cancellation -> send(session, verb, body, cancellation));
    }

    /** A change with a key of the session, so that a lost reply is resolved. */
    private Servers.Reply send(Session session, String verb, String body, Cancellation cancellation) {
        ApiRequest request = session.authorize(ApiRequest.post(path(verb), body)).header("Idempotency-Key", session.nextKey());
        return client.servers().send(request, client.requestMillis(), client.requestMillis(), cancellation);
    }

    private static long id(Map<String, Object> body) {
        try {
            return Long.parseLong(Body.require(body, "item"));
        } catch (NumberFormatException invalid) {
            throw Body.invalidReply("the id is not a number", invalid);
        }
    }

    /** A counter, as a number or as decimal text. */
    private static long count(Map<String, Object> body, String field) {
        return Json.number(body, field).orElseGet(() -> Json.text(body, field).filter(text -> text.matches("\\d{1,18}")).map(Long::parseLong).orElse(0L));
    }
}
