package leasehold

// eventQueueSize is how many events may wait for the handler.
const eventQueueSize = 1024

// eventQueue calls the event handler of a program, in order, from a goroutine of its own.
type eventQueue struct {
	events chan ClientEvent
	closed chan struct{}
}

func newEventQueue(handler func(ClientEvent)) *eventQueue {
	q := &eventQueue{events: make(chan ClientEvent, eventQueueSize), closed: make(chan struct{})}
	go q.run(handler)
	return q
}

// add queues an event. If the handler is that far behind, the event is dropped: nothing waits for the program.
func (q *eventQueue) add(event ClientEvent) {
	select {
	case q.events <- event:
	default:
	}
}

// close ends the goroutine, after it has passed on what is queued.
func (q *eventQueue) close() { close(q.closed) }

func (q *eventQueue) run(handler func(ClientEvent)) {
	for {
		select {
		case event := <-q.events:
			handler(event)
			continue
		case <-q.closed:
		}
		break
	}
	for {
		select {
		case event := <-q.events:
			handler(event)
		default:
			return
		}
	}
}
