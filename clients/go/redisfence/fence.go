// Package redisfence fences writes to Redis and Valkey through go-redis: a function of the server checks the token, stores the mark and runs the
// command in one step.
//
//	fence := redisfence.New(lease)
//	if err := fence.Claim(ctx, db); err != nil { … } // before the first read
//	paid := "{jobs/settle}:paid:7"                    // in a cluster: the resource's name in braces
//	_, err := fence.Write(ctx, db, []string{paid}, "SET", paid, 1200)
//	if errors.Is(err, leasehold.ErrStaleToken) { … } // a later holder has claimed
//
// [Install] loads the functions, once per primary, and [Arm] creates the mark, once per resource. See docs/how-to/fence/redis.md for what is
// promised.
//
// It is a module of its own, so that the client has no dependencies.
package redisfence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"leasehold"
	"leasehold/internal/mutant"
)

// Version of the functions that [Install] loads.
const Version = 3

// library is crates/fence/src/redis/fence.lua and functions.lua; a test compares them.
//
//go:embed leasehold.lua
var library string

// Source is the lease whose token is presented, usually a [*leasehold.Lease].
type Source interface {
	Resource() string
	Token() string
	Slot() (uint32, bool)
}

var _ Source = (*leasehold.Lease)(nil)

// Fence presents the token of one lease. It holds no connection, so it works with any.
type Fence struct {
	source Source
	tag    string
}

// New creates the fence of a lease. In a Redis cluster the mark is stored with the keys whose hash tag is the resource's name.
func New(source Source) *Fence { return &Fence{source: source, tag: source.Resource()} }

// WithHashTag stores the mark with the keys of this hash tag, for data that already has one. All holders must use the same tag.
func (f *Fence) WithHashTag(tag string) *Fence { return &Fence{source: f.source, tag: tag} }

// Key returns the key of the mark.
func (f *Fence) Key() string {
	slot, _ := f.source.Slot()
	return key(f.source.Resource(), slot, f.tag)
}

func key(resource string, slot uint32, tag string) string {
	return fmt.Sprintf("leasehold:{%s}:%s:%08x", tag, leasehold.ResourceHash(resource), slot)
}

// Install loads the functions into a server. It changes nothing if they are installed, and fails if a newer version is.
func Install(ctx context.Context, db redis.Cmdable) error {
	installed, err := db.FCall(ctx, "leasehold_version", nil).Int()
	switch {
	case err == nil && installed == Version:
		return nil
	case err == nil && installed > Version:
		return leasehold.NewError(leasehold.CodeUnsupportedVersion, fmt.Sprintf("the server has version %d of the functions; this client has %d",
			installed, Version), "Update the older side.", nil)
	case err != nil && !isMissing(err):
		return convert(err)
	}
	return convert(db.FunctionLoadReplace(ctx, library).Err())
}

// Arm creates the mark of a resource and slot, once. An existing mark stays. The cluster is the id that tokens contain; `leasehold status` shows it.
func Arm(ctx context.Context, db redis.Cmdable, cluster, resource string, slot uint32) error {
	arguments := []any{cluster, leasehold.ResourceHash(resource), fmt.Sprintf("%08x", slot), resource, "0"}
	err := db.FCall(ctx, "leasehold_arm", []string{key(resource, slot, resource)}, arguments...).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return convert(err)
}

// Claim raises the mark to this lease, before the holder reads anything.
func (f *Fence) Claim(ctx context.Context, db redis.Cmdable) error {
	return convert(db.FCall(ctx, "leasehold_claim", []string{f.Key()}, f.token()).Err())
}

// Write runs a command if the token is admitted. keys are all keys of the command; command is its name and arguments.
func (f *Fence) Write(ctx context.Context, db redis.Cmdable, keys []string, command ...any) (any, error) {
	return f.write(ctx, db, "", keys, command)
}

// WriteOnce is Write, applied at most once per sequence. Number the writes of one lease in ascending order, and wait for each reply before the next.
// It returns false if the write was applied before.
func (f *Fence) WriteOnce(ctx context.Context, db redis.Cmdable, sequence uint64, keys []string, command ...any) (applied bool, err error) {
	reply, err := f.write(ctx, db, fmt.Sprintf("%020d", sequence), keys, command)
	if err != nil {
		return false, err
	}
	if list, ok := reply.([]any); ok && len(list) == 2 && list[0] == "ALREADY_APPLIED" {
		return false, nil
	}
	return true, nil
}

func (f *Fence) write(ctx context.Context, db redis.Cmdable, sequence string, keys []string, command []any) (any, error) {
	allKeys := append([]string{f.Key()}, keys...)
	reply, err := db.FCall(ctx, "leasehold_write", allKeys, append([]any{f.token(), sequence}, command...)...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, convert(err)
}

func (f *Fence) token() string {
	if mutant.NoToken {
		return ""
	}
	return f.source.Token()
}

func isMissing(err error) bool {
	return strings.Contains(err.Error(), "Function not found") || strings.Contains(err.Error(), "unknown command")
}

var nextSteps = map[leasehold.Code]string{
	leasehold.CodeStaleToken:         "Stop writing. The lease of this token has ended.",
	leasehold.CodeTokenInvalid:       "Pass the token text of the grant unchanged.",
	leasehold.CodeTokenImplausible:   "Compare the clocks, and find the origin of the token.",
	leasehold.CodeWrongCluster:       "Use the target of this cluster.",
	leasehold.CodeStorageFailed:      "Arm the fence, or re-arm it after a failover.",
	leasehold.CodeConflict:           "Read the current state before you retry.",
	leasehold.CodeInvalidArgument:    "Change the command and retry.",
	leasehold.CodeNotAdopted:         "Adopt the incarnation at the target if the restore was intended.",
	leasehold.CodeUnsupportedVersion: "Update the older side.",
}

var values = regexp.MustCompile(`\b(presented|mark|reason|field)=(\S+)`)

// convert turns an error of the functions into an error of the client: its first word is the code.
func convert(err error) error {
	if err == nil {
		return nil
	}
	if isMissing(err) {
		problem := leasehold.NewError(leasehold.CodeStorageFailed, "the functions of the fence are not installed", "Install the functions, and arm the fence.", err)
		problem.Reason = "missing"
		return problem
	}
	word, message, _ := strings.Cut(err.Error(), " ")
	nextStep, known := nextSteps[leasehold.Code(word)]
	if !known {
		return err
	}
	problem := leasehold.NewError(leasehold.Code(word), message, nextStep, err)
	for _, pair := range values.FindAllStringSubmatch(message, -1) {
		number, _ := strconv.ParseUint(pair[2], 10, 64)
		switch pair[1] {
		case "presented":
			problem.Presented = number
		case "mark":
			problem.Mark = number
		case "reason":
			problem.Reason = pair[2]
		case "field":
			problem.Field = pair[2]
		}
	}
	return problem
}
