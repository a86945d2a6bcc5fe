package leasehold

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the stable code of an error, the same over every interface of the server.
type Code string

// Codes of the server and of this client. A newer server may send others; see [Error.IsRetryable].
const (
	CodeInvalidArgument    Code = "INVALID_ARGUMENT"
	CodeUnauthenticated    Code = "UNAUTHENTICATED"
	CodePermissionDenied   Code = "PERMISSION_DENIED"
	CodeNotFound           Code = "NOT_FOUND"
	CodeConflict           Code = "CONFLICT"
	CodeLeaseLost          Code = "LEASE_LOST"
	CodeNotCurrent         Code = "NOT_CURRENT"
	CodeStaleToken         Code = "STALE_TOKEN"
	CodeTokenInvalid       Code = "TOKEN_INVALID"
	CodeTokenImplausible   Code = "TOKEN_IMPLAUSIBLE"
	CodeWrongCluster       Code = "WRONG_CLUSTER"
	CodeBusy               Code = "BUSY"
	CodeDeadlock           Code = "DEADLOCK"
	CodeAccessChange       Code = "ACCESS_CHANGE"
	CodeResourceExhausted  Code = "RESOURCE_EXHAUSTED"
	CodeTimeout            Code = "TIMEOUT"
	CodeCancelled          Code = "CANCELLED"
	CodeIndeterminate      Code = "INDETERMINATE"
	CodeNotLeader          Code = "NOT_LEADER"
	CodeUnavailable        Code = "UNAVAILABLE"
	CodeUnsupportedVersion Code = "UNSUPPORTED_VERSION"
	CodeFrameError         Code = "FRAME_ERROR"
	CodeStorageFull        Code = "STORAGE_FULL"
	CodeStorageFailed      Code = "STORAGE_FAILED"
	CodeConfig             Code = "CONFIG"
	CodeRequestTooOld      Code = "REQUEST_TOO_OLD"
	CodeRolledBack         Code = "ROLLED_BACK"
	CodeQuarantined        Code = "QUARANTINED"
	CodeHeldForOperator    Code = "HELD_FOR_OPERATOR"
	CodeApprovalRequired   Code = "APPROVAL_REQUIRED"
	CodeNotAdopted         Code = "NOT_ADOPTED"
)

// Errors to compare with errors.Is. They match every [*Error] of the same code.
var (
	ErrBusy             = &Error{Code: CodeBusy}
	ErrTimeout          = &Error{Code: CodeTimeout}
	ErrDeadlock         = &Error{Code: CodeDeadlock}
	ErrLeaseLost        = &Error{Code: CodeLeaseLost}
	ErrNotCurrent       = &Error{Code: CodeNotCurrent}
	ErrStaleToken       = &Error{Code: CodeStaleToken}
	ErrTokenInvalid     = &Error{Code: CodeTokenInvalid}
	ErrConflict         = &Error{Code: CodeConflict}
	ErrNotFound         = &Error{Code: CodeNotFound}
	ErrUnavailable      = &Error{Code: CodeUnavailable}
	ErrPermissionDenied = &Error{Code: CodePermissionDenied}
	ErrConfig           = &Error{Code: CodeConfig}
)

// Causes of a canceled [Lease.Context], besides an [*Error] with the end that the server reported.
var (
	// ErrSuspended: the local deadline passed before a server renewed the lease.
	ErrSuspended = errors.New("leasehold: the lease was not renewed before its local deadline; stop the work, and acquire again")
	// ErrReleased: the program released the lease or closed its client.
	ErrReleased = errors.New("leasehold: the program released the lease")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("leasehold: the client is closed; create a new one")
)

// LostState says how a lease ended. A newer server may send other words.
type LostState string

// How a lease ended.
const (
	// LostReleased: the holder released it.
	LostReleased LostState = "released"
	// LostExpired: it ended by time or by a handoff. It may be acquired again.
	LostExpired LostState = "expired"
	// LostRevoked: an operator or a policy ended it. Do not acquire again without a decision.
	LostRevoked LostState = "revoked"
)

// CycleMember is one holder of a deadlock.
type CycleMember struct {
	Holder   string `json:"holder"`
	WaitsFor string `json:"waits_for"`
}

