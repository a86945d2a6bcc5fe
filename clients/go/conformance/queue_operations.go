package main

import (
	"context"
	"fmt"

	"leasehold"
)

// Operations on queues and their messages: send, receive, acknowledge, return and extend.

func (d *driver) queue(r *request) (*leasehold.Queue, error) {
	client, err := d.client(r.Client)
	if err != nil {
		return nil, err
	}
	var options []leasehold.QueueOption
	if r.VisibilityMS > 0 {
		options = append(options, leasehold.WithVisibility(ms(r.VisibilityMS)))
	}
	return client.Queue(r.Queue, options...), nil
}

func queueSend(d *driver, ctx context.Context, r *request) (any, error) {
	queue, err := d.queue(r)
	if err != nil {
		return nil, err
	}
	var options []leasehold.SendOption
	if r.DelayMS > 0 {
		options = append(options, leasehold.WithDelay(ms(r.DelayMS)))
	}
	if r.MaxAttempts > 0 {
		options = append(options, leasehold.WithMaxAttempts(r.MaxAttempts))
	}
	item, err := queue.Send(ctx, []byte(r.Body), options...)
	return object{"item": item}, err
}

func queueReceive(d *driver, ctx context.Context, r *request) (any, error) {
	queue, err := d.queue(r)
	if err != nil {
		return nil, err
	}
	messages, err := queue.Receive(ctx, max(1, r.Limit), ms(r.WaitMS))
	if err != nil {
		return nil, err
	}
	deliveries := []object{}
	for _, message := range messages {
		d.mu.Lock()
		d.messages[r.Queue+" "+message.ID+" "+message.Receipt()] = message
		d.mu.Unlock()
		deliveries = append(deliveries, object{"item": message.ID, "receipt": message.Receipt(), "attempt": message.Attempt,
			"body": string(message.Body), "token": message.Token()})
	}
	return object{"deliveries": deliveries}, nil
}

func (d *driver) message(r *request) (*leasehold.Message, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	message := d.messages[fmt.Sprintf("%s %v %v", r.Queue, r.Item, r.Receipt)]
	if message == nil {
		return nil, fmt.Errorf("no delivery of item %v with receipt %v", r.Item, r.Receipt)
	}
	return message, nil
}

func queueAck(d *driver, ctx context.Context, r *request) (any, error) {
	message, err := d.message(r)
	if err != nil {
		return nil, err
	}
	return nil, message.Ack(ctx)
}

func queueNack(d *driver, ctx context.Context, r *request) (any, error) {
	message, err := d.message(r)
	if err != nil {
		return nil, err
	}
	return nil, message.Nack(ctx, ms(r.DelayMS))
}

func queueExtend(d *driver, ctx context.Context, r *request) (any, error) {
	message, err := d.message(r)
	if err != nil {
		return nil, err
	}
	return nil, message.Extend(ctx, ms(r.VisibilityMS))
}
