package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"leasehold/internal/sqlstate"
)

// OpenDB opens a pool whose connections carry the token of the lease: each connection presents it once (leasehold.set_session_token), and again
// when the token was raised or a third of its time has passed. Every plain statement on a protected table is then checked by the database.
//
// The pool belongs to the lease: close it before the lease is released, and open another one for another lease. PgBouncer in transaction mode
// is not supported, because its connections are shared; use [Fence.Tx] there.
//
//	connector, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(url) // or pq.NewConnector, stdlib.GetConnector
//	db := sqlfence.OpenDB(connector, lease)
func OpenDB(connector driver.Connector, source Source) *sql.DB {
	return sql.OpenDB(&fencedConnector{connector, source})
}

type fencedConnector struct {
	driver.Connector
	source Source
}

func (c *fencedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	fenced := &fencedConn{Conn: conn, source: c.source}
	if err := fenced.present(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return fenced, nil
}

// fencedConn is a connection that has presented the token. It passes on the optional interfaces of the driver's connection.
type fencedConn struct {
	driver.Conn
	source  Source
	token   string
	refresh time.Time
}

// present presents the token to the database.
func (c *fencedConn) present(ctx context.Context) error {
	token, left := tokenOf(c.source), remaining(c.source)
	args := []any{token, c.source.Resource(), slot(c.source), left}
	named := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	if err := c.exec(ctx, sqlstate.SetSessionToken, named); err != nil {
		return sqlstate.Convert(err)
	}
	c.token, c.refresh = token, time.Now().Add(time.Duration(left)*time.Millisecond/3)
	return nil
}

func (c *fencedConn) exec(ctx context.Context, query string, args []driver.NamedValue) error {
	if execer, ok := c.Conn.(driver.ExecerContext); ok {
		_, err := execer.ExecContext(ctx, query, args)
		if !errors.Is(err, driver.ErrSkip) {
			return err
		}
	}
	statement, err := c.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer statement.Close()
	if execer, ok := statement.(driver.StmtExecContext); ok {
		_, err = execer.ExecContext(ctx, args)
		return err
	}
	values := make([]driver.Value, len(args))
	for i := range args {
		values[i] = args[i].Value
	}
	_, err = statement.Exec(values) //nolint:staticcheck // drivers without contexts have no other way
	return err
}

// ResetSession runs before the pool uses the connection again: it presents the token again if that is due.
func (c *fencedConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.Conn.(driver.SessionResetter); ok {
		if err := resetter.ResetSession(ctx); err != nil {
			return err
		}
	}
	if tokenOf(c.source) == c.token && time.Now().Before(c.refresh) {
		return nil
	}
	return c.present(ctx)
}

func (c *fencedConn) IsValid() bool {
	validator, ok := c.Conn.(driver.Validator)
	return !ok || validator.IsValid()
}

func (c *fencedConn) Ping(ctx context.Context) error {
	if pinger, ok := c.Conn.(driver.Pinger); ok {
		return pinger.Ping(ctx)
	}
	return nil
}

func (c *fencedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	execer, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	result, err := execer.ExecContext(ctx, query, args)
	return result, sqlstate.Convert(err)
}

func (c *fencedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	queryer, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	rows, err := queryer.QueryContext(ctx, query, args)
	return rows, sqlstate.Convert(err)
}

func (c *fencedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if preparer, ok := c.Conn.(driver.ConnPrepareContext); ok {
		return preparer.PrepareContext(ctx, query)
	}
	return c.Prepare(query)
}

func (c *fencedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if beginner, ok := c.Conn.(driver.ConnBeginTx); ok {
		return beginner.BeginTx(ctx, options)
	}
	// As database/sql does: an option that the driver cannot keep is an error.
	if options.Isolation != driver.IsolationLevel(sql.LevelDefault) || options.ReadOnly {
		return nil, errors.New("sqlfence: the driver does not support isolation levels and read-only transactions")
	}
	return c.Begin() //nolint:staticcheck // drivers without contexts have no other way
}

func (c *fencedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}
