package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

// tlsSettings reads CERT KEY CA VERSION.
func tlsSettings(words []string) *tls.Config {
	pair, err := tls.LoadX509KeyPair(words[0], words[1])
	if err != nil {
		log.Fatal(err)
	}
	root, err := os.ReadFile(words[2])
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	version := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}[words[3]]
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      roots,
		ClientCAs:    roots,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   version,
		MaxVersion:   version,
	}
}

func tlsVersion(state *tls.ConnectionState) string {
	return map[uint16]string{tls.VersionTLS12: "TLSv1.2", tls.VersionTLS13: "TLSv1.3"}[state.Version]
}

// serveTls says of each request how long it is, who asks and how.
func serveTls(listener net.Listener) {
	handler := http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		length, _ := io.Copy(io.Discard, request.Body)
		client := request.TLS.PeerCertificates[0].Subject.CommonName
		fmt.Fprintf(out, "%d %s %s", length, client, tlsVersion(request.TLS))
	})
	log.Fatal(http.Serve(tls.NewListener(listener, tlsSettings(os.Args[3:])), handler))
}

// callTls asks three times on one connection and once on another.
func callTls(address string, words []string) {
	for _, requests := range []int{3, 1} {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: tlsSettings(words)}}
		said := ""
		for turn := 0; turn < requests; turn++ {
			body := bytes.NewReader(make([]byte, 300_000))
			answer, err := client.Post("https://"+address+"/", "text/plain", body)
			if err != nil {
				log.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != 200 || !bytes.HasPrefix(text, []byte("300000 ")) {
				log.Fatal(answer.StatusCode, string(text), err)
			}
			said = tlsVersion(answer.TLS)
		}
		fmt.Println(said)
	}
}
