// Package httpfence passes fencing tokens over HTTP.
//
// On the side of the holder, [Transport] adds the token of a lease to every request:
//
//	client := &http.Client{Transport: httpfence.NewTransport(lease, nil)}
//	response, err := client.Post(url, "application/json", body)
//	if err := httpfence.CheckResponse(response); errors.Is(err, leasehold.ErrStaleToken) { … }
//
// On the side of the service, [Fence] is middleware that refuses requests with a stale token, before they reach the handler:
//
//	fence, err := httpfence.Open("settle.marks", cluster, "jobs/settle")
//	http.ListenAndServe(addr, fence.Wrap(handler))
package httpfence

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"leasehold"
	"leasehold/internal/mutant"
)

// TokenHeader is the header that carries the token.
const TokenHeader = "Lease-Token"

// ClaimPath is the path to which a new holder sends POST before it reads, at this fence and at the proxy `leasehold fence http`.
const ClaimPath = "/-/claim"

// problemType begins the type of every problem of Leasehold.
const problemType = "urn:leasehold:error:"

// Transport adds the token of a lease to every request. It sends a request also after the lease has ended: the target decides. To stop work, use the
// context of the lease for the request.
type Transport struct {
	source interface{ Token() string }
	base   http.RoundTripper
}

// NewTransport creates a transport for a lease, usually a [*leasehold.Lease]. A nil base is [http.DefaultTransport].
func NewTransport(source interface{ Token() string }, base http.RoundTripper) *Transport {
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{source: source, base: base}
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !mutant.NoToken {
		request = request.Clone(request.Context())
		request.Header.Set(TokenHeader, t.source.Token())
	}
	return t.base.RoundTrip(request)
}

// CheckResponse returns the refusal of a fence as a [*leasehold.Error], or nil. It leaves the body readable.
func CheckResponse(response *http.Response) error {
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if response.StatusCode < 400 || strings.TrimSpace(kind) != "application/problem+json" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return err
	}
	var problem struct {
		Type string `json:"type"`
	}
	// A service may reply with problems of its own.
	if json.Unmarshal(body, &problem) != nil || !strings.HasPrefix(problem.Type, problemType) {
		return nil
	}
	return leasehold.ParseProblem(response.StatusCode, body)
}
