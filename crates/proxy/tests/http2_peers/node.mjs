// Node's HTTP/2: `serve` prints the port on which it serves until its input ends; `call ADDRESS` asks what is there and
// prints the name of each story that went well.
import http2 from "node:http2";
import { once } from "node:events";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

/** Each byte of a body tells where it stands. */
const pattern = (from, length) => Buffer.from(Uint8Array.from({ length }, (_, at) => (from + at) % 251));

function* pieces(bytes) {
  for (let at = 0; at < bytes; at += 50_200) yield pattern(at, Math.min(50_200, bytes - at));
}

/** How much came; throws where a byte is another than it should be. */
async function length(stream) {
  let total = 0;
  for await (const piece of stream) {
    if (!piece.equals(pattern(total, piece.length))) throw new Error(`another byte behind ${total}`);
    total += piece.length;
  }
  return total;
}

const answers = {
  async download(stream, bytes) {
    stream.respond({ ":status": 200 });
    await pipeline(Readable.from(pieces(bytes)), stream);
  },
  async upload(stream) {
    const bytes = await length(stream);
    stream.respond({ ":status": 200 });
    stream.end(String(bytes));
  },
  async echo(stream) {
    stream.respond({ ":status": 200 });
    stream.pipe(stream);
  },
  async trailers(stream) {
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": "4" }));
    stream.end("body");
  },
  async reset(stream) {
    stream.respond({ ":status": 200 });
    stream.write(pattern(0, 1000), () => setTimeout(() => stream.destroy(new Error("as asked")), 50));
  },
  async endless(stream) {
    await answers.download(stream, 2 ** 40);
  },
};

function serve() {
  const server = http2.createServer();
  server.on("stream", (stream, head) => {
    const [, name, bytes] = head[":path"].split("/");
    stream.on("error", () => {});
    answers[name](stream, Number(bytes)).catch(() => stream.close());
  });
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
  process.stdin.on("end", () => process.exit(0)).resume();
}

async function call(address) {
  const session = http2.connect(`http://${address}`);
  const ask = async (path, body) => {
    const stream = session.request({ ":path": path, ":method": body === undefined ? "GET" : "POST" });
    // A stream that is reset says so where it is read.
    stream.on("error", () => {});
    if (body !== undefined) stream.end(body);
    const [head] = await once(stream, "response");
    if (head[":status"] !== 200) throw new Error(`${path}: ${head[":status"]}`);
    return stream;
  };
  const check = (is, wanted) => {
    if (is !== wanted) throw new Error(`${is} is not ${wanted}`);
  };
  const download = async (bytes) => check(await length(await ask(`/download/${bytes}`)), bytes);
  const upload = async (bytes) => {
    const stream = await ask("/upload", pattern(0, bytes));
    check((await stream.setEncoding("utf8").toArray()).join(""), String(bytes));
  };
  const sizes = [0, 1, 16_384, 16_385, 3_000_000];
  const stories = {
    async downloads() {
      for (const bytes of sizes) await download(bytes);
    },
    async uploads() {
      for (const bytes of sizes) await upload(bytes);
    },
    async trailers() {
      const stream = await ask("/trailers");
      const trailers = once(stream, "trailers");
      check((await stream.setEncoding("utf8").toArray()).join(""), "body");
      check((await trailers)[0]["x-sum"], "4");
    },
    async resets() {
      const stream = await ask("/reset");
      const closed = once(stream, "close");
      stream.resume();
      await closed.catch(() => {});
      if (stream.rstCode === 0) throw new Error("it ended as if it were whole");
      await download(10);
    },
    async gives_up() {
      for (let turn = 0; turn < 10; turn++) {
        const stream = await ask("/endless");
        await once(stream, "data");
        stream.close(http2.constants.NGHTTP2_CANCEL);
      }
      await download(10);
    },
    async many_at_once() {
      const all = Array.from({ length: 100 }, (_, turn) => [download(turn * 1000), upload(turn * 1000)]);
      await Promise.all(all.flat());
    },
  };
  for (const [name, story] of Object.entries(stories)) {
    await story();
    console.log(name);
  }
  session.close();
}

const [what, address] = process.argv.slice(2);
if (what === "serve") serve();
else await call(address);
