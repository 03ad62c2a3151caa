package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// orders makes believable records: the orders of a web shop.
type orders struct {
	rng   *rand.Rand
	total int
	made  int
}

func newOrders(total int) *orders {
	return &orders{rng: rand.New(rand.NewPCG(1, 2)), total: total}
}

// broken tells which orders are cut short, as by a producer that fails half-way.
func (o *orders) broken(i int) bool { return i == o.total/3 || i == o.total/3*2 && o.total > 2 }

// next is the partition key and the payload of the next order.
func (o *orders) next() (key string, payload []byte) {
	i := o.made
	o.made++
	customer := fmt.Sprintf("c-%04d", o.rng.IntN(2000))
	var b strings.Builder
	fmt.Fprintf(&b, `{"order_id":%d,"customer":%q,"placed_at":%q`, i, customer,
		time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC).Add(time.Duration(i)*37*time.Millisecond).Format(time.RFC3339Nano))
	lines := 1 + o.rng.IntN(3)
	total := 0
	b.WriteString(`,"items":[`)
	for n := range lines {
		if n > 0 {
			b.WriteByte(',')
		}
		price := 199 + o.rng.IntN(20000)
		total += price
		fmt.Fprintf(&b, `{"sku":"SKU-%05d","qty":%d,"price":%d.%02d}`, o.rng.IntN(90000), 1+o.rng.IntN(4), price/100, price%100)
	}
	fmt.Fprintf(&b, `],"total":%d.%02d`, total/100, total%100)
	fmt.Fprintf(&b, `,"address":{"city":%q,"zip":"%05d","geo":{"lat":%.4f,"lon":%.4f}}`,
		cities[o.rng.IntN(len(cities))], o.rng.IntN(99999), 40+o.rng.Float64()*15, o.rng.Float64()*25)
	// Beyond 2^53, where a double would round.
	fmt.Fprintf(&b, `,"payment_ref":%d`, int64(9007199254740993)+int64(i))
	coupons := []string{"null", `"WELCOME10"`, "null", "null"}
	fmt.Fprintf(&b, `,"coupon":%s,"gift":%t`, coupons[o.rng.IntN(len(coupons))], o.rng.IntN(9) == 0)
	if i > o.total/2 {
		// A field that was not there yesterday.
		fmt.Fprintf(&b, `,"loyalty_points":%d`, o.rng.IntN(500))
	}
	text := b.String() + "}"
	if o.broken(i) {
		text = text[:len(text)/2]
	}
	return customer, []byte(text)
}

var cities = []string{"Lisboa", "Łódź", "München", "Kraków", "Málaga", "Besançon", "Århus", "東京"}
