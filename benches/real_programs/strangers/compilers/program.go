package main

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

type refusal struct{ code int }

func (r refusal) Error() string { return fmt.Sprint("refused ", r.code) }

func nested(depth int) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = caught.(error)
		}
	}()
	if depth == 0 {
		panic(refusal{7})
	}
	return nested(depth - 1)
}

func main() {
	var lock sync.Mutex
	var group sync.WaitGroup
	total := 0
	for step := 1; step <= 8; step++ {
		group.Add(1)
		go func(step int) {
			defer group.Done()
			for i := 0; i < 1000; i++ {
				lock.Lock()
				total += i * step
				lock.Unlock()
			}
		}(step)
	}
	group.Wait()
	runtime.GC()
	var pointer *int
	func() {
		defer func() { fmt.Println(recover()) }()
		fmt.Println(*pointer)
	}()
	fmt.Println(total, nested(3), strings.Repeat("ab", 3))
}