// Error is a refusal by a server or a fence, or a failure to reach a server. Only the fields of its code are set.
type Error struct {
	// Code is stable; decide by it, not by the text.
	Code Code
	// Message describes this occurrence.
	Message string
	// NextStep says what to do now.
	NextStep string
	// Status is the HTTP status of the reply, or 0.
	Status int

	// Field and Reason: an invalid argument, a lost lease or an invalid token.
	Field, Reason string
	// State of a lost lease.
	State LostState
	// Holder, Held, Remaining and QueuePosition: who has a busy resource.
	Holder          string
	Held, Remaining time.Duration
	QueuePosition   int
	// RetryAfter: do not retry before this time has passed.
	RetryAfter time.Duration
	// Presented and Mark: numbers of a stale token and of the target's mark.
	Presented, Mark uint64
	// Cycle: the first members of a deadlock.
	Cycle []CycleMember
	// Limit, Max and Got: an exceeded limit.
	Limit    string
	Max, Got uint64
	// Subject: what is missing or in conflict.
	Subject string
	// Leader: address of the leader.
	Leader string
	// RequestID: the request with an unknown outcome, as session:sequence.
	RequestID string
	// Key: the invalid setting.
	Key string
	// Proposal: number of the proposal that another identity must approve.
	Proposal uint64

	cause error
}

// Error returns one line: CODE{fields}: message; next step.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("leasehold: ")
	b.WriteString(string(e.Code))
	var fields []string
	for _, value := range []string{e.Field, e.Key, e.Subject, string(e.State), e.Reason} {
		if value != "" && !strings.Contains(value, " ") {
			fields = append(fields, value)
		}
	}
	if e.Mark != 0 {
		fields = append(fields, strconv.FormatUint(e.Presented, 10), strconv.FormatUint(e.Mark, 10))
	}
	if len(fields) > 0 {
		fmt.Fprintf(&b, "{%s}", strings.Join(fields, ", "))
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	if e.NextStep != "" && !strings.Contains(e.Message, "; ") {
		step := strings.TrimSuffix(e.NextStep, ".")
		b.WriteString("; ")
		b.WriteString(strings.ToLower(step[:1]) + step[1:])
	}
	return b.String()
}

// Is reports whether target is an [*Error] of the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// Unwrap returns the failure of the transport or of the target, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// IsRetryable reports whether no server decided and nothing happened: the same request can be sent again later. An unknown code of a newer
// server is judged by its HTTP status.
func (e *Error) IsRetryable() bool {
	switch e.Code {
	case CodeUnavailable, CodeNotLeader, CodeQuarantined, CodeRolledBack, CodeStorageFull:
		return true
	}
	return !knownCodes[e.Code] && e.Status == 503
}

// IsOutcomeUnknown reports whether the request may have been executed.
func (e *Error) IsOutcomeUnknown() bool {
	return e.Code == CodeIndeterminate || (!knownCodes[e.Code] && e.Status == 504)
}

// isLeaseEnd reports whether the error ends the hold of a lease.
func (e *Error) isLeaseEnd() bool {
	switch e.Code {
	case CodeLeaseLost, CodeNotCurrent:
		return true
	}
	return !knownCodes[e.Code] && (e.Status == 410 || e.Status == 412)
}

// isSessionEnd reports whether the session has ended, or is unknown to the server.
func (e *Error) isSessionEnd() bool {
	return (e.Code == CodeLeaseLost && e.Reason == "session") || (e.Code == CodeNotFound && e.Subject == "session")
}

// mayReacquire reports whether the program may acquire the lease again by itself.
func (e *Error) mayReacquire() bool {
	return e.Code == CodeLeaseLost && e.State == LostExpired
}

var knownCodes = map[Code]bool{
	CodeInvalidArgument: true, CodeUnauthenticated: true, CodePermissionDenied: true, CodeNotFound: true, CodeConflict: true,
	CodeLeaseLost: true, CodeNotCurrent: true, CodeStaleToken: true, CodeTokenInvalid: true, CodeTokenImplausible: true,
	CodeWrongCluster: true, CodeBusy: true, CodeDeadlock: true, CodeAccessChange: true, CodeResourceExhausted: true, CodeTimeout: true,
	CodeCancelled: true, CodeIndeterminate: true, CodeNotLeader: true, CodeUnavailable: true, CodeUnsupportedVersion: true,
	CodeFrameError: true, CodeStorageFull: true, CodeStorageFailed: true, CodeConfig: true, CodeRequestTooOld: true,
	CodeRolledBack: true, CodeQuarantined: true, CodeHeldForOperator: true, CodeApprovalRequired: true, CodeNotAdopted: true,
	"METHOD_NOT_ALLOWED": true, "TOKEN_EXHAUSTED": true, "CORRUPT": true,
}

