// A ClientHello in as many records as a client likes: what is read of it, and the bound of the work that it can cause.
import { Duplex } from 'node:stream';
import { connect } from 'node:tls';
import { test } from 'tap';
import { CLIENT_HELLO_BYTES_MAX, CLIENT_HELLO_RECORDS_MAX } from '../../model/limits.ts';
import { parseClientHello } from '../../proxy/client-hello.ts';

const HEADER_BYTES = 5;
const HANDSHAKE = 22;

/** The handshake message of a real client, without its record's header. */
function helloOf(servername: string): Promise<Buffer> {
  return new Promise((resolve) => {
    const carrier = new Duplex({
      read: () => undefined,
      write(chunk: Buffer, _encoding, done) {
        resolve(chunk.subarray(HEADER_BYTES));
        done();
      },
    });
    connect({ socket: carrier, servername }).on('error', () => undefined);
  });
}

function record(payload: Buffer): Buffer {
  return Buffer.concat([Buffer.of(HANDSHAKE, 3, 1, payload.length >> 8, payload.length & 255), payload]);
}

/** The message in so many records: of one byte each, and the rest in the last. */
function inRecords(message: Buffer, count: number): Buffer {
  const single = Array.from({ length: count - 1 }, (_, index) => record(message.subarray(index, index + 1)));
  return Buffer.concat([...single, record(message.subarray(count - 1))]);
}

test('the name is read from one record and from as many as are allowed, byte by byte', async (t) => {
  const message = await helloOf('api.test');
  for (const count of [1, 2, 5, CLIENT_HELLO_RECORDS_MAX]) {
    const bytes = inRecords(message, count);
    for (let length = 0; length < bytes.length; length += 1) {
      const { kind } = parseClientHello(bytes.subarray(0, length));
      if (kind !== 'incomplete') t.fail(`${count} records: ${kind} after ${length} of ${bytes.length} bytes`);
    }
    t.strictSame(parseClientHello(bytes), { kind: 'hello', serverName: 'api.test' }, `${count} records`);
    t.strictSame(parseClientHello(Buffer.concat([bytes, record(Buffer.alloc(100))])), parseClientHello(bytes));
  }
});

test('more records, and more bytes, are given up at once', async (t) => {
  const message = await helloOf('api.test');
  const many = inRecords(message, CLIENT_HELLO_RECORDS_MAX + 1);
  t.strictSame(parseClientHello(many), { kind: 'malformed' });
  const perRecord = HEADER_BYTES + 1;
  const allowed = CLIENT_HELLO_RECORDS_MAX * perRecord;
  t.strictSame(parseClientHello(many.subarray(0, allowed)), { kind: 'incomplete' });
  t.strictSame(parseClientHello(many.subarray(0, allowed + HEADER_BYTES)), { kind: 'malformed' });
  // The four bytes of its header tell how long it claims to be.
  const claim = (length: number): Buffer => record(Buffer.of(1, length >> 16, (length >> 8) & 255, length & 255));
  t.strictSame(parseClientHello(claim(CLIENT_HELLO_BYTES_MAX - 4)), { kind: 'incomplete' });
  t.strictSame(parseClientHello(claim(CLIENT_HELLO_BYTES_MAX - 3)), { kind: 'malformed' });
  t.strictSame(parseClientHello(claim(0xffffff)), { kind: 'malformed' });
});

test('the work for each look is bounded by what is allowed, not by what has come', async (t) => {
  const message = await helloOf('api.test');
  const endless = Buffer.concat(Array.from({ length: 30_000 }, () => record(message.subarray(0, 1))));
  let reads = 0;
  const watched = new Proxy(endless, {
    get(target, name) {
      if (typeof name === 'string' && /^\d+$/.test(name)) reads += 1;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
  t.strictSame(parseClientHello(watched), { kind: 'malformed' });
  t.ok(reads <= CLIENT_HELLO_RECORDS_MAX + 1, `${reads} records were looked at`);
});
