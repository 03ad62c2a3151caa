package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kinetl/kinetl"
)

// DeadLetterSuffix is what a table's name and that of its dead-letter table differ by.
const DeadLetterSuffix = "_dead_letters"

// stateTables begin the names of tables in which kinetl keeps its state (R16).
const stateTables = "_kinetl_"

// Collision says why the tables of one namespace can't exist beside each other (R31).
// It returns the first name in order that collides, the name that it collides with
// ("" for kinetl's own tables) and the reason. Names match as Fold has it.
func Collision(tables []string) (name, with, reason string, found bool) {
	byFold := map[string]string{}
	for _, t := range tables {
		byFold[kinetl.Fold(t)] = t
	}
	for _, t := range tables {
		fold := kinetl.Fold(t)
		if strings.HasPrefix(fold, stateTables) {
			return t, "", "names that begin with " + stateTables + " are kinetl's own", true
		}
		if other := byFold[fold]; other != t {
			return t, other, "the two differ only in the case of letters", true
		}
		if base, ok := strings.CutSuffix(fold, DeadLetterSuffix); ok {
			if other, taken := byFold[base]; taken {
				return t, other, "it is the name of the other's dead-letter table", true
			}
		}
	}
	return "", "", "", false
}

// use is a table that a pipeline feeds.
type use struct {
	plan   Plan
	stream string // "": any stream of its source
	table  string
}

// checkTables refuses collisions among the tables of each destination and namespace,
// as far as the documents name the streams.
func checkTables(plans []Plan) {
	places := map[string][]use{}
	var order []string
	for _, p := range plans {
		place := p.namespace()
		for _, u := range p.uses() {
			if !slices.Contains(order, place) {
				order = append(order, place)
			}
			places[place] = append(places[place], u)
		}
	}
	for _, place := range order {
		checkPlace(places[place])
		checkOwners(places[place])
	}
}

func checkPlace(uses []use) {
	var seen []string
	for _, u := range uses {
		if slices.Contains(seen, u.table) {
			continue
		}
		seen = append(seen, u.table)
		name, with, reason, found := Collision(seen)
		if !found {
			continue
		}
		seen = seen[:len(seen)-1] // one fault for each name
		if name != u.table {
			name, with = with, name
			reason = fmt.Sprintf("%s is the name of its dead-letter table", quote(with))
			if kinetl.Fold(name) == kinetl.Fold(with) {
				reason = "the two differ only in the case of letters"
			}
		}
		message := fmt.Sprintf("the table %s can't be written: %s", quote(u.table), reason)
		if with != "" {
			i := slices.IndexFunc(uses, func(o use) bool { return o.table == with })
			message = fmt.Sprintf("the table %s collides with %s of Pipeline %s: %s", quote(u.table), quote(with),
				quote(uses[i].plan.Pipeline.Metadata.Name), reason)
		}
		u.plan.pipeline.fault("spec.destination.table", "choose another table or namespace", "%s", message)
	}
}

// namespace identifies the place of the pipeline's tables: the same for two
// Destinations with the same DuckDB file.
func (p Plan) namespace() string {
	place := "name " + p.Destination.Metadata.Name
	if d, ok := p.Destination.Spec.Config.(*DuckDB); ok && d.Path != "" {
		place = "file " + filepath.Clean(d.Path)
	}
	return place + "\x00" + kinetl.Fold(p.Pipeline.Spec.Destination.Namespace)
}

// uses lists the tables that the pipeline is known to feed.
func (p Plan) uses() []use {
	if p.pipeline.pending("spec.destination") || p.pipeline.pending("spec.source") || p.source.pending("spec.config") {
		return nil
	}
	var out []use
	for _, s := range p.Streams() {
		if p.Source.Spec.Config.MatchStream(StreamName(s)) {
			out = append(out, use{p, StreamName(s), p.Pipeline.TableFor(s)})
		}
	}
	if table := p.Pipeline.Spec.Destination.Table; len(p.Streams()) == 0 && !strings.Contains(table, "{stream}") {
		out = append(out, use{p, "", table})
	}
	return out
}

// checkOwners refuses two pipelines that load one stream into one table: the first
// to run owns the watermark, the other is refused (R1).
func checkOwners(uses []use) {
	for i, u := range uses {
		for _, o := range uses[:i] {
			same := o.table == u.table && o.plan.source == u.plan.source && o.plan.pipeline != u.plan.pipeline
			if same && (o.stream == u.stream || o.stream == "" || u.stream == "") {
				u.plan.pipeline.fault("spec.destination.table", "choose another table or namespace",
					"Pipeline %s (%s) loads the same stream into the table %s", quote(o.plan.Pipeline.Metadata.Name),
					o.plan.pipeline.where("spec.destination"), quote(u.table))
				return
			}
		}
	}
}
