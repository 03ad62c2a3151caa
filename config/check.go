package config

import (
	"fmt"
	"path/filepath"
	"slices"
)

// check notes what no single key shows: faults between keys, and between documents.
// Keys whose value is still to come are left alone.
func (s *Set) check() {
	s.checkEach()
	s.checkDuplicates()
	if !s.whole() {
		return // a reference may lead to a document that could not be read
	}
	for _, d := range s.documents {
		if p, ok := d.value.(*Pipeline); ok {
			s.checkReference(d, "Source", "spec.source.name", p.Spec.Source.Name)
			s.checkReference(d, "Destination", "spec.destination.name", p.Spec.Destination.Name)
		}
	}
	plans := s.Pipelines()
	for _, p := range plans {
		p.checkStreams()
		p.checkDelivery()
	}
	checkShared(plans)
	checkTables(plans)
}

// checkEach checks every document by itself.
func (s *Set) checkEach() {
	for _, d := range s.documents {
		switch v := d.value.(type) {
		case *Source:
			d.checkKeys("spec.config")
			d.checkFormat(v.Spec.Config.Format)
			d.checkRegions(v.Spec.Config)
			d.checkStreamAWS(v.Spec.Config)
		case *Destination:
			switch c := v.Spec.Config.(type) {
			case *KinesisDestination:
				d.checkKeys("spec.config")
				d.checkFormat(c.Format)
			case *Iceberg:
				if c.Catalog == "rest" && !d.has("spec.config.uri") {
					d.fault("spec.config.catalog", "", "spec.config.uri is missing: catalog rest needs it")
				}
			}
		case *Pipeline:
			d.checkSchedule(v)
			d.checkLeases(v)
			for _, of := range []string{"spec.aws", "spec.leases.aws", "spec.metrics.cloudwatch.aws"} {
				d.checkKeys(of)
			}
		}
	}
}

// checkKeys refuses half an access key.
func (d *document) checkKeys(of string) {
	id, secret := of+".accessKeyId", of+".secretAccessKey"
	switch {
	case d.has(id) && !d.has(secret):
		d.fault(id, "give both, or neither", "%s is missing: accessKeyId is given", secret)
	case d.has(secret) && !d.has(id):
		d.fault(secret, "give both, or neither", "%s is missing: secretAccessKey is given", id)
	}
}

func (d *document) checkFormat(f Format) {
	const url = "spec.config.schemaRegistryUrl"
	if (f.Format == "avro" || f.Format == "protobuf") && !d.has(url) {
		d.fault("spec.config.format", "", "%s is missing: format %s needs it", url, f.Format)
	}
	for _, key := range []string{"schemaRegistryUsername", "schemaRegistryPassword"} {
		if path := "spec.config." + key; d.has(path) && !d.has(url) {
			d.fault(path, "", "%s is missing: %s is given", url, key)
		}
	}
}

// checkRegions refuses ARNs of another region than the one that is read.
func (d *document) checkRegions(k KinesisSource) {
	region, of := k.Region, "spec.config.region"
	for i, stream := range k.Streams {
		r, path := streamRegion(stream), fmt.Sprintf("spec.config.streams[%d]", i)
		own := slices.IndexFunc(k.StreamAWS, func(s StreamService) bool { return sameStream(s.Stream, stream) })
		switch {
		case r == "" || d.pending("spec.config.region") || d.pending("spec.config.streamAws"):
		case own >= 0 && k.StreamAWS[own].Region != "":
			if has := k.StreamAWS[own].Region; r != has {
				d.fault(path, "", "the stream is in %s, but spec.config.streamAws[%d].region says %s", r, own, has)
			}
		case region == "":
			region, of = r, path
		case r != region:
			d.fault(path, "give its region in streamAws, or write one Source for each region",
				"the stream is in %s, but %s says %s", r, of, region)
		}
	}
}

// checkStreamAWS refuses what is said of a stream that the source does not name, of one
// of several, or twice.
func (d *document) checkStreamAWS(k KinesisSource) {
	for i, s := range k.StreamAWS {
		of := fmt.Sprintf("spec.config.streamAws[%d]", i)
		d.checkKeys(of)
		if d.pending("spec.config.streams") || d.pending(of+".stream") || s.Stream == "" {
			continue
		}
		var names []string
		named := 0
		for _, stream := range k.Streams {
			names = append(names, StreamName(stream))
			if sameStream(stream, s.Stream) {
				named++
			}
		}
		switch {
		case len(k.Streams) == 0:
			d.fault(of+".stream", "name all streams in spec.config.streams", "spec.config.streams is missing: streamAws is of streams that are named")
		case named == 0:
			d.fault(of+".stream", didYouMean(StreamName(s.Stream), names), "%s.stream: spec.config.streams does not name %s", of, quote(s.Stream))
		case named > 1:
			d.fault(of+".stream", "write its ARN", "%s.stream: spec.config.streams names %d streams %s", of, named, quote(s.Stream))
		case slices.ContainsFunc(k.StreamAWS[:i], func(o StreamService) bool { return sameStream(o.Stream, s.Stream) }):
			d.fault(of+".stream", "", "%s.stream: stream %s is described twice", of, quote(s.Stream))
		}
	}
}

