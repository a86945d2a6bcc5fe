// Package leasehold is a client for Leasehold: acquire, renew and release leases with fencing tokens.
//
//	client, err := leasehold.New(leasehold.WithServers("127.0.0.1:7421"))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	lease, err := client.Acquire(ctx, "jobs/settle", leasehold.WithWait(time.Minute))
//	if err != nil {
//		return err
//	}
//	defer lease.Release()
//	return settle(lease.Context(), lease.Token())
//
// # How a lease is kept
//
// A client opens one session at its first acquire. Goroutines of the client renew the session and its leases after a third of their
// ttl, over connections of their own, whatever the rest of the program does.
//
// [Lease.Context] is canceled at the local deadline, with a cause. The local deadline counts from before the request was sent, less
// twice the assumed clock drift, on a clock that includes suspend. It therefore ends before the server grants the lease to another holder.
//
// A process that is paused inside a write sends that write late. Only the target can refuse it: pass [Lease.Token] to the write, and let
// the target compare it. The packages sqlfence, pgxfence, redisfence and httpfence do this for databases and services.
//
// # States
//
// A lease is held, suspended or lost. It is suspended while its local deadline has passed and no server has decided. If a server then renews
// the same token, it is held again; work that was canceled stays canceled. It is lost when a server reports its end.
//
// # Errors
//
// Every refusal is an [*Error] with a stable code, a message and the next step. Compare with errors.Is:
//
//	if errors.Is(err, leasehold.ErrBusy) { … }
//
// A reply can be lost after the server acted. Requests carry an idempotency key, and are sent again under it until [WithTimeout] ends;
// then the error is an [*UnknownOutcomeError], and its Resolve continues.
package leasehold

// Version of this client. It is that of the server with which it is released; it works with every server of the same major version.
const Version = "0.1.0"
