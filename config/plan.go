package config

import (
	"cmp"
	"reflect"
	"slices"
)

// Plan is one pipeline with what it refers to, every default applied.
type Plan struct {
	Pipeline    *Pipeline
	Source      *Source
	Destination *Destination

	pipeline, source, destination *document
}

// Pipelines lists the pipelines in the order of their documents. Before Resolve,
// values that come from outside have their defaults, and a pipeline whose source or
// destination is named from outside is left out. The plans are the caller's own.
func (s *Set) Pipelines() []Plan {
	var out []Plan
	for _, d := range s.documents {
		p, ok := d.value.(*Pipeline)
		if !ok {
			continue
		}
		plan := Plan{pipeline: d,
			source:      s.find("Source", p.Spec.Source.Name),
			destination: s.find("Destination", p.Spec.Destination.Name)}
		if plan.source == nil || plan.destination == nil {
			continue
		}
		plan.Source = withDefaults(plan.source.value.(*Source))
		plan.Destination = withDefaults(plan.destination.value.(*Destination))
		plan.Pipeline = withDefaults(p)
		derive(plan.Pipeline, plan.Destination)
		out = append(out, plan)
	}
	return out
}

// Sources lists the sources, every default applied.
func (s *Set) Sources() []*Source { return all[Source](s) }

// Destinations lists the destinations, every default applied.
func (s *Set) Destinations() []*Destination { return all[Destination](s) }

func all[T any](s *Set) []*T {
	var out []*T
	for _, d := range s.documents {
		if v, ok := d.value.(*T); ok {
			out = append(out, withDefaults(v))
		}
	}
	return out
}

// find is the first document of a kind and name; nil: there is none.
func (s *Set) find(kind, name string) *document {
	for _, d := range s.documents {
		if h := d.header(); h.Kind == kind && h.Metadata.Name == name && name != "" {
			return d
		}
	}
	return nil
}

// Streams lists the streams that the pipeline reads, as names or ARNs, before
// StreamPattern: its own list, else its source's. Empty: every stream that can be listed.
func (p Plan) Streams() []string {
	if own := p.Pipeline.Spec.Source.Streams; len(own) > 0 {
		return own
	}
	return p.Source.Spec.Config.Streams
}

// withDefaults copies a document and gives every key that is left out the default
// of its tag.
func withDefaults[T any](doc *T) *T {
	out := *doc
	applyDefaults(reflect.ValueOf(&out).Elem())
	return &out
}

func applyDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		field := v.FieldByIndex(f.index)
		switch kind := kindOf(f.typ); {
		case kind.isScalar():
			if field.IsZero() && f.def != "" {
				// A test reads every default; it can't fail here.
				_ = setScalar(field, f, f.def)
			}
		case kind == kindObject && field.Kind() == reflect.Pointer, kind == kindConfig:
			if !field.IsNil() {
				field.Set(copyOf(field))
			}
		case kind == kindObject:
			applyDefaults(field)
		case kind == kindList && field.Len() > 0:
			field.Set(reflect.AppendSlice(reflect.MakeSlice(f.typ, 0, field.Len()), field))
		}
	}
}

// copyOf copies what a pointer points to, and applies defaults to the copy.
func copyOf(pointer reflect.Value) reflect.Value {
	if pointer.Kind() == reflect.Interface {
		pointer = pointer.Elem()
	}
	out := reflect.New(pointer.Type().Elem())
	out.Elem().Set(pointer.Elem())
	applyDefaults(out.Elem())
	return out
}

// LeaseService is the region and identity of the lease store dynamodb.
func (p Plan) LeaseService() Service { return p.Pipeline.Spec.Leases.AWS.over(p.Pipeline.Spec.AWS) }

// StreamGroup is streams of a pipeline that are reached in one way.
type StreamGroup struct {
	Service Service
	Streams []string // names or ARNs; empty: every stream that can be listed
}

// StreamGroups is the pipeline's streams by how they are reached, the source's own way
// first.
func (p Plan) StreamGroups() []StreamGroup {
	source := p.Source.Spec
	own := Service{Region: source.Config.Region, Endpoint: source.Config.Endpoint, Profile: source.AWS.Profile,
		AccessKeyID: source.Config.AccessKeyID, SecretAccessKey: source.Config.SecretAccessKey, Role: source.AWS.Role}
	if len(source.Config.StreamAWS) == 0 {
		return []StreamGroup{{own, p.Streams()}}
	}
	groups := []StreamGroup{{Service: own}}
	for _, stream := range p.Streams() {
		service := own
		if i := slices.IndexFunc(source.Config.StreamAWS, func(s StreamService) bool { return sameStream(s.Stream, stream) }); i >= 0 {
			given := source.Config.StreamAWS[i].Service
			service = given.over(own)
			if given.Region == "" {
				service.Endpoint = cmp.Or(service.Endpoint, own.Endpoint) // an endpoint is one region's
			}
		}
		i := slices.IndexFunc(groups, func(g StreamGroup) bool { return g.Service == service })
		if i < 0 {
			i, groups = len(groups), append(groups, StreamGroup{Service: service})
		}
		groups[i].Streams = append(groups[i].Streams, stream)
	}
	if len(groups[0].Streams) == 0 {
		groups = groups[1:] // without a name it would stand for every stream
	}
	return groups
}

// sameStream reports whether two spellings, a name or an ARN each, are of one stream.
func sameStream(a, b string) bool {
	return a == b || StreamName(a) == StreamName(b) && (StreamName(a) == a || StreamName(b) == b)
}

// derive applies the defaults that depend on other keys.
func derive(p *Pipeline, d *Destination) {
	spec := &p.Spec
	spec.Application = cmp.Or(spec.Application, p.Metadata.Name)
	spec.Destination.Namespace = cmp.Or(spec.Destination.Namespace, namespaceOf(d))
	switch spec.Leases.Store {
	case "sqlite":
		spec.Leases.Path = cmp.Or(spec.Leases.Path, ".kinetl/"+spec.Application+".db")
	case "dynamodb":
		spec.Leases.Table = cmp.Or(spec.Leases.Table, spec.Application)
	}
}

// namespaceOf is the namespace of tables whose pipeline names none.
func namespaceOf(d *Destination) string {
	if k, ok := d.Spec.Config.(*KinesisDestination); ok {
		return k.Namespace
	}
	return map[string]string{"duckdb": "main", "postgres": "public", "snowflake": "PUBLIC", "iceberg": "default"}[d.Spec.Connector]
}
