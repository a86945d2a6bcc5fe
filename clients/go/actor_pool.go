package leasehold

import (
	"container/heap"
	"strconv"
	"sync"
)

// maxActors is the number of unnamed actors of one session; further leases share them. The rest is for actors that programs name.
const maxActors = 4096 - 256

// namedActor marks a lease whose actor the program named.
const namedActor = -1

// actorPool gives each lease of a client an actor of its own, so that goroutines of one program exclude each other.
type actorPool struct {
	mu     sync.Mutex
	uses   []int
	free   intHeap
	shared int
}

func (p *actorPool) acquire() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var actor int
	switch {
	case len(p.free) > 0:
		actor = heap.Pop(&p.free).(int)
	case len(p.uses) < maxActors:
		p.uses = append(p.uses, 0)
		actor = len(p.uses) - 1
	default:
		p.shared = (p.shared + 1) % maxActors
		actor = p.shared
	}
	p.uses[actor]++
	return actor
}

// share counts more leases of the same actor.
func (p *actorPool) share(actor, count int) {
	if actor == namedActor {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uses[actor] += count
}

func (p *actorPool) release(actor int) {
	if actor == namedActor {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uses[actor]--
	if p.uses[actor] == 0 {
		heap.Push(&p.free, actor)
	}
}

// actorName returns the name of an actor; the first one has the session's own.
func actorName(actor int, holder string) string {
	if actor == 0 {
		return ""
	}
	suffix := "#" + strconv.Itoa(actor)
	return holder[:min(len(holder), maxHolder-len(suffix))] + suffix
}

type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *intHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
