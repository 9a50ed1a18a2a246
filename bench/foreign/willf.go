// Times queries of willf/bloom (bits-and-blooms/bloom) by testing.B, for bench/foreign: a round for each
// line on standard input.
//
//	willf FILE KEYS      KEYS: length, big-endian, and bytes of each key
//
// Prints the nanoseconds of a key, and how many keys were found.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/willf/bloom"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	testing.Init()
	check(flag.Set("test.benchtime", "300ms"))
	file, err := os.Open(os.Args[1])
	check(err)
	filter := &bloom.BloomFilter{}
	_, err = filter.ReadFrom(bufio.NewReader(file))
	check(err)
	bytes, err := os.ReadFile(os.Args[2])
	check(err)
	var keys [][]byte
	for len(bytes) > 0 {
		length := binary.BigEndian.Uint32(bytes)
		keys = append(keys, bytes[4:4+length])
		bytes = bytes[4+length:]
	}
	found := 0
	for _, key := range keys {
		if filter.Test(key) {
			found++
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		result := testing.Benchmark(func(b *testing.B) {
			at := 0
			for i := 0; i < b.N; i++ {
				filter.Test(keys[at])
				if at++; at == len(keys) {
					at = 0
				}
			}
		})
		fmt.Println(float64(result.T.Nanoseconds())/float64(result.N), found)
	}
}
