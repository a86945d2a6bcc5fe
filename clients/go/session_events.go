package leasehold

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// eventSilence is how long the stream may be silent; the server sends a comment every 10 s.
const eventSilence = 25 * time.Second

type sessionEvent struct {
	Event    string `json:"event"`
	Lease    string `json:"lease"`
	Resource string `json:"resource"`
}

// followEvents listens to the events of the session. An event only means "ask now": losing the stream loses nothing, because every lease is
// asked about after a third of its ttl anyway.
func (s *session) followEvents() {
	pause := 100 * time.Millisecond
	for s.ctx.Err() == nil {
		started := time.Now()
		for _, server := range s.client.pool.order() {
			if s.readEvents(server) {
				break
			}
		}
		if time.Since(started) > 10*time.Second {
			pause = 100 * time.Millisecond
		}
		if !sleep(s.ctx, pause/2+s.jitter(pause/2)) {
			return
		}
		pause = min(2*pause, 10*time.Second)
	}
}

// readEvents reads one stream to its end, and returns whether the server answered with one.
func (s *session) readEvents(server *server) bool {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	silence := time.AfterFunc(eventSilence, cancel)
	defer silence.Stop()
	response, err := s.client.pool.open(ctx, server, &request{
		method: http.MethodGet, path: "/v1/sessions/" + s.id + "/events", header: s.header(), renewal: true,
	})
	if err != nil {
		return false
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
		if err == nil && ParseProblem(response.StatusCode, body).isSessionEnd() {
			// It ended while there was no stream.
			s.end(sessionEnded())
		}
		return false
	}
	// What happened while no stream was open.
	for _, l := range s.list() {
		l.askNow()
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		silence.Reset(eventSilence)
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		var event sessionEvent
		if json.Unmarshal([]byte(data), &event) != nil {
			continue
		}
		s.handleEvent(event)
	}
	return true
}

func (s *session) handleEvent(event sessionEvent) {
	if l := s.find(event.Lease); l != nil {
		l.askNow()
		return
	}
	switch event.Event {
	case "drained", "ended":
		// The event names the predecessor: its successor may claim.
		for _, l := range s.list() {
			if l.resource == event.Resource || event.Resource == "" {
				l.askNow()
			}
		}
	}
}
