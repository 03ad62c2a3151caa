package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

// K37, KCL complaint 22: a stream in one account and region and state in others, polled
// and by fan-out: every call is signed by the identity and for the region that the
// documents give to its service, and by no other.
func TestEveryCallIsSignedByItsIdentity(t *testing.T) {
	stream, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if err := stream.CreateStream("orders", 2); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, _, err := stream.Put("orders", fmt.Sprint(i), fmt.Appendf(nil, `{"id":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	dynamo := dynamotest.Dynalite(t)
	signers := &signers{by: map[string][]string{}}
	kinesis, table := signers.before(t, "kinesis", stream.URL()), signers.before(t, "dynamodb", dynamo)
	t.Setenv("AWS_ENDPOINT_URL_STS", signers.sts(t))
	t.Setenv("AWS_ACCESS_KEY_ID", "OWNIDENTITY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "own")
	t.Setenv("AWS_REGION", "eu-west-1")

	const role = `{ role: { arn: "arn:aws:iam::222233334444:role/reader", externalId: kinetl } }`
	const keys = `accessKeyId: { env: STATE_KEY }, secretAccessKey: { env: STATE_SECRET }`
	t.Setenv("STATE_KEY", "STATEIDENTITY")
	t.Setenv("STATE_SECRET", "state")
	for name, x := range map[string]struct{ source, state, kinesis, dynamodb string }{
		"one identity for all":                  {"{}", "", "OWNIDENTITY", "OWNIDENTITY"},
		"the stream in another account":         {role, "", "ASSUMED222233334444", "OWNIDENTITY"},
		"the state in another account":          {"{}", keys, "OWNIDENTITY", "STATEIDENTITY"},
		"stream and state each by their own":    {role, keys, "ASSUMED222233334444", "STATEIDENTITY"},
		"the state by a role of its own":        {"{}", `role: "arn:aws:iam::333344445555:role/state"`, "OWNIDENTITY", "ASSUMED333344445555"},
		"the stream by role, the state by role": {role, `role: "arn:aws:iam::333344445555:role/state"`, "ASSUMED222233334444", "ASSUMED333344445555"},
	} {
		for _, consumer := range []string{"shared", "fan-out"} {
			t.Run(name+"/"+consumer, func(t *testing.T) {
				signers.forget()
				folder := t.TempDir()
				application := regexp.MustCompile(`[^a-z]+`).ReplaceAllString(name+consumer, "-")
				documents := filepath.Join(folder, "pipeline.yaml")
				writeFile(t, documents, fmt.Sprintf(identityDocuments, x.source, kinesis, consumer, filepath.Join(folder, "t.duckdb"), application, table, x.state))
				var stderr bytes.Buffer
				if code := execute(t.Context(), []string{"run", "--once", documents}, nil, io.Discard, &stderr); code != exitDone {
					t.Fatalf("exit %d: %s", code, stderr.String())
				}
				signers.want(t, "kinesis", x.kinesis+" in eu-central-1")
				signers.want(t, "dynamodb", x.dynamodb+" in eu-west-1")
				if assumed := x.kinesis != "OWNIDENTITY" || x.dynamodb == "ASSUMED333344445555"; assumed {
					signers.want(t, "sts", "OWNIDENTITY")
				}
				db, err := sql.Open("duckdb", filepath.Join(folder, "t.duckdb"))
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				var rows int
				if err := db.QueryRow("SELECT count(*) FROM orders").Scan(&rows); err != nil || rows != 10 {
					t.Errorf("%d rows of 10: %v", rows, err)
				}
			})
		}
	}
	if n := stream.Count("SubscribeToShard"); n < 6*2 {
		t.Errorf("%d subscriptions", n)
	}
}

const identityDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: s }
spec: { connector: kinesis, aws: %s, config: { region: eu-central-1, endpoint: %q, streams: [orders], consumer: %s } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: d }
spec: { connector: duckdb, config: { path: %q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: %s }
spec: { source: { name: s }, destination: { name: d }, leases: { store: dynamodb, aws: { endpoint: %q, %s } } }
`

// signers notes by whom the calls to each service were signed.
type signers struct {
	mu sync.Mutex
	by map[string][]string
}

var credential = regexp.MustCompile(`Credential=([^/]+)/[0-9]+/([^/]+)/([^/]+)/`)

func (s *signers) note(service string, r *http.Request) {
	who := "nobody"
	if m := credential.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		who = m[1]
		if service != "sts" {
			who += " in " + m[2]
		}
		if m[3] != service {
			who += " for " + m[3]
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.by[service], who) {
		s.by[service] = append(s.by[service], who)
	}
}

func (s *signers) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.by)
}

func (s *signers) want(t *testing.T, service, who string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.by[service], []string{who}) {
		t.Errorf("calls to %s are signed by %v, want %s", service, s.by[service], who)
	}
}

// before stands before a server that checks no signatures, and notes them.
func (s *signers) before(t *testing.T, service, server string) string {
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of calls that were given up
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note(service, r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// sts answers AssumeRole with keys that name the role's account. Source: the API
// reference of STS.
func (s *signers) sts(t *testing.T) string {
	account := regexp.MustCompile(`^arn:aws:iam::([0-9]{12}):role/`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note("sts", r)
		m := account.FindStringSubmatch(r.FormValue("RoleArn"))
		if r.FormValue("Action") != "AssumeRole" || m == nil || m[1] == "222233334444" && r.FormValue("ExternalId") != "kinetl" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "text/xml")
		fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
			<AccessKeyId>ASSUMED%s</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration>
			</Credentials></AssumeRoleResult></AssumeRoleResponse>`, m[1], time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(server.Close)
	return server.URL
}
