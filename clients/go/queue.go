package leasehold

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Queues, whose messages are delivered under a lease each: send, receive, acknowledge, and a worker loop.

const (
	defaultVisibility = 30 * time.Second
	// receiveWait is one long poll of a worker.
	receiveWait = 20 * time.Second
)

// Queue delivers messages so that one worker at a time has each of them. It needs no setup: a queue exists while it has messages.
type Queue struct {
	client     *Client
	name       string
	visibility time.Duration
}

// QueueOption configures a queue.
type QueueOption func(*Queue)

// WithVisibility sets how long a received message is invisible to others, unless extended. Default: 30 s.
func WithVisibility(d time.Duration) QueueOption { return func(q *Queue) { q.visibility = d } }

// Queue returns the queue of this name.
func (c *Client) Queue(name string, options ...QueueOption) *Queue {
	q := &Queue{client: c, name: name, visibility: defaultVisibility}
	for _, option := range options {
		option(q)
	}
	return q
}

// SendOption configures a message.
type SendOption func(*sendBody)

type sendBody struct {
	Body        string `json:"body_base64"`
	Delay       string `json:"delay,omitempty"`
	MaxAttempts uint32 `json:"max_attempts,omitempty"`
}

// WithDelay sets the time before the message can be received.
func WithDelay(d time.Duration) SendOption { return func(b *sendBody) { b.Delay = durationText(d) } }

// WithMaxAttempts sets how often the message is delivered before it is dead. Default: 5.
func WithMaxAttempts(n uint32) SendOption { return func(b *sendBody) { b.MaxAttempts = n } }

// Send sends a message. It is durable when this returns. The result is its id.
func (q *Queue) Send(ctx context.Context, body []byte, options ...SendOption) (string, error) {
	request := sendBody{Body: base64.StdEncoding.EncodeToString(body)}
	for _, option := range options {
		option(&request)
	}
	var reply struct {
		Item string `json:"item"`
	}
	err := q.client.keyed(ctx, q.path(":send"), request, &reply)
	return reply.Item, err
}

func (q *Queue) path(verb string) string { return namePath("/v1/queues/", q.name, verb) }

// Message is a delivery: a lease on a message of a queue. The receipt is its token.
type Message struct {
	ID      string
	Attempt int
	Body    []byte

	queue   *Queue
	receipt string
	token   string
	secret  string
	// deadline is local, in nanoseconds.
	deadline atomic.Int64
}

type deliveryBody struct {
	Item        string `json:"item"`
	Receipt     string `json:"receipt"`
	Attempt     int    `json:"attempt"`
	Body        string `json:"body_base64"`
	RemainingMS int64  `json:"remaining_ms"`
	Token       string `json:"token"`
	Secret      string `json:"secret"`
}

// Receive waits up to wait for messages, and returns at most limit of them; none if the wait ended.
func (q *Queue) Receive(ctx context.Context, limit int, wait time.Duration) ([]*Message, error) {
	if limit < 1 || limit > 1024 {
		return nil, invalidArgument("limit", "from 1 to 1024")
	}
	open, err := q.client.currentSession(ctx)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"holder": q.client.config.holder, "session": open.id, "visibility": durationText(q.visibility), "limit": limit}
	if wait > 0 {
		body["wait"] = durationText(wait)
	}
	var reply struct {
		Deliveries []deliveryBody `json:"deliveries"`
	}
	sent := q.client.clock.Now()
	header := open.header()
	key := open.nextKey()
	if wait == 0 {
		// A long poll has no key: a message whose reply is lost returns after its visibility.
		header.Set("Idempotency-Key", key)
	}
	sendCtx, cancel := context.WithTimeout(ctx, wait+q.client.config.requestTimeout)
	defer cancel()
	err = q.client.pool.send(sendCtx, &request{
		method: http.MethodPost, path: q.path(":receive"), body: body, header: header, follow: wait > 0,
		attempt: wait + q.client.attemptTimeout(),
	}, &reply)
	if err != nil {
		if ctx.Err() != nil {
			// What was delivered becomes visible again after the visibility.
			return nil, context.Cause(ctx)
		}
		return nil, asClientError(err, key)
	}
	messages := make([]*Message, 0, len(reply.Deliveries))
	for _, delivery := range reply.Deliveries {
		content, err := base64.StdEncoding.DecodeString(delivery.Body)
		if err != nil {
			return nil, invalidReply("a message that is not base64", err)
		}
		message := &Message{
			ID: delivery.Item, Attempt: delivery.Attempt, Body: content, queue: q, receipt: delivery.Receipt, token: delivery.Token,
			secret: delivery.Secret,
		}
		message.deadline.Store(int64(sent + shrink(millis(delivery.RemainingMS))))
		messages = append(messages, message)
	}
	return messages, nil
}

// Token returns the fencing token of the delivery, for a fence at the target of the effect. Each message is guarded by the queue's name, a slash
// and the message's id.
func (m *Message) Token() string { return m.token }

// Receipt returns the number of the delivery's token.
func (m *Message) Receipt() string { return m.receipt }

