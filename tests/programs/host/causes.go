// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

// As causes.c, in Go: a slice that only grows.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
)

var kept [][]byte

func take(mib int) {
	for i := 0; i < mib*64; i++ {
		block := make([]byte, 16000) // LEAK: go
		for at := range block {
			block[at] = 1
		}
		kept = append(kept, block)
	}
}

func main() {
	mib, _ := strconv.Atoi(os.Args[2])
	in := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	if !in.Scan() {
		return
	}
	take(mib)
	fmt.Println("grown")
	in.Scan()
	fmt.Println(len(kept))
}
