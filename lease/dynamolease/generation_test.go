package dynamolease

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

// addIndex adds KCL 3's index, as its workers do when they start.
func (r raw) addIndex() {
	r.t.Helper()
	_, err := r.db().UpdateTable(r.t.Context(), &dynamodb.UpdateTableInput{
		TableName: &r.table,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("leaseKey"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("leaseOwner"), AttributeType: types.ScalarAttributeTypeS},
		},
		GlobalSecondaryIndexUpdates: []types.GlobalSecondaryIndexUpdate{{Create: &types.CreateGlobalSecondaryIndexAction{
			IndexName: aws.String(kclIndex),
			KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String("leaseOwner"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("leaseKey"), KeyType: types.KeyTypeRange},
			},
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// makeTable makes one of KCL 3's own tables.
func (r raw) makeTable(key string) {
	r.t.Helper()
	_, err := r.db().CreateTable(r.t.Context(), &dynamodb.CreateTableInput{
		TableName: &r.table, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// leader is the lock's item as KCL 3's lock library writes it.
func leader(key, version string, more item) item {
	it := item{
		key: text("Leader"), "ownerName": text("kcl-1"), "leaseDuration": text("120000"),
		"recordVersionNumber": text(version), "data": bytesOf(1),
	}
	for name, v := range more {
		it[name] = v
	}
	return it
}

// R22: what each generation of KCL leaves behind is told apart, and a KCL 3 fleet that
// lives is refused while one that has stopped is taken over.
func TestWatch(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Moto(t))
	o := Options{AWS: cfg, Table: "app"}
	s, leases := open(t, o), raw{t, cfg, "app"}
	began := time.Now()
	look := func(w *Watch, seconds int, want lease.Judgement, note string) {
		t.Helper()
		all, err := s.List(t.Context())
		must(t, err)
		v, err := w.Look(t.Context(), began.Add(time.Duration(seconds)*time.Second), all)
		if err != nil || v.Judgement != want || !strings.Contains(v.Note, note) {
			t.Errorf("after %d s: %+v, %v, want %v and %q", seconds, v, err, want, note)
		}
	}
	looks := func(want string) {
		t.Helper()
		if g, err := s.Generation(t.Context()); err != nil || g.String() != want {
			t.Errorf("got %s, %v, want %s", g, err, want)
		}
	}
	renew := func(counter int) {
		leases.put(item{
			"leaseKey": text("s:1"), "leaseOwner": text("kcl-2"), "leaseCounter": number(strconv.Itoa(counter)),
			"checkpoint": text("7"), "checkpointSubSequenceNumber": number("0"), "ownerSwitchesSinceCheckpoint": number("0"),
		})
	}

	// KCL 2: its workers renew, and nothing is to be waited for.
	looks("KCL 1 or 2, or none")
	var w Watch
	w.Store = s
	for i := range 2 {
		renew(i)
		look(&w, i*60, lease.Clear, "")
	}

	// Its successor, while it still behaves like KCL 2.
	leases.addIndex()
	coordinator := raw{t, cfg, "app-CoordinatorState"}
	coordinator.makeTable("key")
	raw{t, cfg, "app-WorkerMetricStats"}.makeTable("wid")
	coordinator.put(item{"key": text("Migration3.0"), "cv": text("CLIENT_VERSION_UPGRADE_FROM_2X")})
	looks("KCL 3 (Migration3.0 says CLIENT_VERSION_UPGRADE_FROM_2X, index LeaseOwnerToLeaseKeyIndex, worker metrics table)")
	renew(2)
	look(&w, 120, lease.Clear, "")

	// Once it does not, its workers are told by their renewals, its leader by its lock.
	coordinator.put(item{"key": text("Migration3.0"), "cv": text("CLIENT_VERSION_3X_WITH_ROLLBACK")})
	coordinator.put(leader("key", "v1", nil))
	looks("KCL 3 (Migration3.0 says CLIENT_VERSION_3X_WITH_ROLLBACK, index LeaseOwnerToLeaseKeyIndex, worker metrics table, leader lock of kcl-1 in app-CoordinatorState)")
	fresh := Watch{Store: s}
	renew(3)
	look(&w, 180, lease.Live, "kcl-2 renews")
	look(&fresh, 180, lease.Unknown, "")
	coordinator.put(leader("key", "v2", nil))
	look(&fresh, 210, lease.Live, "worker kcl-1 holds the leader lock in table app-CoordinatorState")

	// KCL 3.5 keeps the lock among the leases.
	fresh = Watch{Store: s}
	leases.put(leader("leaseKey", "v1", item{"entityType": text("LEADER")}))
	look(&fresh, 300, lease.Unknown, "in app,")
	leases.put(leader("leaseKey", "v2", item{"entityType": text("LEADER")}))
	look(&fresh, 330, lease.Live, "leader lock in table app ")

	// Stopped, it is taken over; kinetl's next worker need not wait.
	fresh = Watch{Store: s}
	look(&fresh, 400, lease.Unknown, "")
	look(&fresh, 440, lease.Clear, "has stopped")
	l, _, err := s.Get(t.Context(), "s:1")
	must(t, err)
	_, err = s.Update(t.Context(), l, l.TakenBy("kinetl-1"))
	must(t, err)
	fresh = Watch{Store: s}
	look(&fresh, 500, lease.Clear, "")
	leases.put(leader("leaseKey", "v3", item{"entityType": text("LEADER"), "isReleased": text("1")}))
	look(&fresh, 560, lease.Clear, "")
	leases.put(leader("leaseKey", "v4", item{"entityType": text("LEADER")}))
	look(&fresh, 620, lease.Live, "kcl-1")
}

// Tables that may not be read are named, and are no failure; any other error is one.
func TestTablesThatMayNotBeRead(t *testing.T) {
	s, w := wired(t, dynamotest.Dynalite(t), Options{Table: "app"})
	deny := func(kind string) {
		w.reset(func(_ string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if strings.Contains(bodyOf(t, r), `"app-`) {
				return refusal(400, kind), nil
			}
			return send()
		})
	}
	deny("AccessDeniedException")
	watch := Watch{Store: s}
	v, err := watch.Look(t.Context(), time.Now(), nil)
	if err != nil || v.Judgement != lease.Clear || v.Note != "table app-CoordinatorState may not be read; table app-WorkerMetricStats may not be read" {
		t.Errorf("got %+v, %v", v, err)
	}
	deny("ValidationException")
	if _, err := watch.Look(t.Context(), time.Now(), nil); err == nil || !strings.Contains(err.Error(), "app-CoordinatorState") {
		t.Errorf("got %v", err)
	}
}

func FuzzLock(f *testing.F) {
	f.Add("kcl-1", "120000", "v1", true)
	f.Add("", "-1", "", false)
	f.Add("a", "9999999999999999999", "v", false)
	f.Fuzz(func(t *testing.T, owner, ms, version string, released bool) {
		it := item{"ownerName": text(owner), "leaseDuration": text(ms), "recordVersionNumber": text(version)}
		if released {
			it["isReleased"] = text("1")
		}
		l, err := lockOf(it)
		if err == nil && (l.Lease <= 0 || l.Version != version || l.Owner != owner || l.Released != released) {
			t.Errorf("%+v", l)
		}
	})
}