// Remaining returns how long this worker has the message, by the local clock.
func (m *Message) Remaining() time.Duration {
	return max(0, time.Duration(m.deadline.Load())-m.queue.client.clock.Now())
}

func (m *Message) call(ctx context.Context, verb string, extra map[string]string) error {
	body := map[string]string{"item": m.ID, "receipt": m.receipt}
	for key, value := range extra {
		body[key] = value
	}
	open, err := m.queue.client.currentSession(ctx)
	if err != nil {
		return err
	}
	header := open.header()
	if m.secret != "" {
		header.Set("Lease-Secret", m.secret)
	}
	return open.keyed(ctx, &request{method: http.MethodPost, path: m.queue.path(verb), body: body, header: header}, nil)
}

// Ack removes the message: its work is done.
func (m *Message) Ack(ctx context.Context) error { return m.call(ctx, ":ack", nil) }

// Nack returns the message to the queue, after a delay. It has used an attempt.
func (m *Message) Nack(ctx context.Context, delay time.Duration) error {
	return m.call(ctx, ":nack", map[string]string{"delay": durationText(delay)})
}

// Extend keeps the message for this long from now.
func (m *Message) Extend(ctx context.Context, visibility time.Duration) error {
	sent := m.queue.client.clock.Now()
	if err := m.call(ctx, ":extend", map[string]string{"visibility": durationText(visibility)}); err != nil {
		return err
	}
	m.deadline.Store(int64(sent + shrink(visibility)))
	return nil
}

// Work receives messages and runs work for each, one after the other, until ctx ends. A message is extended for as long as its work takes; the
// context of the work ends at the local deadline of the message. If work returns nil the message is acknowledged, otherwise it is returned
// to the queue. Work returns nil when ctx ends.
func (q *Queue) Work(ctx context.Context, work func(context.Context, *Message) error) error {
	for ctx.Err() == nil {
		messages, err := q.Receive(ctx, 1, receiveWait)
		var problem *Error
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &problem) && (problem.IsRetryable() || problem.IsOutcomeUnknown() || problem.isSessionEnd()):
			if !sleep(ctx, time.Second) {
				return nil
			}
		case err != nil:
			return err
		}
		for _, message := range messages {
			if err := message.run(ctx, work); err != nil {
				q.client.report(ClientEvent{Kind: "message_returned", Resource: q.name, Err: err})
			}
		}
	}
	return nil
}

// run works on one message.
func (m *Message) run(ctx context.Context, work func(context.Context, *Message) error) error {
	workCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The message is kept until the work has returned, also after ctx has ended: no other worker gets it meanwhile.
	keepCtx, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	isLost := false
	done := make(chan error, 1)
	// After a long poll the deadline is close, because it counts from before the request.
	if m.Remaining() < m.queue.visibility/2 {
		if err := m.Extend(ctx, m.queue.visibility); err != nil {
			return err
		}
	}
	go func() { done <- work(workCtx, m) }()
	due := m.queue.client.clock.Now() + m.queue.visibility/3
	ticker := time.NewTicker(max(time.Millisecond, min(pollInterval, m.queue.visibility/10)))
	defer ticker.Stop()
	extended := make(chan error, 1)
	extending := false
	for {
		select {
		case err := <-done:
			// The outcome is reported even if ctx has ended.
			endCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), m.queue.client.config.requestTimeout)
			defer stop()
			if err != nil {
				return errors.Join(err, m.Nack(endCtx, 0))
			}
			return m.Ack(endCtx)
		case err := <-extended:
			extending = false
			var problem *Error
			if errors.As(err, &problem) && !problem.IsRetryable() && !problem.IsOutcomeUnknown() {
				isLost = true
				cancel(err)
			}
		case <-ticker.C:
			now := m.queue.client.clock.Now()
			if m.Remaining() == 0 {
				cancel(ErrSuspended)
			}
			if now >= due && !extending && !isLost {
				due, extending = now+m.queue.visibility/3, true
				go func() { extended <- m.Extend(keepCtx, m.queue.visibility) }()
			}
		}
	}
}

// QueueStats counts the messages of a queue by state.
type QueueStats struct {
	Ready    uint64 `json:"ready"`
	Delayed  uint64 `json:"delayed"`
	InFlight uint64 `json:"in_flight"`
	Dead     uint64 `json:"dead"`
}

// Stats counts the messages of the queue. The answer may be outdated when it arrives.
func (q *Queue) Stats(ctx context.Context) (*QueueStats, error) {
	var reply QueueStats
	if err := q.client.query(ctx, q.path(""), nil, &reply); err != nil {
		return nil, err
	}
	return &reply, nil
}

// Redrive returns a dead message to the queue, with all its attempts.
func (q *Queue) Redrive(ctx context.Context, id string) error {
	return q.client.keyed(ctx, q.path(":redrive"), map[string]string{"item": id}, nil)
}

// Drop discards a dead message.
func (q *Queue) Drop(ctx context.Context, id string) error {
	return q.client.keyed(ctx, q.path(":drop"), map[string]string{"item": id}, nil)
}
