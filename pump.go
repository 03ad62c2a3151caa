package kinetl

import "context"

// page is a fetch and the bytes reserved for it, or the error that ended reading.
type page struct {
	fetch Fetch
	grant *grant
	err   error
}

// done gives back the page's bytes.
func (p page) done() {
	p.grant.set(0)
	if p.fetch.Release != nil {
		p.fetch.Release()
	}
}

// pump waits for pages. It reserves bytes before it asks for a page, and gives back
// what the page did not need (R27).
type pump struct {
	pages  chan page
	cancel context.CancelFunc
	done   chan struct{}
}

func startPump(ctx context.Context, reader Reader, account *account) *pump {
	ctx, cancel := context.WithCancel(ctx)
	p := &pump{make(chan page), cancel, make(chan struct{})}
	go func() {
		defer close(p.done)
		defer reader.Close()
		for {
			pg := fetchPage(ctx, reader, account)
			select {
			case p.pages <- pg:
			case <-ctx.Done():
				pg.done()
				return
			}
			if pg.err != nil {
				return
			}
		}
	}()
	return p
}

func fetchPage(ctx context.Context, reader Reader, account *account) page {
	bytes, err := reader.Ready(ctx)
	if err != nil {
		return page{err: err}
	}
	g, err := account.reserve(ctx, bytes)
	if err != nil {
		return page{err: err}
	}
	f, err := reader.Next(ctx)
	if err != nil {
		g.set(0)
		return page{err: err}
	}
	g.set(f.Bytes)
	return page{fetch: f, grant: g}
}

func (p *pump) stop() {
	p.cancel()
	<-p.done
}
