// Go's peers for tests, with a proxy between the one that serves and the one that calls.
//
//	go-peers serve grpc|http2            prints the port on which it serves until its input ends
//	go-peers call grpc ADDRESS [NAME…]   calls what is there, but not these; prints the name of each case that went well
//	go-peers call http2 ADDRESS [NAME…]  the same
//	go-peers hpack                       reads header blocks and writes its own (hpack.go)
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
)

func main() {
	switch what := strings.Join(os.Args[1:min(len(os.Args), 3)], " "); what {
	case "serve grpc":
		serve(serveGrpc)
	case "serve http2":
		serve(serveHttp2)
	case "call grpc":
		callGrpc(os.Args[3], os.Args[4:])
	case "call http2":
		callHttp2(os.Args[3], os.Args[4:])
	case "serve tls":
		serve(serveTls)
	case "call tls":
		callTls(os.Args[3], os.Args[4:])
	case "hpack":
		speakHpack()
	default:
		log.Fatalf("no %q", what)
	}
}

func serve(by func(net.Listener)) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go by(listener)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	// The process that started it has gone.
	io.Copy(io.Discard, os.Stdin)
}

func min(one, other int) int {
	if one < other {
		return one
	}
	return other
}
