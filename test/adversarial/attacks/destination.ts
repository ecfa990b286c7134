// Ways to another host than the one that was asked for, and to addresses that nobody may reach.
import { connect as connectHttp2 } from 'node:http2';
import { requestOf, type AdversaryScene, type AttackCase, type AttackClass } from '../../support/adversary.ts';

const BAD = /^HTTP\/1\.1 400 [^]*"code":"bad_request"/;
const BAD_OVER_HTTP2 = /^status 400 .*"code":"bad_request"/;
const DENIED = /^HTTP\/1\.1 403 [^]*"code":"address_denied"/;
const MISMATCH = /^HTTP\/1\.1 421 [^]*"code":"host_mismatch"/;
const REFUSED_CONNECT = /^HTTP\/1\.1 405 [^]*"code":"connect_not_allowed"/;

function target(name: string, authority: string, expected = DENIED): AttackCase {
  return { name: `${name}: ${JSON.stringify(authority)}`, expected, attack: (scene) => scene.connectTo(authority) };
}

function inner(name: string, lines: readonly string[], expected = MISMATCH): AttackCase {
  return { name, expected, attack: (scene) => scene.inside(`${lines.join('\r\n')}\r\n\r\n`) };
}

/** The daemon's own ports, on an address that is local. */
function own(name: string, host: string): AttackCase {
  return {
    name: `${name}: ${host}`,
    expected: DENIED,
    async attack(scene) {
      const { proxyAddress, adminAddress } = scene.keyveil.daemon;
      const answers = await Promise.all(
        [proxyAddress, adminAddress].map(({ port }) => scene.connectTo(`${host}:${String(port)}`)),
      );
      return answers.every((answer) => DENIED.test(answer)) ? (answers[0] as string) : answers.join('\n');
    },
  };
}

/** A request over HTTP/2 with these fields; its status, or why the stream was closed. */
async function overHttp2(scene: AdversaryScene, fields: Record<string, string>): Promise<string> {
  const tls = await scene.keyveil.tunnel(scene.sessionA, 'api.test:443', { ALPNProtocols: ['h2'] });
  const client = connectHttp2('https://api.test', { createConnection: () => tls });
  client.on('error', () => undefined);
  const stream = client.request(fields);
  const chunks: Buffer[] = [];
  let status = '';
  stream.on('response', (head) => (status = `status ${String(head[':status'])} `));
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  await new Promise<void>((resolve) => {
    stream.on('error', () => undefined);
    stream.on('close', resolve);
  });
  client.destroy();
  return `${status}reset ${String(stream.rstCode)} ${Buffer.concat(chunks).toString()}`;
}

function limited(name: string, authority: string): AttackCase {
  return {
    name: `${name}: ${JSON.stringify(authority)}`,
    expected: /^HTTP\/1\.1 403 [^]*"code":"environment_denied"/,
    async attack(scene) {
      const config = { networking: { type: 'limited', allowed_hosts: ['api.test', '*.wild.test'] } };
      const { body } = await scene.keyveil.admin('POST', '/v1/environments', { name: 'limited', config });
      const session = await scene.keyveil.createSession({ vault_ids: [], environment_id: body['id'] });
      return scene.proxy(
        `CONNECT ${authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: ${session.authorization}\r\n\r\n`,
      );
    },
  };
}

