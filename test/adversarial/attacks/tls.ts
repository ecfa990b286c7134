// First bytes and handshakes that are wrong, in a tunnel to `api.test:443` (RFC 8446, RFC 6066 section 3, RFC 7301).
import type { ConnectionOptions } from 'node:tls';
import {
  readAnswer,
  requestOf,
  type AdversaryScene,
  type AttackCase,
  type AttackClass,
} from '../../support/adversary.ts';

const CLOSED = /^$/;
/** One fatal alert (RFC 8446 section 6), then the connection is closed; which one it is, the TLS library chooses. */
const ALERT = /^\x15\x03[\x01-\x03]\0\x02\x02[^]$/;
const HANDSHAKE = 0x16;
const KIB = 1024;

function record(type: number, payload: Buffer): Buffer {
  const head = Buffer.from([type, 3, 1, 0, 0]);
  head.writeUInt16BE(payload.length, 3);
  return Buffer.concat([head, payload]);
}

/** A handshake message of type 1 that claims this length. */
function hello(length: number, payload: Buffer): Buffer {
  const head = Buffer.from([1, 0, 0, 0]);
  head.writeUIntBE(length, 1, 3);
  return Buffer.concat([head, payload]);
}

function bytes(name: string, payload: () => Buffer, expected = ALERT): AttackCase {
  return { name, expected, attack: (scene) => scene.raw(payload()) };
}

/** A whole handshake with these options, then a request. */
function handshake(name: string, tls: ConnectionOptions, expected: RegExp): AttackCase {
  return {
    name,
    expected,
    arrives: expected === SERVED ? 1 : 0,
    async attack(scene) {
      try {
        return await scene.inside(requestOf('GET /'), { tls });
      } catch (error) {
        return (error as Error).message;
      }
    },
  };
}

const FAILED = /^The TLS handshake failed\.$/;
const SERVED = /^HTTP\/1\.1 200 /;

export const TLS: AttackClass = {
  name: 'tls',
  cases: [
    bytes('noise', () => Buffer.from('\xff\xfe\xfd\xfc'.repeat(20), 'latin1'), CLOSED),
    bytes('a line that is no request', () => Buffer.from('HELO api.test\r\n\r\n'), /^HTTP\/1\.1 400 /),
    bytes('SSH', () => Buffer.from('SSH-2.0-OpenSSH_9.6\r\n'), CLOSED),
    bytes('HTTP/2 in clear', () => Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), CLOSED),
    bytes(
      'the hello of SSLv2',
      () => Buffer.from('802e0100020015000000100100800700c0030080060040020080040080', 'hex'),
      CLOSED,
    ),
    bytes('an alert first', () => record(0x15, Buffer.from([2, 40])), CLOSED),
    bytes('application data first', () => record(0x17, Buffer.alloc(100, 7)), CLOSED),
    bytes(
      'a record of another major version',
      () => Buffer.concat([Buffer.from([HANDSHAKE, 9, 9, 0, 50]), Buffer.alloc(50)]),
      CLOSED,
    ),
    bytes('an empty record', () =>
      Buffer.concat([
        record(HANDSHAKE, Buffer.alloc(0)),
        record(HANDSHAKE, Buffer.alloc(0)),
        record(0x17, Buffer.alloc(5)),
      ]),
    ),
    bytes('a hello of zeros', () => record(HANDSHAKE, hello(200, Buffer.alloc(200)))),
    bytes('a hello that claims 16 MiB', () => record(HANDSHAKE, hello(0xffffff, Buffer.alloc(16 * KIB - 4)))),
    bytes('a hello of 200 KiB', () =>
      Buffer.concat(
        Array.from({ length: 13 }, (_, index) =>
          record(HANDSHAKE, index === 0 ? hello(200 * KIB, Buffer.alloc(16 * KIB - 4, 3)) : Buffer.alloc(16 * KIB, 3)),
        ),
      ),
    ),
    bytes('a hello in records of one byte each', () =>
      Buffer.concat(
        Array.from({ length: 20_000 }, (_, index) => record(HANDSHAKE, Buffer.of([1, 255, 255, 255][index] ?? 1))),
      ),
    ),
    bytes('a record that is larger than any', () =>
      Buffer.concat([Buffer.from([HANDSHAKE, 3, 1, 0xff, 0xff]), Buffer.alloc(0xffff, 1)]),
    ),
    bytes('another message than a hello', () =>
      record(HANDSHAKE, Buffer.concat([Buffer.from([20, 0, 0, 12]), Buffer.alloc(12)])),
    ),
    handshake('a server name of another host', { servername: 'evil.test' }, FAILED),
    handshake('a server name that is longer', { servername: 'api.test.evil.test' }, FAILED),
    handshake('a server name below the right one', { servername: 'sub.api.test' }, FAILED),
    handshake('TLS 1.0', { minVersion: 'TLSv1', maxVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' }, FAILED),
    handshake('TLS 1.1', { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' }, FAILED),
    handshake('ciphers without encryption', { maxVersion: 'TLSv1.2', ciphers: 'eNULL@SECLEVEL=0' }, FAILED),
    handshake('a protocol that is not spoken', { ALPNProtocols: ['spdy/3'] }, FAILED),
    handshake('no server name', { servername: '', checkServerIdentity: () => undefined }, SERVED),
    handshake('the server name in capitals', { servername: 'API.test', checkServerIdentity: () => undefined }, SERVED),
    handshake('no protocol named', { ALPNProtocols: [] }, SERVED),
    {
      name: 'a new handshake inside TLS 1.2',
      expected: /^refused$/,
      async attack(scene: AdversaryScene) {
        const tls = await scene.keyveil.tunnel(scene.sessionA, 'api.test:443', { maxVersion: 'TLSv1.2' });
        const closed = new Promise<string>((resolve) => tls.once('close', () => resolve('closed')));
        const asked = new Promise<string>((resolve) => {
          // The server's alert ends the client's side with an error, before the callback is told anything.
          tls.once('error', () => resolve('refused'));
          tls.renegotiate({}, (error) => resolve(error === null ? 'granted' : 'refused'));
        });
        const answer = await Promise.race([closed, asked]);
        tls.destroy();
        return answer;
      },
    },
    {
      name: 'HTTP in clear for the TLS port',
      expected: /^HTTP\/1\.1 421 [^]*"code":"host_mismatch"/,
      attack: (scene) => scene.raw(requestOf('GET /', [`X-Key: ${scene.placeholderA}`])),
    },
    {
      name: 'HTTP in clear for the TLS port, which its Host names',
      expected: /^HTTP\/1\.1 502 [^]*"code":"upstream_protocol_error"/,
      attack: (scene) =>
        scene.raw(`GET / HTTP/1.1\r\nHost: api.test:443\r\nConnection: close\r\nX-Key: ${scene.placeholderA}\r\n\r\n`),
    },
    {
      name: 'TLS to the proxy port itself',
      expected: /^HTTP\/1\.1 400 [^]*"code":"bad_request"/,
      attack: (scene) => scene.proxy(record(HANDSHAKE, hello(200, Buffer.alloc(200)))),
    },
    {
      name: 'clear text after the handshake',
      expected: ALERT,
      async attack(scene) {
        const { socket } = await scene.keyveil.connect(scene.sessionA, 'api.test:443');
        const answer = readAnswer(socket);
        socket.write(record(HANDSHAKE, hello(200, Buffer.alloc(200))));
        socket.write(requestOf('GET /smuggled'));
        return answer;
      },
    },
  ],
};
