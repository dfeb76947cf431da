package main

import (
	"C"
	"fmt"
	"sort"
	"strings"
)

//export Words
func Words(text *C.char) C.int {
	counts := map[string]int{}
	for _, word := range strings.Fields(C.GoString(text)) {
		counts[word]++
	}
	results := make(chan string)
	for word, count := range counts {
		go func(word string, count int) { results <- fmt.Sprint(word, count) }(word, count)
	}
	lines := []string{}
	for range counts {
		lines = append(lines, <-results)
	}
	sort.Strings(lines)
	fmt.Println(lines)
	return C.int(len(lines))
}

func main() {}
