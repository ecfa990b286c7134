// The floor: a CONNECT proxy that relays bytes unread.
import { createServer } from 'node:http';
import { connect } from 'node:net';
import process from 'node:process';

const server = createServer((_request, response) => response.writeHead(405).end());
server.on('connect', (request, client, head) => {
  client.on('error', () => client.destroy());
  const [host, port] = (request.url ?? '').split(':');
  const upstream = connect(Number(port), host, () => {
    client.write('HTTP/1.1 200 Connection Established\r\n\r\n');
    if (head.length > 0) upstream.write(head);
    client.pipe(upstream);
    upstream.pipe(client);
  });
  client.setNoDelay(true);
  upstream.setNoDelay(true);
  upstream.on('error', () => client.destroy());
  client.on('close', () => upstream.destroy());
  upstream.on('close', () => client.destroy());
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`READY ${server.address().port}\n`));
