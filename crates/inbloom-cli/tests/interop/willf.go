// Filters of willf/bloom (bits-and-blooms/bloom) on files, for the tests: keys come on standard input,
// one a line.
//
//	go run willf.go ask FORM FILE              prints 1 or 0 for each key
//	go run willf.go build FORM FILE N P        writes a filter of the keys
//
// FORM is binary, json or gob.
package main

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/willf/bloom"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	verb, form, path := os.Args[1], os.Args[2], os.Args[3]
	lines := bufio.NewScanner(os.Stdin)
	if verb == "build" {
		n, err := strconv.ParseUint(os.Args[4], 10, 64)
		check(err)
		p, err := strconv.ParseFloat(os.Args[5], 64)
		check(err)
		filter := bloom.NewWithEstimates(uint(n), p)
		for lines.Scan() {
			filter.Add(lines.Bytes())
		}
		var file bytes.Buffer
		switch form {
		case "binary":
			_, err = filter.WriteTo(&file)
		case "json":
			var text []byte
			text, err = filter.MarshalJSON()
			file.Write(text)
		case "gob":
			err = gob.NewEncoder(&file).Encode(filter)
		}
		check(err)
		check(os.WriteFile(path, file.Bytes(), 0o644))
		return
	}
	file, err := os.ReadFile(path)
	check(err)
	filter := &bloom.BloomFilter{}
	switch form {
	case "binary":
		_, err = filter.ReadFrom(bytes.NewReader(file))
	case "json":
		err = json.Unmarshal(file, filter)
	case "gob":
		err = gob.NewDecoder(bytes.NewReader(file)).Decode(filter)
	}
	check(err)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		if filter.Test(lines.Bytes()) {
			fmt.Fprintln(out, 1)
		} else {
			fmt.Fprintln(out, 0)
		}
	}
}
