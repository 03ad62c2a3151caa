package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Check looks whether New could connect and Prepare make tables, without making
// anything, and says what it found.
func Check(ctx context.Context, opts Options) (string, error) {
	d, err := open(opts)
	if err != nil {
		return "", err
	}
	var version string
	var exists, may bool
	err = d.aside(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT current_setting('server_version'), n.oid IS NOT NULL,
			CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE') ELSE has_schema_privilege(n.oid, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE') END
			FROM (VALUES ($1::text)) AS wanted(name) LEFT JOIN pg_namespace n ON n.nspname = wanted.name`, d.opts.Schema).Scan(&version, &exists, &may)
	})
	name := d.opts.Schema
	switch {
	case err != nil:
		return "", oneLine(err)
	case !exists && !may:
		return "", fmt.Errorf("schema %s does not exist, and role %s may not make one: GRANT CREATE ON DATABASE to it, or make the schema for it", name, d.config.User)
	case !may:
		return "", fmt.Errorf("role %s may not make tables in schema %s: GRANT USAGE, CREATE ON SCHEMA to it", d.config.User, name)
	case !exists:
		return fmt.Sprintf("PostgreSQL %s, schema %s will be made", version, name), nil
	}
	return fmt.Sprintf("PostgreSQL %s, schema %s can be written", version, name), nil
}
