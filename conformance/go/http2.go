package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

// content is a body of which each byte tells where it stands.
type content struct{ at, length int }

func (c *content) Read(into []byte) (int, error) {
	if c.at == c.length {
		return 0, io.EOF
	}
	count := min(len(into), c.length-c.at)
	for i := range into[:count] {
		into[i] = byte((c.at + i) % 251)
	}
	c.at += count
	return count, nil
}

// length reads to the end: how much came, and whether it was as it should be.
func length(body io.Reader) (int, error) {
	total, piece := 0, make([]byte, 64<<10)
	for {
		count, err := body.Read(piece)
		for i, octet := range piece[:count] {
			if octet != byte((total+i)%251) {
				return total, fmt.Errorf("byte %d is another", total+i)
			}
		}
		total += count
		if err == io.EOF {
			return total, nil
		} else if err != nil {
			return total, err
		}
	}
}

// serveHttp2 serves HTTP/2 in the clear by prior knowledge, and HTTP/1.1.
func serveHttp2(listener net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("/download/", func(answer http.ResponseWriter, request *http.Request) {
		bytes, _ := strconv.Atoi(request.URL.Path[len("/download/"):])
		io.Copy(answer, &content{length: bytes})
	})
	mux.HandleFunc("/upload", func(answer http.ResponseWriter, request *http.Request) {
		bytes, err := length(request.Body)
		if err != nil {
			http.Error(answer, err.Error(), 400)
			return
		}
		fmt.Fprint(answer, bytes)
	})
	mux.HandleFunc("/echo", func(answer http.ResponseWriter, request *http.Request) {
		piece := make([]byte, 4096)
		answer.(http.Flusher).Flush()
		for {
			count, err := request.Body.Read(piece)
			answer.Write(piece[:count])
			answer.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/trailers", func(answer http.ResponseWriter, request *http.Request) {
		answer.Header().Set("trailer", "x-sum")
		fmt.Fprint(answer, "body")
		answer.Header().Set("x-sum", "4")
	})
	mux.HandleFunc("/reset", func(answer http.ResponseWriter, request *http.Request) {
		io.Copy(answer, &content{length: 1000})
		answer.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/endless", func(answer http.ResponseWriter, request *http.Request) {
		io.Copy(answer, &content{length: 1 << 40})
	})
	log.Fatal((&http.Server{Handler: h2c.NewHandler(mux, &http2.Server{})}).Serve(listener))
}

// callHttp2 asks such a server in the clear by prior knowledge, for all but what it does not have.
func callHttp2(address string, hasNot []string) {
	var dialer net.Dialer
	dial := func(context context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
		return dialer.DialContext(context, network, address)
	}
	client := http.Client{Transport: &http2.Transport{AllowHTTP: true, DialTLSContext: dial}}
	ask := func(path string, body io.Reader) (*http.Response, error) {
		method := "GET"
		if body != nil {
			method = "POST"
		}
		request, err := http.NewRequest(method, "http://"+address+path, body)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(request)
		if err == nil && (response.StatusCode != 200 || response.ProtoMajor != 2) {
			return nil, fmt.Errorf("%s: %s %s", path, response.Proto, response.Status)
		}
		return response, err
	}
	download := func(bytes int) error {
		response, err := ask(fmt.Sprint("/download/", bytes), nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if count, err := length(response.Body); err != nil || count != bytes {
			return fmt.Errorf("%d of %d bytes: %v", count, bytes, err)
		}
		return nil
	}
	upload := func(bytes int) error {
		response, err := ask("/upload", &content{length: bytes})
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if said, err := io.ReadAll(response.Body); err != nil || string(said) != fmt.Sprint(bytes) {
			return fmt.Errorf("of %d bytes came %q: %v", bytes, said, err)
		}
		return nil
	}
	for _, it := range []struct {
		name string
		do   func() error
	}{
		{"downloads", func() error {
			for _, bytes := range []int{0, 1, 16_384, 16_385, 3_000_000} {
				if err := download(bytes); err != nil {
					return err
				}
			}
			return nil
		}},
		{"uploads", func() error {
			for _, bytes := range []int{0, 1, 16_384, 16_385, 3_000_000} {
				if err := upload(bytes); err != nil {
					return err
				}
			}
			return nil
		}},
		{"to_and_fro", func() error {
			near, far := io.Pipe()
			response, err := ask("/echo", near)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			for turn := 0; turn < 100; turn++ {
				sent, came := []byte(fmt.Sprintf("%03d", turn)), make([]byte, 3)
				go far.Write(sent)
				if _, err := io.ReadFull(response.Body, came); err != nil || string(came) != string(sent) {
					return fmt.Errorf("%q came for %q: %v", came, sent, err)
				}
			}
			return far.Close()
		}},
		{"trailers", func() error {
			response, err := ask("/trailers", nil)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if _, err := io.ReadAll(response.Body); err != nil {
				return err
			}
			if sum := response.Trailer.Get("x-sum"); sum != "4" {
				return fmt.Errorf("trailers %v", response.Trailer)
			}
			return nil
		}},
		{"resets", func() error {
			response, err := ask("/reset", nil)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if count, err := length(response.Body); err == nil || count > 1000 {
				return fmt.Errorf("%d bytes and no error", count)
			}
			return download(10)
		}},
		{"gives_up", func() error {
			for turn := 0; turn < 10; turn++ {
				response, err := ask("/endless", nil)
				if err != nil {
					return err
				}
				io.CopyN(io.Discard, response.Body, 100_000)
				response.Body.Close()
			}
			return download(10)
		}},
		{"many_at_once", func() error {
			var all sync.WaitGroup
			wrong := make(chan error, 200)
			for turn := 0; turn < 100; turn++ {
				all.Add(2)
				go func(bytes int) { wrong <- download(bytes); all.Done() }(turn * 1000)
				go func(bytes int) { wrong <- upload(bytes); all.Done() }(turn * 1000)
			}
			all.Wait()
			close(wrong)
			for err := range wrong {
				if err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		if contains(hasNot, it.name) {
			continue
		}
		if err := it.do(); err != nil {
			log.Fatalf("%s: %v", it.name, err)
		}
		fmt.Println(it.name)
	}
}

func contains(all []string, one string) bool {
	for _, it := range all {
		if it == one {
			return true
		}
	}
	return false
}
