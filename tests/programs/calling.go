// calling: a Go program that calls C, in several threads: 2000 blocks of 700 to 799 bytes come and go there.
package main

// #include <stdlib.h>
import "C"

import (
	"fmt"
	"sync"
)

func main() {
	var group sync.WaitGroup
	for thread := 0; thread < 4; thread++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 500; i++ {
				C.free(C.malloc(C.size_t(700 + i%100)))
			}
		}()
	}
	group.Wait()
	fmt.Println("done")
}