export const DESTINATION: AttackClass = {
  name: 'destination',
  cases: [
    target('loopback in decimal', '2130706433:443'),
    target('loopback in octal', '0177.0.0.1:443'),
    target('loopback in hexadecimal', '0x7f.0.0.0x1:443'),
    target('loopback in one hexadecimal number', '0x7F000001:443'),
    target('loopback in two parts', '127.1:443'),
    target('loopback with a trailing dot', '127.0.0.1.:443'),
    target('another address of loopback', '127.255.255.254:443'),
    target('this host', '0.0.0.0:443'),
    target('this host in one number', '0:443'),
    target('loopback in IPv6', '[::1]:443'),
    target('loopback in IPv6, written out', '[0:0:0:0:0:0:0:1]:443'),
    target('unspecified in IPv6', '[::]:443'),
    target('IPv4-mapped loopback', '[::ffff:127.0.0.1]:443'),
    target('IPv4-mapped loopback in hexadecimal', '[::ffff:7f00:1]:443'),
    target('IPv4-compatible loopback', '[::127.0.0.1]:443'),
    target('loopback behind NAT64', '[64:ff9b::7f00:1]:443'),
    target('loopback in 6to4', '[2002:7f00:1::]:443'),
    target('Teredo', '[2001:0:4136:e378:8000:63bf:80ff:fffe]:443'),
    target('a unique local address', '[fd00::1]:443'),
    target('a link-local address', '[fe80::1]:443'),
    target('cloud metadata', '169.254.169.254:80'),
    target('cloud metadata in decimal', '2852039166:80'),
    target('cloud metadata in IPv6', '[fd00:ec2::254]:80'),
    target('cloud metadata, IPv4-mapped', '[::ffff:169.254.169.254]:80'),
    target("another cloud's metadata", '100.100.100.200:80'),
    target("a provider's inner address", '168.63.129.16:80'),
    target('a private network', '10.0.0.1:443'),
    target('multicast', '224.0.0.1:443'),
    target('broadcast', '255.255.255.255:443'),
    target('documentation', '192.0.2.1:443'),
    target('localhost in another case', 'LOCALHOST:443'),
    target('localhost with a trailing dot', 'localhost.:443'),
    target('a zone', '[fe80::1%25eth0]:443', BAD),
    target('a zone without its escape', '[::1%lo]:443', BAD),
    target('a user', 'api.test@127.0.0.1:443', BAD),
    target('a number that is too large', '4294967296:443', BAD),
    target('five parts', '1.2.3.4.5:443', BAD),
    target('port 0', 'api.test:0', BAD),
    target('a port that is too large', 'api.test:65979', BAD),
    target('a port with a sign', 'api.test:+443', BAD),
    target('a port with a blank in it', 'api.test:44 3', BAD),
    target('no port', 'api.test', BAD),
    target('two ports', 'api.test:443:443', BAD),
    target('a path', 'api.test:443/x', BAD),
    target('a scheme', 'https://api.test:443', BAD),
    target('an empty host', ':443', BAD),
    target('an empty label', 'api..test:443', BAD),
    target('a percent-encoded host', '%61pi.test:443', BAD),
    target('raw bytes above ASCII', 'b\u00fccher.test:443', BAD),
    target('a NUL', 'api.test\0.evil.test:443', BAD),
    target('an open bracket', '[::1:443', BAD),
    target('IPvFuture', '[v1.x]:443', BAD),
    own('own ports', '127.0.0.1'),
    own('own ports, by name', 'localhost'),
    own('own ports, on this host', '0.0.0.0'),
    own('own ports, IPv4-mapped', '[::ffff:127.0.0.1]'),
    own('own ports, in decimal', '2130706433'),
    inner('Host of another host', ['GET / HTTP/1.1', 'Host: evil.test', 'Connection: close']),
    inner('Host with another port', ['GET / HTTP/1.1', 'Host: api.test:8443', 'Connection: close']),
    inner('Host with a longer name', ['GET / HTTP/1.1', 'Host: api.test.evil.test', 'Connection: close']),
    inner('Host that ends in the right name', ['GET / HTTP/1.1', 'Host: evilapi.test', 'Connection: close']),
    inner('Host with a user', ['GET / HTTP/1.1', 'Host: api.test@evil.test', 'Connection: close'], BAD),
    inner('Host with a list', ['GET / HTTP/1.1', 'Host: api.test, evil.test', 'Connection: close'], BAD),
    inner('an empty Host', ['GET / HTTP/1.1', 'Host:', 'Connection: close'], BAD),
    inner('no Host', ['GET / HTTP/1.1', 'Connection: close'], BAD),
    inner('two Hosts', ['GET / HTTP/1.1', 'Host: api.test', 'Host: evil.test'], BAD),
    inner('two equal Hosts', ['GET / HTTP/1.1', 'Host: api.test', 'Host: api.test'], BAD),
    inner('an absolute URL of another host', [
      'GET https://evil.test/ HTTP/1.1',
      'Host: api.test',
      'Connection: close',
    ]),
    inner(
      'an absolute URL with the other scheme',
      ['GET http://api.test/ HTTP/1.1', 'Host: api.test', 'Connection: close'],
      MISMATCH,
    ),
    inner('a CONNECT in the tunnel', ['CONNECT evil.test:443 HTTP/1.1', 'Host: evil.test'], REFUSED_CONNECT),
    inner('a CONNECT in the tunnel to itself', ['CONNECT api.test:443 HTTP/1.1', 'Host: api.test'], REFUSED_CONNECT),
    {
      name: 'an authority of another host over HTTP/2',
      expected: /^status 421 .*host_mismatch/,
      attack: (scene) => overHttp2(scene, { ':path': '/', ':authority': 'evil.test' }),
    },
    {
      name: 'a host field besides the authority over HTTP/2',
      expected: BAD_OVER_HTTP2,
      attack: (scene) => overHttp2(scene, { ':path': '/', ':authority': 'api.test', host: 'evil.test' }),
    },
    {
      name: 'a CONNECT over HTTP/2',
      expected: /^status 405 .*"code":"connect_not_allowed"/,
      attack: (scene) => overHttp2(scene, { ':method': 'CONNECT', ':authority': 'evil.test:443' }),
    },
    {
      name: 'the other scheme over HTTP/2',
      expected: BAD_OVER_HTTP2,
      attack: (scene) => overHttp2(scene, { ':path': '/', ':scheme': 'http', ':authority': 'api.test' }),
    },
    {
      name: 'the placeholder follows a redirect to a host that is not covered',
      expected: /^HTTP\/1\.1 200 [^]*not swapped: host_not_covered/,
      arrives: 1,
      attack: (scene) =>
        scene.inside(
          `GET / HTTP/1.1\r\nHost: other.test\r\nX-Key: ${scene.placeholderA}\r\nConnection: close\r\n\r\n`,
          { host: 'other.test' },
        ),
      check: (t, [request]) => t.match(request?.header('x-key'), /^kvph_/),
    },
    limited('another host than the environment admits', 'other.test:443'),
    limited('a longer name than the environment admits', 'api.test.evil.test:443'),
    limited('a name that ends in an admitted one', 'xapi.test:443'),
    limited('a name below an admitted one', 'sub.api.test:443'),
    limited('the name of a wildcard itself', 'wild.test:443'),
    limited('a name that ends like a wildcard', 'evilwild.test:443'),
    limited('an address for a name', '203.0.113.1:443'),
    {
      name: 'an https URL outside of a tunnel',
      expected: BAD,
      attack: ({ proxy, sessionA }) =>
        proxy(requestOf('GET https://api.test/', [`Proxy-Authorization: ${sessionA.authorization}`])),
    },
    {
      name: 'a path outside of a tunnel',
      expected: BAD,
      attack: ({ proxy, sessionA }) => proxy(requestOf('GET /', [`Proxy-Authorization: ${sessionA.authorization}`])),
    },
    {
      name: 'an ftp URL outside of a tunnel',
      expected: BAD,
      attack: ({ proxy, sessionA }) =>
        proxy(requestOf('GET ftp://api.test/', [`Proxy-Authorization: ${sessionA.authorization}`])),
    },
    {
      name: 'cloud metadata by an absolute URL',
      expected: DENIED,
      attack: ({ proxy, sessionA }) =>
        proxy(
          `GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: 169.254.169.254\r\nProxy-Authorization: ${sessionA.authorization}\r\n\r\n`,
        ),
    },
    {
      name: 'an absolute URL whose Host is another',
      expected: MISMATCH,
      attack: ({ proxy, sessionA }) =>
        proxy(
          `GET http://api.test/ HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: ${sessionA.authorization}\r\nConnection: close\r\n\r\n`,
        ),
    },
  ],
};

/** A port that is not on the list, where there is one. */
export const PORTS: AttackClass = {
  name: 'ports',
  cases: ['api.test:22', 'api.test:25', 'api.test:8444', '93.184.216.34:6379'].map((authority) => ({
    name: authority,
    expected: /^HTTP\/1\.1 403 [^]*"code":"port_denied"/,
    attack: (scene) => scene.connectTo(authority),
  })),
};
