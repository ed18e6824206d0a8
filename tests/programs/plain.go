// plain: a Go program of its own runtime alone.
package main

import "fmt"

func main() {
	var all []*[100]byte
	for i := 0; i < 10000; i++ {
		all = append(all, new([100]byte))
	}
	fmt.Println(len(all))
}