// problemBody is the wire form of an error.
type problemBody struct {
	Code          Code          `json:"code"`
	Detail        string        `json:"detail"`
	NextStep      string        `json:"next_step"`
	Field         string        `json:"field"`
	Reason        string        `json:"reason"`
	State         LostState     `json:"state"`
	Holder        string        `json:"holder"`
	HeldMS        int64         `json:"held_ms"`
	RemainingMS   int64         `json:"remaining_ms"`
	QueuePosition int           `json:"queue_position"`
	RetryAfterMS  int64         `json:"retry_after_ms"`
	Presented     string        `json:"presented"`
	Mark          string        `json:"mark"`
	Cycle         []CycleMember `json:"cycle"`
	Limit         string        `json:"limit"`
	Max           uint64        `json:"max"`
	Got           uint64        `json:"got"`
	Subject       string        `json:"subject"`
	Leader        string        `json:"leader"`
	RequestID     string        `json:"request_id"`
	Key           string        `json:"key"`
	Proposal      uint64        `json:"proposal"`
}

func (p *problemBody) asError(status int) *Error {
	presented, _ := strconv.ParseUint(p.Presented, 10, 64)
	mark, _ := strconv.ParseUint(p.Mark, 10, 64)
	return &Error{
		Code: p.Code, Message: p.Detail, NextStep: p.NextStep, Status: status, Field: p.Field, Reason: p.Reason, State: p.State,
		Holder: p.Holder, Held: millis(p.HeldMS), Remaining: millis(p.RemainingMS), QueuePosition: p.QueuePosition,
		RetryAfter: millis(p.RetryAfterMS), Presented: presented, Mark: mark, Cycle: p.Cycle, Limit: p.Limit, Max: p.Max, Got: p.Got,
		Subject: p.Subject, Leader: p.Leader, RequestID: p.RequestID, Key: p.Key, Proposal: p.Proposal,
	}
}

// ParseProblem decodes the body of an error reply of a server or of an HTTP fence.
func ParseProblem(status int, body []byte) *Error {
	var problem problemBody
	err := json.Unmarshal(body, &problem)
	var mistyped *json.UnmarshalTypeError
	if (err != nil && !errors.As(err, &mistyped)) || problem.Code == "" {
		code := CodeFrameError
		switch {
		case status == http.StatusServiceUnavailable:
			code = CodeUnavailable
		case status >= 500:
			// A gateway may have passed the request on.
			code = CodeIndeterminate
		}
		return &Error{Code: code, Status: status, Message: fmt.Sprintf("reply with status %d is not a problem of Leasehold", status),
			NextStep: "Check that the address is that of a Leasehold server."}
	}
	return problem.asError(status)
}

// NewError creates an error of a fence or another adapter of this module.
func NewError(code Code, message, nextStep string, cause error) *Error {
	return &Error{Code: code, Message: message, NextStep: nextStep, cause: cause}
}

func invalidArgument(field, reason string) *Error {
	return &Error{Code: CodeInvalidArgument, Field: field, Reason: reason, Message: field + ": " + reason,
		NextStep: "Change the field and retry."}
}

func configError(key, message string) *Error {
	return &Error{Code: CodeConfig, Key: key, Message: key + ": " + message, NextStep: "Change the setting and try again."}
}

func unavailable(message string, cause error) *Error {
	return &Error{Code: CodeUnavailable, Message: message, NextStep: "Check that a server is running at one of the addresses.", cause: cause}
}

func invalidReply(reason string, cause error) *Error {
	return &Error{Code: CodeFrameError, Message: "invalid reply from the server: " + reason,
		NextStep: "Check that both sides use the same protocol.", cause: cause}
}

// millis converts a time of a reply. No reply makes it negative or so large that a sum with it overflows.
func millis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond) / 8
	return time.Duration(min(max(ms, 0), most)) * time.Millisecond
}
