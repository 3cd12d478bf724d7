// Says what Node's HTTP server understood. The lines are described in README.md.
import http from "node:http";

const say = (...words) => process.stdout.write(words.join(" ") + "\n");
const field = (request, name) => {
  const values = request.headersDistinct[name];
  return values ? values.map(encodeURIComponent).join(",") : "-";
};

const server = http.createServer((request, response) => {
  const id = field(request, "x-request-id");
  say("head", field(request, "x-client"), id, request.method, encodeURI(request.url),
    field(request, "content-length"), field(request, "transfer-encoding"));
  let bytes = 0;
  request.on("data", (chunk) => { bytes += chunk.length; });
  request.on("end", () => {
    say("whole", id, bytes);
    const head = { "x-origin": "1", "content-length": 3 };
    if (request.headers["x-canary"]) head["x-canary"] = request.headers["x-canary"];
    response.writeHead(200, head);
    response.end("ok\n");
  });
});
// A tunnel ends here, and what is in it is HTTP again.
server.on("connect", (request, socket, head) => {
  socket.write("HTTP/1.1 200 Connection Established\r\n\r\n");
  if (head.length > 0) socket.unshift(head);
  server.emit("connection", socket);
});
server.on("clientError", (error, socket) => {
  // A connection that ends in the middle of a request, reset or closed, brought no request.
  if (!["ECONNRESET", "HPE_INVALID_EOF_STATE"].includes(error.code)) say("refused");
  socket.destroy();
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => say("listening", server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
