// Draws the slowest call of a merged trace: its spans in the application and in the sidecar, the arrow between them, and
// when the kernel let their threads run.
//   node picture.mjs TRACE_PROCESSOR request.pftrace > picture.svg
import { execFileSync } from 'node:child_process';

const [, , processor, file] = process.argv;
const ask = (...sql) =>
  execFileSync(processor, [file, ...sql], { maxBuffer: 1 << 28 }).toString().trim().split('\n').map((line) => JSON.parse(line));

const [[[call, ts, dur, app]]] = ask(
  `select s.id, s.ts, s.dur, t.utid from slice s join thread_track t on s.track_id = t.id
   where s.name = 'call' order by s.dur desc limit 1`,
);
const [from, length] = [Number(ts), Number(dur)];
const until = from + length;
const [[[request]]] = ask(`select slice_in from flow where slice_out = ${call}`);
const [slices, threads] = ask(
  `select s.id, s.name, s.ts, s.dur, s.depth, 'app' from slice s
     where s.dur > 0 and (s.id = ${call} or s.id in (select id from descendant_slice(${call})))
   union all
   select s.id, s.name, s.ts, s.dur, s.depth, 'sidecar' from slice s
     where s.dur > 0 and (s.id = ${request} or s.id in (select id from descendant_slice(${request})))
   order by 3`,
  `select 'app', utid, process.name, coalesce(thread.name, '') from thread join process using (upid) where utid = ${app}
   union all
   select 'sidecar', utid, process.name, thread.name from thread join process using (upid)
     where thread.name = 'worker-0' and process.name like 'towpath%'`,
);
const [states] = ask(
  `select utid, ts, dur, state from thread_state
   where ts + dur >= ${from} and ts <= ${until} and dur > 0 and utid in (${threads.map(([, utid]) => utid).join()})`,
);

const WIDTH = 1100, LEFT = 150, ROW = 26, RIGHT = 20;
const x = (ts) => LEFT + ((Math.min(Math.max(Number(ts), from), until) - from) / length) * (WIDTH - LEFT - RIGHT);
const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const colours = ['#3b6ea5', '#5b8f5a', '#a5763b', '#8a5a9c', '#4c9a9a'];
const colour = (name) => colours[[...name].reduce((sum, c) => sum + c.charCodeAt(0), 0) % colours.length];
const stateColour = (state) => (state === 'Running' ? '#2c7d2c' : state.startsWith('R') ? '#e0a030' : '#d8d8d8');
const time = (ns) => (ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e3).toFixed(1)} µs`);

const out = [];
const places = new Map();
let y = 50;
for (const [side, utid, process, thread] of threads) {
  const own = slices.filter((slice) => slice[5] === side);
  out.push(`<text x="8" y="${y + 14}" font-weight="bold">${escape(process)}</text>`);
  out.push(`<text x="8" y="${y + 30}" fill="#666">${escape(thread)}</text>`);
  for (const [, begin, lasted, state] of states.filter((state) => state[0] === utid)) {
    const end = x(Number(begin) + Number(lasted));
    out.push(`<rect x="${x(begin).toFixed(1)}" y="${y}" width="${Math.max(end - x(begin), 0.3).toFixed(1)}" height="8" fill="${stateColour(state)}"/>`);
  }
  const top = y + 12;
  const unnamed = [];
  for (const [id, name, begin, lasted, depth] of own) {
    const row = top + Number(depth) * ROW;
    const width = Math.max(x(Number(begin) + Number(lasted)) - x(begin), 0.5);
    places.set(id, [x(begin), row + ROW / 2]);
    const label = `${name} ${time(Number(lasted))}`;
    const shown = width > label.length * 6.2 ? label : width > name.length * 6.2 ? name : '';
    out.push(`<rect x="${x(begin).toFixed(1)}" y="${row}" width="${width.toFixed(1)}" height="${ROW - 3}" rx="2" fill="${colour(name)}"><title>${escape(label)}</title></rect>`);
    if (!shown) unnamed.push(label);
    else out.push(`<text x="${(x(begin) + 4).toFixed(1)}" y="${row + 16}" fill="#fff">${escape(shown)}</text>`);
  }
  y = top + (Math.max(...own.map((slice) => Number(slice[4]))) + 1) * ROW + 10;
  // What has no room for its name is told in words.
  if (unnamed.length) {
    out.push(`<text x="${LEFT}" y="${y + 4}" fill="#666">short: ${escape(unnamed.join(' · '))}</text>`);
  }
  y += 34;
}
const [a, b] = [places.get(call), places.get(request)];
if (a && b)
  out.push(`<path d="M${a.map((v) => v.toFixed(1)).join(' ')} C${(a[0] + 50).toFixed(1)} ${a[1] + 60} ${(b[0] - 50).toFixed(1)} ${b[1] - 60} ${b.map((v) => v.toFixed(1)).join(' ')}" fill="none" stroke="#c03030" stroke-width="2" marker-end="url(#head)"/>`);
for (let part = 0; part <= 10; part++) {
  const at = LEFT + (part / 10) * (WIDTH - LEFT - RIGHT);
  const [edge, anchor] = part === 10 ? [WIDTH, 'end'] : [at, 'middle'];
  out.unshift(`<line x1="${at}" y1="32" x2="${at}" y2="${y}" stroke="#eee"/><text x="${edge}" y="26" text-anchor="${anchor}" fill="#666">${((length / 1e7) * part).toFixed(1)} ms</text>`);
}
console.log(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 24}" font-family="sans-serif" font-size="11">
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#c03030"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>
${out.join('\n')}
<text x="${LEFT}" y="${y + 14}" fill="#666">bars above the spans: green running, amber runnable and waiting for a processor, grey asleep (from the kernel)</text>
</svg>`);
