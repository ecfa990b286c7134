// Requests that two readers would cut in different places (RFC 9112 sections 2.2, 5.1, 6.1, 6.3, 7.1).
import type { AttackCase, AttackClass } from '../../support/adversary.ts';

const SMUGGLED = 'GET /smuggled HTTP/1.1\r\nHost: api.test\r\n\r\n';
/** One refusal, and no answer to what came behind. */
const REFUSED = /^HTTP\/1\.1 400 (?![^]*HTTP\/1\.1 )[^]*"code":"bad_request"/;
/** The head was good and is on its way by then: the connection is closed without a word. */
const CLOSED = /^$/;

function smuggle(name: string, lines: readonly string[], body = ''): AttackCase {
  const text = `${lines.join('\r\n')}\r\n\r\n${body}`;
  return { name, expected: REFUSED, attack: (scene) => scene.inside(text + SMUGGLED) };
}

function misframe(name: string, body: string): AttackCase {
  return { ...smuggle(name, post('Transfer-Encoding: chunked'), body), expected: CLOSED };
}

const post = (...fields: string[]): readonly string[] => ['POST / HTTP/1.1', 'Host: api.test', ...fields];
const chunks = '0\r\n\r\n';

export const FRAMING: AttackClass = {
  name: 'framing',
  cases: [
    smuggle('a length and chunks', post('Content-Length: 6', 'Transfer-Encoding: chunked'), chunks),
    smuggle('chunks and a length', post('Transfer-Encoding: chunked', 'Content-Length: 6'), chunks),
    smuggle('two lengths', post('Content-Length: 5', 'Content-Length: 6'), 'hello'),
    smuggle('two lengths in one field', post('Content-Length: 5, 6'), 'hello'),
    smuggle('a length with a sign', post('Content-Length: +5'), 'hello'),
    smuggle('a negative length', post('Content-Length: -1'), 'hello'),
    smuggle('a hexadecimal length', post('Content-Length: 0x5'), 'hello'),
    smuggle('a length with a blank in it', post('Content-Length: 5 5'), 'hello'),
    smuggle('an empty length', post('Content-Length:'), 'hello'),
    smuggle('a length beyond 64 bits', post('Content-Length: 18446744073709551621'), 'hello'),
    smuggle('a coding that is nearly chunked', post('Transfer-Encoding: xchunked'), chunks),
    smuggle('chunked twice', post('Transfer-Encoding: chunked, chunked'), chunks),
    smuggle('chunked in two fields', post('Transfer-Encoding: chunked', 'Transfer-Encoding: identity'), chunks),
    smuggle('another coding before chunked', post('Transfer-Encoding: gzip, chunked'), chunks),
    smuggle('chunked that is not last', post('Transfer-Encoding: chunked, gzip'), chunks),
    smuggle('chunked with a vertical tab', post('Transfer-Encoding: \x0bchunked'), chunks),
    smuggle('chunked in quotes', post('Transfer-Encoding: "chunked"'), chunks),
    smuggle('a blank before the colon', post('Transfer-Encoding : chunked', 'Content-Length: 5'), chunks),
    smuggle('a folded field', post('Transfer-Encoding:', ' chunked', 'Content-Length: 5'), chunks),
    smuggle('a field before the first line ends', ['GET / HTTP/1.1', ' Host: api.test']),
    smuggle('chunks over HTTP/1.0', ['POST / HTTP/1.0', 'Host: api.test', 'Transfer-Encoding: chunked'], chunks),
    smuggle('HTTP/0.9', ['GET / HTTP/0.9', 'Host: api.test']),
    smuggle('HTTP/2.0 by its name', ['GET / HTTP/2.0', 'Host: api.test']),
    smuggle('a NUL in a field', post('X-A: a\0b')),
    smuggle('a bare CR in a field', post('X-A: a\rContent-Length: 5')),
    smuggle('a bare LF between fields', ['GET / HTTP/1.1', 'Host: api.test\nX-A: b']),
    smuggle('a name with a blank in it', post('X A: b')),
    smuggle('a field without a name', post(': b')),
    misframe('a chunk size that is none', 'zz\r\nhello\r\n0\r\n\r\n'),
    misframe('a chunk size with a prefix', '0x5\r\nhello\r\n0\r\n\r\n'),
    misframe('a negative chunk size', '-5\r\nhello\r\n0\r\n\r\n'),
    misframe('a chunk size beyond 64 bits', '10000000000000005\r\nhello\r\n0\r\n\r\n'),
    misframe('a chunk that is longer than its size', '4\r\nhello\r\n0\r\n\r\n'),
    misframe('a bare LF behind a chunk size', '5\nhello\r\n0\r\n\r\n'),
  ],
};
