package leasehold

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
	"time"
)

// Token is a parsed token text. A fence that a program writes itself compares its number with a mark.
type Token struct {
	// Cluster and Incarnation identify the issuer, in hexadecimal.
	Cluster, Incarnation string
	// ResourceHash identifies the resource, in hexadecimal; see [ResourceHash].
	ResourceHash string
	// Scope is 'w' (may write to the slot), 'r' (shared) or 'u' (units).
	Scope byte
	Slot  uint32
	// Number orders all grants of a cluster.
	Number uint64
	// Sealed tokens carry a signature, which this package does not verify.
	Sealed bool
}

var tokenShape = regexp.MustCompile(
	`^lh([12])-([0-9a-f]{16})-([0-9a-f]{8})-([0-9a-f]{16})-([wru])([0-9a-f]{8})-([0-9]{19})-([0-9a-f]{8})(-[0-9A-Za-z_-]{85}[AQgw])?$`)

// ParseToken parses the text of a token and verifies its checksum.
func ParseToken(text string) (*Token, error) {
	invalid := func(reason, message string) error {
		return &Error{Code: CodeTokenInvalid, Reason: reason, Message: message, NextStep: "Pass the token text of the grant unchanged."}
	}
	if text == "" {
		return nil, invalid("absent", "no token was presented")
	}
	parts := tokenShape.FindStringSubmatch(text)
	if parts == nil || (parts[1] == "2") != (parts[9] != "") {
		return nil, invalid("shape", "the text is not a token")
	}
	if parts[1] == "1" && fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text[:76]))) != parts[8] {
		return nil, invalid("checksum", "the checksum does not match")
	}
	number, err := strconv.ParseUint(parts[7], 10, 63)
	if err != nil {
		return nil, invalid("too_large", "the number is 2^63 or more")
	}
	if number == 0 {
		return nil, invalid("zero", "the number is zero")
	}
	slot, _ := strconv.ParseUint(parts[6], 16, 32)
	return &Token{Cluster: parts[2], Incarnation: parts[3], ResourceHash: parts[4], Scope: parts[5][0], Slot: uint32(slot), Number: number,
		Sealed: parts[1] == "2"}, nil
}

// ResourceHash returns the text that identifies a resource in a token.
func ResourceHash(resource string) string {
	digest := sha256.Sum256([]byte(resource))
	return hex.EncodeToString(digest[:8])
}

// MaxPlausible returns the highest plausible token number at this wall clock: one day ahead.
func MaxPlausible(now time.Time) uint64 {
	era := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	ms := now.Sub(era).Milliseconds() + (24 * time.Hour).Milliseconds()
	if ms <= 0 {
		return 0
	}
	return uint64(ms) << 22
}
