// Package pgxfence fences writes to PostgreSQL through pgx: the database itself refuses a write with a stale token.
//
//	fence := pgxfence.New(lease)
//	if err := fence.Claim(ctx, pool); err != nil { … } // before the first read
//	err = fence.Tx(ctx, pool, func(tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "INSERT INTO paid VALUES ($1, $2)", 7, 1200)
//		return err
//	})
//	if errors.Is(err, leasehold.ErrStaleToken) { … } // a later holder has claimed
//
// For plain statements on a protected table, [Configure] gives every connection of a pool the token of the lease.
//
// It is a module of its own, so that the client has no dependencies. The database needs the schema of crates/fence/src/postgres, and a fence that is
// armed for the resource: see docs/how-to/fence/postgres.md.
package pgxfence

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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

// Execer is a [*pgx.Conn] or a [*pgxpool.Pool].
type Execer interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

// Beginner is a [*pgx.Conn] or a [*pgxpool.Pool].
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Claim raises the mark of the table's fence to this lease, before the holder reads anything. It waits for transactions that were admitted, and
// refuses everything later with a lower token. It must not run in a transaction.
func (f *Fence) Claim(ctx context.Context, db Execer) error {
	_, err := db.Exec(ctx, sqlstate.Claim, tokenOf(f.source), f.source.Resource(), slot(f.source), f.timeout.Milliseconds(), f.terminate)
	return sqlstate.Convert(err)
}

// Admit admits the rest of this transaction: its writes commit under the mark they were checked against, or not at all. The server ends a
// transaction that outlives the remaining time of the lease. After a refusal, roll back.
func (f *Fence) Admit(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, sqlstate.Admit, tokenOf(f.source), f.source.Resource(), slot(f.source), remaining(f.source))
	return sqlstate.Convert(err)
}

// Tx runs write in an admitted transaction and commits it. Errors of the database about the token are [*leasehold.Error].
func (f *Fence) Tx(ctx context.Context, db Beginner, write func(pgx.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return sqlstate.Convert(err)
	}
	// After a commit this does nothing. A transaction of a canceled context is rolled back too.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := f.Admit(ctx, tx); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return sqlstate.Convert(err)
	}
	return sqlstate.Convert(tx.Commit(ctx))
}

// InlineCheck is an SQL condition that checks a token inside one statement: three parameters from first are the token, the resource and the slot.
// [Fence.Args] returns them.
func InlineCheck(first int) string { return sqlstate.InlineCheck(first) }

// Args returns the parameters of [InlineCheck], followed by args.
func (f *Fence) Args(args ...any) []any {
	return append([]any{tokenOf(f.source), f.source.Resource(), slot(f.source)}, args...)
}

// Error converts an error of pgx: SQLSTATE LH001 becomes [leasehold.ErrStaleToken], and so on. Other errors are returned as they are.
func Error(err error) error { return sqlstate.Convert(err) }

// Configure gives every connection of a pool the token of the lease: a connection presents it once (leasehold.set_session_token), and again
// when the token was raised or a third of its time has passed. Every plain statement on a protected table is then checked by the database.
//
// The pool belongs to the lease: close it before the lease is released. PgBouncer in transaction mode is not supported; use [Fence.Tx] there.
func Configure(config *pgxpool.Config, source Source) {
	// The pool ignores BeforeAcquire if PrepareConn is set.
	prepare, before := config.PrepareConn, config.BeforeAcquire
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if prepare != nil {
			if ok, err := prepare(ctx, conn); !ok || err != nil {
				return ok, err
			}
		} else if before != nil && !before(ctx, conn) {
			return false, nil
		}
		err := present(ctx, conn, source)
		return err == nil, err
	}
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		return present(ctx, conn, source)
	}
}

const presentedKey = "leasehold"

// presentation is what a connection has presented, and until when.
type presentation struct {
	token   string
	refresh time.Time
}

func present(ctx context.Context, conn *pgx.Conn, source Source) error {
	token, left := tokenOf(source), remaining(source)
	data := conn.PgConn().CustomData()
	if last, ok := data[presentedKey].(presentation); ok && last.token == token && time.Now().Before(last.refresh) {
		return nil
	}
	if _, err := conn.Exec(ctx, sqlstate.SetSessionToken, token, source.Resource(), slot(source), left); err != nil {
		return sqlstate.Convert(err)
	}
	data[presentedKey] = presentation{token, time.Now().Add(time.Duration(left) * time.Millisecond / 3)}
	return nil
}

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
func remaining(source Source) int64 { return max(1, source.Remaining().Milliseconds()) }
