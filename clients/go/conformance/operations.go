package main

import (
	"context"
	"runtime"
	"sync"
	"time"

	"leasehold"
)

// The table of operations by name, and those that need no client: break a property, block the program, move the clock, cancel a request.

type operation func(*driver, context.Context, *request) (any, error)

type object = map[string]any

// operations is filled by init, because cancel and others refer to it.
var operations map[string]operation

func init() {
	operations = map[string]operation{
		"hello": hello, "break": breakProperty, "block": block, "advance_clock": advanceClock, "cancel": cancelRequest,
		"connect": connect, "close": closeClient, "session": sessionOf, "hold_many": holdMany, "held_count": heldCount,
		"acquire": acquire, "acquire_all": acquireAll, "resolve": resolve, "release": release, "token": token, "state": state,
		"remaining": remaining, "wait_state": waitState, "work": work, "finish": finish, "progress": progress, "put": put, "get": get,
		"fenced_write": fencedWrite, "handoff": handoff, "wait_draining": waitDraining, "finish_drain": finishDrain,
		"wait_claimable": waitClaimable, "queue_send": queueSend, "queue_receive": queueReceive, "queue_ack": queueAck,
		"queue_nack": queueNack, "queue_extend": queueExtend,
	}
}

func hello(*driver, context.Context, *request) (any, error) {
	return object{"client": "go", "version": leasehold.Version, "skips": object{"fork": "a Go program cannot fork without exec"}}, nil
}

// block keeps every processor of the user's side busy.
func block(_ *driver, _ context.Context, r *request) (any, error) {
	until := time.Now().Add(ms(r.MS))
	var group sync.WaitGroup
	release := occupyMainLoop()
	for range runtime.GOMAXPROCS(0) {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := uint64(1); ; n++ {
				if n&0xfffff == 0 && time.Now().After(until) {
					return
				}
			}
		}()
	}
	group.Wait()
	release()
	return nil, nil
}

func advanceClock(d *driver, _ context.Context, r *request) (any, error) {
	d.clock.ahead.Add(int64(ms(r.MS)))
	return nil, nil
}

func cancelRequest(d *driver, _ context.Context, r *request) (any, error) {
	d.mu.Lock()
	cancel := d.running[r.Request]
	d.mu.Unlock()
	if cancel == nil {
		return object{"canceled": false}, nil
	}
	cancel()
	return object{"canceled": true}, nil
}
