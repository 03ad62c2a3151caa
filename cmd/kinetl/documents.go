package main

import (
	"github.com/kinetl/kinetl/config"
)

// loadPlans reads documents and everything that they refer to, and refuses what
// this version can't run.
func loadPlans(files []string, secrets string) ([]config.Plan, error) {
	set, err := loadResolved(files, secrets)
	if err != nil {
		return nil, err
	}
	if notYet := set.NotYet(); len(notYet) > 0 {
		return nil, exit(exitDocuments, notYet)
	}
	return set.Pipelines(), nil
}

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
