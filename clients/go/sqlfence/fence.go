// Package sqlfence fences writes to PostgreSQL through database/sql, with any driver: the database itself refuses a write with a stale token.
//
//	fence := sqlfence.New(lease)
//	if err := fence.Claim(ctx, db); err != nil { … } // before the first read
//	err = fence.Tx(ctx, db, func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "INSERT INTO paid VALUES ($1, $2)", 7, 1200)
//		return err
//	})
//	if errors.Is(err, leasehold.ErrStaleToken) { … } // a later holder has claimed
//
// For plain statements on a protected table, [OpenDB] gives every connection of a pool the token of the lease.
//
// The database needs the schema of crates/fence/src/postgres, and a fence that is armed for the resource: see docs/how-to/fence/postgres.md.
package sqlfence

import (
	"context"
	"database/sql"
	"time"

	"leasehold"
	"leasehold/internal/mutant"
	"leasehold/internal/sqlstate"
)

// Source is the lease whose token is presented, usually a [*leasehold.Lease].
type Source interface {
	Resource() string
	Token() string
	Slot() (uint32, bool)
	Remaining() time.Duration
}

var _ Source = (*leasehold.Lease)(nil)

// Fence presents the token of one lease. It holds no connection, so it works with any.
type Fence struct {
	source    Source
	timeout   time.Duration
	terminate bool
}

// Option configures a fence.
type Option func(*Fence)

// WithClaimTimeout sets how long a claim waits for transactions that were already admitted. Default: 5 s.
func WithClaimTimeout(d time.Duration) Option { return func(f *Fence) { f.timeout = d } }

// TerminateBlockers lets a claim that reaches its timeout end the backends that block it. The role needs EXECUTE on
// leasehold.terminate_blockers.
func TerminateBlockers() Option { return func(f *Fence) { f.terminate = true } }

// New creates the fence of a lease.
func New(source Source, options ...Option) *Fence {
	f := &Fence{source: source, timeout: 5 * time.Second}
	for _, option := range options {
		option(f)
	}
	return f
}

// Execer is a [*sql.DB] or a [*sql.Conn].
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Queryer is a [*sql.Tx], a [*sql.Conn] or a [*sql.DB].
type Queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Claim raises the mark of the table's fence to this lease, before the holder reads anything. It waits for transactions that were admitted, and
// refuses everything later with a lower token. It must not run in a transaction.
func (f *Fence) Claim(ctx context.Context, db Execer) error {
	_, err := db.ExecContext(ctx, sqlstate.Claim, f.token(), f.source.Resource(), slot(f.source), f.timeout.Milliseconds(), f.terminate)
	return sqlstate.Convert(err)
}

// Admit admits the rest of this transaction: its writes commit under the mark they were checked against, or not at all. The server ends a
// transaction that outlives the remaining time of the lease. After a refusal, roll back.
func (f *Fence) Admit(ctx context.Context, tx Queryer) error {
	var number int64
	err := tx.QueryRowContext(ctx, sqlstate.Admit, f.token(), f.source.Resource(), slot(f.source), remaining(f.source)).Scan(&number)
	return sqlstate.Convert(err)
}

// Tx runs write in an admitted transaction and commits it. Errors of the database about the token are [*leasehold.Error].
func (f *Fence) Tx(ctx context.Context, db interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}, write func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return sqlstate.Convert(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := f.Admit(ctx, tx); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return sqlstate.Convert(err)
	}
	return sqlstate.Convert(tx.Commit())
}

// InlineCheck is an SQL condition that checks a token inside one statement: three parameters from first are the token, the resource and the slot.
// [Fence.Args] returns them.
func InlineCheck(first int) string { return sqlstate.InlineCheck(first) }

// Args returns the parameters of [InlineCheck], followed by args.
func (f *Fence) Args(args ...any) []any {
	return append([]any{f.token(), f.source.Resource(), slot(f.source)}, args...)
}

// Error converts an error of a driver: SQLSTATE LH001 becomes [leasehold.ErrStaleToken], and so on. Other errors are returned as they are.
func Error(err error) error { return sqlstate.Convert(err) }

func (f *Fence) token() string { return tokenOf(f.source) }

func tokenOf(source Source) string {
	if mutant.NoToken {
		return ""
	}
	return source.Token()
}

func slot(source Source) int64 {
	slot, _ := source.Slot()
	return int64(slot)
}

// remaining is at least a millisecond, because 0 means no limit to the database. A lease that is over is refused by its token.
func remaining(source Source) int64 {
	return max(1, source.Remaining().Milliseconds())
}
