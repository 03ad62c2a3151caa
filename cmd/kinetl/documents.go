package main

import (
	"github.com/kinetl/kinetl/config"
)

// loadPlans reads documents and everything that they refer to, and refuses what
// this version can't run: as far as it can be told before a secret is asked for.
func loadPlans(files []string, secrets string) ([]config.Plan, error) {
	set, err := config.Load(files...)
	if err != nil {
		return nil, exit(exitDocuments, err)
	}
	if notYet := set.NotYet(); len(notYet) > 0 {
		return nil, exit(exitDocuments, notYet)
	}
	if err := set.Resolve(config.Secrets{Dir: secrets}); err != nil {
		return nil, exit(exitDocuments, err)
	}
	if notYet := set.NotYet(); len(notYet) > 0 {
		return nil, exit(exitDocuments, notYet)
	}
	return set.Pipelines(), nil
}

// loadResolved reads documents and everything that they refer to, what this version
// can't run included.
func loadResolved(files []string, secrets string) (*config.Set, error) {
	set, err := config.Load(files...)
	if err != nil {
		return nil, exit(exitDocuments, err)
	}
	if err := set.Resolve(config.Secrets{Dir: secrets}); err != nil {
		return nil, exit(exitDocuments, err)
	}
	return set, nil
}
