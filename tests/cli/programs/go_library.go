// A library of Go: goroutines, a collected heap, signals, arguments, the environment, calls back into C.
package main

/*
typedef int (*callback)(int);
static inline int call(callback function, int argument) { return function(argument); }
*/
import "C"

import (
	"os"
	"runtime"
	"sync"
)

// Set by an initialiser of the package. They run in a thread of their own, which each call waits for.
var setting = os.Getenv("JITTISON_TEST")

//export GoArgument
func GoArgument(index C.int) *C.char { return C.CString(os.Args[index]) }

//export GoArgumentCount
func GoArgumentCount() C.int { return C.int(len(os.Args)) }

//export GoSetting
func GoSetting() *C.char { return C.CString(setting) }

// GoSum adds the results of goroutines, each of which calls back into C.
//
//export GoSum
func GoSum(count C.int, function C.callback) C.int {
	var group sync.WaitGroup
	results := make(chan int, int(count))
	for i := 0; i < int(count); i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			results <- int(C.call(function, C.int(i)))
		}(i)
	}
	group.Wait()
	close(results)
	sum := 0
	for result := range results {
		sum += result
	}
	return C.int(sum)
}

type node struct {
	next  *node
	value int
}

// GoCollect builds lists while the collector runs, and adds up what it kept.
//
//export GoCollect
func GoCollect() C.int {
	var kept *node
	for i := 0; i < 300000; i++ {
		next := &node{value: i % 7}
		if i%100 == 0 {
			next.next, kept = kept, next
		}
	}
	runtime.GC()
	sum := 0
	for ; kept != nil; kept = kept.next {
		sum += kept.value
	}
	return C.int(sum)
}

// GoRecover makes a fault of memory, which the runtime of Go turns into a panic, and recovers.
//
//export GoRecover
func GoRecover() (result *C.char) {
	defer func() {
		if problem, ok := recover().(runtime.Error); ok {
			result = C.CString(problem.Error())
		}
	}()
	var nothing *node
	nothing.value++
	return C.CString("no panic")
}

// GoCaller names the function that calls it: the tables of functions are read.
//
//export GoCaller
func GoCaller() *C.char {
	counter, _, _, _ := runtime.Caller(0)
	return C.CString(runtime.FuncForPC(counter).Name())
}

func main() {}