func (d *document) checkSchedule(p *Pipeline) {
	const mode, schedule = "spec.mode", "spec.schedule"
	switch {
	case d.pending(mode):
	case p.Spec.Mode == "scheduled" && !d.has(schedule):
		d.fault(mode, `write schedule: "*/15 * * * *"`, "spec.schedule is missing: mode is scheduled")
	case p.Spec.Mode != "scheduled" && d.has(schedule):
		d.fault(schedule, "write mode: scheduled", "spec.schedule has no effect: mode is not scheduled")
	}
}

func (d *document) checkLeases(p *Pipeline) {
	if d.pending("spec.leases.store") {
		return
	}
	keys, store := []string{"table", "aws"}, "dynamodb"
	if p.Spec.Leases.Store == "dynamodb" {
		keys, store = []string{"path"}, "sqlite"
	}
	for _, key := range keys {
		if path := "spec.leases." + key; d.has(path) {
			d.fault(path, "write store: "+store+", or leave "+key+" out", "%s is for the store %s only", path, store)
		}
	}
}

// checkDuplicates refuses two documents of one kind and name.
func (s *Set) checkDuplicates() {
	for i, d := range s.documents {
		h := d.header()
		if first := s.find(h.Kind, h.Metadata.Name); first != nil && slices.Index(s.documents, first) < i {
			d.fault("metadata.name", "give it another name", "%s %s is described twice, first in %s",
				h.Kind, quote(h.Metadata.Name), first.where("metadata.name"))
		}
	}
}

// where names the place of a key for a message about another.
func (d *document) where(path string) string {
	return fmt.Sprintf("%s:%d", d.file.name, d.at(path).line)
}

// checkReference refuses the name of a document that is not there.
func (s *Set) checkReference(d *document, kind, path, name string) {
	if name == "" || s.find(kind, name) != nil {
		return
	}
	var known []string
	for _, other := range s.documents {
		if h := other.header(); h.Kind == kind && h.Metadata.Name != "" {
			known = append(known, h.Metadata.Name)
		}
	}
	suggestion := didYouMean(name, known)
	if len(known) == 0 {
		suggestion = "give the file that describes it as well"
	}
	d.fault(path, suggestion, "%s: there is no %s %s", path, kind, quote(name))
}

// checkStreams refuses streams of a pipeline that its source does not read.
func (p Plan) checkStreams() {
	known := p.Source.Spec.Config.Streams
	if p.source.pending("spec.config.streams") {
		known = nil
	}
	var words []string
	for _, k := range known {
		words = append(words, StreamName(k))
	}
	for i, stream := range p.Pipeline.Spec.Source.Streams {
		path := fmt.Sprintf("spec.source.streams[%d]", i)
		name := StreamName(stream)
		switch {
		case p.pipeline.pending(path):
		case len(known) > 0 && !slices.Contains(words, name):
			p.pipeline.fault(path, didYouMean(name, words), "%s: Source %s does not read a stream %s", path, quote(p.Source.Metadata.Name), quote(stream))
		case !p.source.pending("spec.config.streamPattern") && !p.Source.Spec.Config.MatchStream(name):
			p.pipeline.fault(path, "", "%s: the streamPattern of Source %s leaves %s out", path, quote(p.Source.Metadata.Name), quote(stream))
		}
	}
}

// checkDelivery refuses a guarantee that the destination can't keep.
func (p Plan) checkDelivery() {
	const path = "spec.delivery.require"
	connector := p.Destination.Spec.Connector
	atLeastOnce := connector == "kinesis" || connector == "files"
	if !atLeastOnce || p.Pipeline.Spec.Delivery.Require != "exactly_once" || p.pipeline.pending(path) {
		return
	}
	p.pipeline.fault(path, "write delivery: { require: at_least_once }",
		"delivery exactly_once can't be kept by a destination of connector %s, which repeats rows after a failure", connector)
}

// checkShared refuses pipelines that would take each other's leases.
func checkShared(plans []Plan) {
	type key struct{ what, value string }
	first := map[key]Plan{}
	for _, p := range plans {
		spec := p.Pipeline.Spec
		keys := []struct {
			path string
			key  key
		}{{"spec.application", key{"application", spec.Application}}}
		switch spec.Leases.Store {
		case "sqlite":
			keys = append(keys, struct {
				path string
				key  key
			}{"spec.leases.path", key{"lease file", filepath.Clean(spec.Leases.Path)}})
		case "dynamodb":
			keys = append(keys, struct {
				path string
				key  key
			}{"spec.leases.table", key{"lease table", spec.Leases.Table}})
		}
		for _, k := range keys {
			if p.pipeline.pending(k.path) || p.pipeline.pending("spec.leases") || p.pipeline.pending("spec.application") {
				continue
			}
			other, taken := first[k.key]
			if !taken {
				first[k.key] = p
				continue
			}
			p.pipeline.fault(k.path, "give each pipeline its own", "the %s %s is that of Pipeline %s (%s) too",
				k.key.what, quote(k.key.value), quote(other.Pipeline.Metadata.Name), other.pipeline.where(k.path))
			break // the lease file follows from the application
		}
	}
}
