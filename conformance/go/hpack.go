package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// speakHpack reads lines of words: `new` begins a connection, `size N` allows a table of N bytes and uses it, and
// `block HEX NAME:VALUE:NEVER,…` is a block and what it must come to, for which it writes a block with the same fields.
func speakHpack() {
	var block bytes.Buffer
	encoder, decoder := hpack.NewEncoder(&block), hpack.NewDecoder(4096, nil)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		switch words[0] {
		case "new":
			block.Reset()
			encoder, decoder = hpack.NewEncoder(&block), hpack.NewDecoder(4096, nil)
		case "size":
			size, err := strconv.ParseUint(words[1], 10, 32)
			if err != nil {
				log.Fatal(err)
			}
			decoder.SetAllowedMaxDynamicTableSize(uint32(size))
			encoder.SetMaxDynamicTableSizeLimit(uint32(size))
			encoder.SetMaxDynamicTableSize(uint32(size))
		case "block":
			read, err := decoder.DecodeFull(unhex(words[1]))
			if err != nil {
				log.Fatal(err)
			}
			fields := strings.Split(words[2], ",")
			fields = fields[:len(fields)-1]
			if len(fields) != len(read) {
				log.Fatalf("%d fields of %d", len(read), len(fields))
			}
			block.Reset()
			for at, field := range fields {
				parts := strings.Split(field, ":")
				wanted := hpack.HeaderField{
					Name: string(unhex(parts[0])), Value: string(unhex(parts[1])), Sensitive: parts[2] == "1",
				}
				if read[at].Name != wanted.Name || read[at].Value != wanted.Value ||
					wanted.Sensitive && !read[at].Sensitive {
					log.Fatalf("%v is not %v", read[at], wanted)
				}
				encoder.WriteField(wanted)
			}
			fmt.Println(hex.EncodeToString(block.Bytes()))
		}
	}
}

func unhex(text string) []byte {
	octets, err := hex.DecodeString(text)
	if err != nil {
		log.Fatal(err)
	}
	return octets
}
