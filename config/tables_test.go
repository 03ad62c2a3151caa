package config

import (
	"strings"
	"testing"
)

// R31: a table never has the name of another's dead-letter table.
func TestCollision(t *testing.T) {
	for _, c := range []struct {
		tables       []string
		name, reason string
	}{
		{[]string{"a", "b", "a_dead_letter", "_dead_letters"}, "", ""},
		{[]string{"a", "a_dead_letters"}, "a_dead_letters", "the other's dead-letter table"},
		{[]string{"A_Dead_Letters", "a"}, "A_Dead_Letters", "the other's dead-letter table"},
		{[]string{"Orders", "orders"}, "Orders", "differ only in the case"},
		{[]string{"_Kinetl_watermarks"}, "_Kinetl_watermarks", "kinetl's own"},
	} {
		name, _, reason, found := Collision(c.tables)
		if found != (c.name != "") || name != c.name || !strings.Contains(reason, c.reason) {
			t.Errorf("%v: got %q, %q", c.tables, name, reason)
		}
	}
}

// R31, across pipelines: the namespace decides, and who shares a database file.
func TestTablesOfPipelinesCollide(t *testing.T) {
	other := func(table, destination string) string {
		return strings.NewReplacer("{ name: orders }\nspec", "{ name: second }\nspec", "name: local", "name: "+destination+", table: "+table).Replace(pipeline)
	}
	alias := strings.Replace(strings.Replace(destination, "name: local", "name: alias", 1), "path: orders.duckdb", "path: ./orders.duckdb", 1)
	away := strings.Replace(strings.Replace(destination, "name: local", "name: away", 1), "path: orders.duckdb", "path: other.duckdb", 1)
	docs := func(second string) string {
		return documents(sourceWith("streams: [x]"), destination, alias, away, pipeline, second)
	}
	cases := []struct{ name, second, want string }{
		{"dead-letter table", other("X_dead_letters", "local"), `the table "X_dead_letters" collides with "x" of Pipeline "orders": it is the name of the other's dead-letter table`},
		{"another name of the file", other("x_dead_letters", "alias"), `collides with "x"`},
		{"case of letters", other("X", "local"), "differ only in the case of letters"},
		{"kinetl's own", other("_kinetl_gaps", "away"), "names that begin with _kinetl_ are kinetl's own"},
		{"one stream, one table, two owners", other("x", "local"), `Pipeline "orders" (test.yaml:26) loads the same stream into the table "x"`},
		{"another file", other("x_dead_letters", "away"), ""},
		{"another namespace", strings.Replace(other("x_dead_letters", "local"), "table:", "namespace: two, table:", 1), ""},
		{"another table", other("y", "local"), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.want == "" {
				parse(t, docs(c.second))
				return
			}
			faults := refused(t, docs(c.second))
			if len(faults) != 1 || !strings.Contains(faults[0].Error(), c.want) {
				t.Errorf("got  %v\nwant %s", faults, c.want)
			}
		})
	}
}

// The order in which pipelines stand changes nothing.
func TestTablesCollideInEitherOrder(t *testing.T) {
	first := strings.Replace(pipeline, "name: local", "name: local, table: x_dead_letters", 1)
	second := strings.NewReplacer("{ name: orders }\nspec", "{ name: second }\nspec", "name: local", "name: local, table: x").Replace(pipeline)
	faults := refused(t, documents(source, destination, first, second))
	if len(faults) != 1 || !strings.Contains(faults[0].Message, `the table "x" collides with "x_dead_letters" of Pipeline "orders": "x_dead_letters" is the name of its dead-letter table`) {
		t.Errorf("got %v", faults)
	}
}

// R31 within one pipeline: streams named after each other.
func TestStreamsCollide(t *testing.T) {
	faults := refused(t, documents(sourceWith("streams: [x, x_dead_letters, y]"), destination, pipeline))
	if len(faults) != 1 || !strings.Contains(faults[0].Message, `"x_dead_letters" collides with "x"`) {
		t.Errorf("got %v", faults)
	}
}
