package leasehold

import (
	"context"
	"encoding/base64"
	"net/url"
	"strconv"
)

// StateEntry is one value of the small state of a resource, for example the checkpoint of its worker.
type StateEntry struct {
	Key   string
	Value []byte
	// Revision rises with every change of the key.
	Revision uint64
	// TokenNumber is that of the lease that wrote the value.
	TokenNumber uint64
}

// PutOption configures [Lease.Put] and [Lease.Delete].
type PutOption func(*putBody)

type putBody struct {
	Key              string  `json:"key"`
	Value            *string `json:"value_base64,omitempty"`
	ExpectedRevision string  `json:"expected_revision,omitempty"`
}

// IfRevision writes only if the key has this revision.
func IfRevision(revision uint64) PutOption {
	return func(b *putBody) { b.ExpectedRevision = strconv.FormatUint(revision, 10) }
}

// Put writes small state through the journal of the server, only if the lease is current: the write is the check. It returns the revision.
func (l *Lease) Put(ctx context.Context, key string, value []byte, options ...PutOption) (uint64, error) {
	text := base64.StdEncoding.EncodeToString(value)
	return l.put(ctx, putBody{Key: key, Value: &text}, options)
}

// Delete removes a key of the small state, only if the lease is current.
func (l *Lease) Delete(ctx context.Context, key string, options ...PutOption) error {
	_, err := l.put(ctx, putBody{Key: key}, options)
	return err
}

func (l *Lease) put(ctx context.Context, body putBody, options []PutOption) (uint64, error) {
	for _, option := range options {
		option(&body)
	}
	var reply struct {
		Revision string `json:"revision"`
	}
	if err := l.call(ctx, "put", body, &reply); err != nil {
		return 0, err
	}
	if body.Value == nil {
		return 0, nil
	}
	revision, err := strconv.ParseUint(reply.Revision, 10, 64)
	if err != nil {
		return 0, invalidReply("a revision that is not a number", err)
	}
	return revision, nil
}

// State returns the small state of a resource: the entry of key, or all entries if key is empty.
func (c *Client) State(ctx context.Context, resource, key string) ([]StateEntry, error) {
	var reply struct {
		Entries []struct {
			Key         string `json:"key"`
			Value       string `json:"value_base64"`
			Revision    string `json:"revision"`
			TokenNumber string `json:"token_number"`
		} `json:"entries"`
	}
	var query url.Values
	if key != "" {
		query = url.Values{"key": {key}}
	}
	if err := c.query(ctx, namePath("/v1/state/", resource, ""), query, &reply); err != nil {
		return nil, err
	}
	entries := make([]StateEntry, 0, len(reply.Entries))
	for _, entry := range reply.Entries {
		value, err := base64.StdEncoding.DecodeString(entry.Value)
		if err != nil {
			return nil, invalidReply("a value that is not base64", err)
		}
		revision, _ := strconv.ParseUint(entry.Revision, 10, 64)
		number, _ := strconv.ParseUint(entry.TokenNumber, 10, 64)
		entries = append(entries, StateEntry{Key: entry.Key, Value: value, Revision: revision, TokenNumber: number})
	}
	return entries, nil
}
