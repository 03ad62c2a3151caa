package config

// Unsupported lists what the pipeline asks for that this version of kinetl checks
// but can't run, each with its place.
func (p Plan) Unsupported() []Fault {
	var out []Fault
	lacks := func(d *document, path, what, instead string) {
		out = append(out, d.file.render(finding{d.at(path), "this version can't run " + what + " yet", instead}))
	}
	if f := p.Source.Spec.Config.Format.Format; f != "json" {
		lacks(p.source, "spec.config.format", "format "+f, "")
	}
	if c := p.Destination.Spec.Connector; c != "duckdb" && c != "postgres" {
		lacks(p.destination, "spec.connector", "a destination of connector "+c, "write to connector: duckdb or postgres")
	}
	if p.Pipeline.Spec.Metrics.CloudWatch != nil {
		lacks(p.pipeline, "spec.metrics.cloudwatch", "metrics in CloudWatch", "leave cloudwatch out")
	}
	return out
}

// NotYet is Unsupported of all pipelines, each place once. Nil: all can be run.
func (s *Set) NotYet() Faults {
	var out Faults
	seen := map[string]bool{}
	for _, p := range s.Pipelines() {
		for _, f := range p.Unsupported() {
			if !seen[f.Error()] {
				seen[f.Error()] = true
				out = append(out, f)
			}
		}
	}
	return out.sorted(s.names())
}
