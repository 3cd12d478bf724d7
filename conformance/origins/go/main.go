// Says what Go's net/http server understood. The lines are described in ../README.md.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
)

var lines sync.Mutex

func say(words ...any) {
	lines.Lock()
	defer lines.Unlock()
	fmt.Fprintln(os.Stdout, words...)
}

func field(request *http.Request, name string) string {
	values := request.Header.Values(name)
	if len(values) == 0 {
		return "-"
	}
	var escaped []string
	for _, value := range values {
		escaped = append(escaped, url.PathEscape(value))
	}
	return strings.Join(escaped, ",")
}

func serve(response http.ResponseWriter, request *http.Request) {
	id := field(request, "X-Request-Id")
	// The server takes the framing fields out of the header; it keeps what it understood.
	length, coding := field(request, "Content-Length"), "-"
	if len(request.TransferEncoding) > 0 {
		coding = strings.Join(request.TransferEncoding, ",")
	}
	say("head", field(request, "X-Client"), id, request.Method, request.RequestURI, length, coding)
	bytes, err := io.Copy(io.Discard, request.Body)
	if err != nil {
		return
	}
	say("whole", id, bytes)
	response.Header().Set("X-Origin", "1")
	if canary := request.Header.Get("X-Canary"); canary != "" {
		response.Header().Set("X-Canary", canary)
	}
	io.WriteString(response, "ok\n")
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	say("listening", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	panic(http.Serve(listener, http.HandlerFunc(serve)))
}
