"""`serve CERT KEY CA VERSION` prints its port and says of each request how long it is, who asks and how; `call ADDRESS
CERT KEY CA VERSION` asks three times on one connection and once on another."""
import http.client, http.server, ssl, sys, threading

what, rest = sys.argv[1], sys.argv[2:]
chain, key, ca, version = rest[-4:]
versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context(protocol):
    made = ssl.SSLContext(protocol)
    made.minimum_version = made.maximum_version = versions[version]
    made.load_cert_chain(chain, key)
    made.load_verify_locations(ca)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = len(self.rfile.read(int(self.headers.get("content-length", 0))))
        subject = dict(part[0] for part in self.connection.getpeercert()["subject"])
        said = f"{length} {subject['commonName']} {self.connection.version()}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *words):
        pass


if what == "serve":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
else:
    made = context(ssl.PROTOCOL_TLS_CLIENT)
    for requests in (3, 1):
        connection = http.client.HTTPSConnection(rest[0], context=made, timeout=20)
        for _ in range(requests):
            connection.request("POST", "/", b"x" * 300_000)
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status == 200 and said.startswith(b"300000 "), (answer.status, said)
        print(connection.sock.version())
        connection.close()
