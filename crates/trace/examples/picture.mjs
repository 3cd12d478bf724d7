// Draws the slowest request of a merged trace: its spans in the application and the sidecar, the arrow between them, and
// when the kernel let their threads run.
//   node picture.mjs ENGINE_FOLDER request.pftrace > picture.svg
import { execFileSync } from 'node:child_process';
import path from 'node:path';

const [, , engine, file] = process.argv;
const query = path.join(import.meta.dirname, '../tests/support/query.mjs');
const ask = (...sql) =>
  execFileSync('node', [query, engine, file, ...sql], { maxBuffer: 1 << 28 }).toString().trim().split('\n').map((line) => JSON.parse(line));

const [[slowest]] = ask("select ts, dur from slice where name = 'request' order by dur desc limit 1");
const [from, length] = slowest.map(Number);
const until = from + length;
const within = `ts + dur >= ${from} and ts <= ${until}`;
const [slices, flows, states] = ask(
  `select s.id, s.name, s.ts, s.dur, s.depth, t.utid, process.name || ' ' || process.pid, coalesce(thread.name, '')
   from slice s join thread_track t on s.track_id = t.id join thread using (utid) join process using (upid)
   where ${within} and s.dur > 0 order by process.start_ts, s.ts`,
  'select slice_out, slice_in from flow',
  `select utid, ts, dur, state from thread_state where ${within} and dur > 0`,
);

const WIDTH = 1100, LEFT = 150, ROW = 26, RIGHT = 20;
const x = (ts) => LEFT + ((Math.min(Math.max(Number(ts), from), until) - from) / length) * (WIDTH - LEFT - RIGHT);
const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const colours = ['#3b6ea5', '#5b8f5a', '#a5763b', '#8a5a9c', '#4c9a9a'];
const colour = (name) => colours[[...name].reduce((sum, c) => sum + c.charCodeAt(0), 0) % colours.length];
const stateColour = (state) => (state === 'Running' ? '#2c7d2c' : state.startsWith('R') ? '#e0a030' : '#d8d8d8');

const threads = new Map();
for (const [, , , , depth, utid, process, thread] of slices) {
  const known = threads.get(utid) ?? { process, thread, rows: 0 };
  known.rows = Math.max(known.rows, Number(depth) + 1);
  threads.set(utid, known);
}
let y = 50;
const out = [];
for (const [utid, thread] of threads) {
  thread.top = y;
  out.push(`<text x="8" y="${y + 14}" font-weight="bold">${escape(thread.thread || thread.process)}</text>`);
  out.push(`<text x="8" y="${y + 30}" fill="#666">${escape(thread.process)}</text>`);
  for (const [of, ts, dur, state] of states) {
    if (of !== utid) continue;
    const end = x(Number(ts) + Number(dur));
    out.push(`<rect x="${x(ts).toFixed(1)}" y="${y}" width="${Math.max(end - x(ts), 0.3).toFixed(1)}" height="8" fill="${stateColour(state)}"/>`);
  }
  y += 12 + thread.rows * ROW + 24;
}
const places = new Map();
for (const [id, name, ts, dur, depth, utid] of slices) {
  const top = threads.get(utid).top + 12 + Number(depth) * ROW;
  const width = Math.max(x(Number(ts) + Number(dur)) - x(ts), 0.5);
  places.set(id, [x(ts), top + ROW / 2]);
  const label = `${name} ${(Number(dur) / 1e6).toFixed(2)} ms`;
  const shown = width > label.length * 6.2 ? label : width > name.length * 6.2 ? name : '';
  out.push(`<rect x="${x(ts).toFixed(1)}" y="${top}" width="${width.toFixed(1)}" height="${ROW - 3}" rx="2" fill="${colour(name)}"><title>${escape(label)}</title></rect>`);
  if (shown) out.push(`<text x="${(x(ts) + 4).toFixed(1)}" y="${top + 16}" fill="#fff">${escape(shown)}</text>`);
}
for (const [tail, head] of flows) {
  const [a, b] = [places.get(tail), places.get(head)];
  if (a && b) out.push(`<path d="M${a.map((v) => v.toFixed(1)).join(' ')} C${(a[0] + 50).toFixed(1)} ${a[1] + 60} ${(b[0] - 50).toFixed(1)} ${b[1] - 60} ${b.map((v) => v.toFixed(1)).join(' ')}" fill="none" stroke="#c03030" stroke-width="2" marker-end="url(#head)"/>`);
}
for (let part = 0; part <= 10; part++) {
  const at = LEFT + (part / 10) * (WIDTH - LEFT - RIGHT);
  out.unshift(`<line x1="${at}" y1="32" x2="${at}" y2="${y}" stroke="#eee"/><text x="${at}" y="26" text-anchor="middle" fill="#666">${((length / 1e7) * part).toFixed(1)} ms</text>`);
}
console.log(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 24}" font-family="sans-serif" font-size="11">
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#c03030"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>
${out.join('\n')}
<text x="${LEFT}" y="${y + 14}" fill="#666">bars above the spans: green running, amber runnable and waiting for a processor, grey asleep (from the kernel)</text>
</svg>`);
