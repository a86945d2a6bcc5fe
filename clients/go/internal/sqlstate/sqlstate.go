// Package sqlstate has the statements of the PostgreSQL fence, and converts its errors.
package sqlstate

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"leasehold"
)

// Statements of the fence. Their parameters are the token, the resource, the slot, and milliseconds.
const (
	Claim           = "CALL leasehold.claim($1::text, $2::text, $3::bigint, $4::bigint * interval '1 ms', $5::boolean, NULL)"
	Admit           = "SELECT leasehold.admit($1::text, $2::text, $3::bigint, $4::bigint * interval '1 ms')"
	SetSessionToken = "CALL leasehold.set_session_token($1::text, $2::text, $3::bigint, $4::bigint * interval '1 ms', NULL)"
)

// InlineCheck is a condition with three parameters from first.
func InlineCheck(first int) string {
	return fmt.Sprintf("(SELECT leasehold.admit_inline($%d::text, $%d::text, $%d::bigint)) > 0", first, first+1, first+2)
}

var codes = map[string]struct {
	code     leasehold.Code
	nextStep string
}{
	"LH001": {leasehold.CodeStaleToken, "Stop writing. The lease of this token has ended."},
	"LH002": {leasehold.CodeTokenInvalid, "Pass the token text of the grant unchanged."},
	"LH003": {leasehold.CodeTokenImplausible, "Compare the clocks, and find the origin of the token."},
	"LH004": {leasehold.CodeWrongCluster, "Use the target of this cluster."},
	"LH005": {leasehold.CodeStorageFailed, "Arm the fence, or re-arm it after a restore."},
	"LH006": {leasehold.CodeUnavailable, "Retry, or let the claim terminate what blocks it."},
	"LH007": {leasehold.CodeConfig, "Set fsync to on."},
	"LH008": {leasehold.CodeUnsupportedVersion, "Update the older side."},
	"LH009": {leasehold.CodeConflict, "Read the current state before you retry."},
	"LH010": {leasehold.CodeNotAdopted, "Adopt the incarnation at the target if the restore was intended."},
}

var number = regexp.MustCompile(`\b(presented|mark|reason)=(\S+)`)

// Convert turns an error of the fence into an error of the client. It recognizes every driver whose error has SQLState() string, as those of pgx and
// lib/pq have.
func Convert(err error) error {
	var state interface{ SQLState() string }
	if err == nil || !errors.As(err, &state) {
		return err
	}
	known, ok := codes[state.SQLState()]
	if !ok {
		return err
	}
	message := err.Error()
	if i := strings.Index(message, string(known.code)+": "); i >= 0 {
		message = message[i+len(known.code)+2:]
	}
	converted := leasehold.NewError(known.code, message, known.nextStep, err)
	for _, pair := range number.FindAllStringSubmatch(detail(err), -1) {
		value, _ := strconv.ParseUint(strings.Trim(pair[2], ",)"), 10, 64)
		switch pair[1] {
		case "presented":
			converted.Presented = value
		case "mark":
			converted.Mark = value
		case "reason":
			converted.Reason = pair[2]
		}
	}
	return converted
}

// detail returns the values that the database sent with the error. The errors of pgx and lib/pq have them in a field Detail, which no interface
// offers; another driver may have them in its text.
func detail(err error) string {
	for at := err; at != nil; at = errors.Unwrap(at) {
		value := reflect.Indirect(reflect.ValueOf(at))
		if value.Kind() != reflect.Struct {
			continue
		}
		if field := value.FieldByName("Detail"); field.IsValid() && field.Kind() == reflect.String {
			return field.String()
		}
	}
	return err.Error()
}
