// As peer.py.
import { readFileSync } from 'node:fs';
import https from 'node:https';

const [what, ...rest] = process.argv.slice(2);
const [cert, key, ca, version] = rest.slice(-4);
const settings = {
  cert: readFileSync(cert), key: readFileSync(key), ca: readFileSync(ca), minVersion: version, maxVersion: version,
};

if (what === 'serve') {
  const server = https.createServer({ ...settings, requestCert: true, rejectUnauthorized: true }, (request, response) => {
    let length = 0;
    request.on('data', (piece) => { length += piece.length; });
    request.on('end', () => {
      const { CN } = request.socket.getPeerCertificate().subject;
      response.end(`${length} ${CN} ${request.socket.getProtocol()}`);
    });
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
  process.stdin.resume().on('end', () => process.exit());
} else {
  const ask = (agent) => new Promise((done, fail) => {
    const request = https.request(`https://${rest[0]}/`, { ...settings, agent, method: 'POST' }, (response) => {
      let body = '';
      response.on('data', (piece) => { body += piece; });
      response.on('end', () => {
        if (response.statusCode === 200 && body.startsWith('300000 ')) done(response.socket ?? request.socket);
        else fail(new Error(`${response.statusCode} ${body}`));
      });
    });
    request.on('error', fail);
    request.end(Buffer.alloc(300_000, 'x'));
  });
  for (const requests of [3, 1]) {
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
    let said;
    for (let turn = 0; turn < requests; turn += 1) {
      const request = await ask(agent);
      said = request.getProtocol();
    }
    console.log(said);
    agent.destroy();
  }
}
