import fc from 'fast-check';
import t from 'tap';
import { CORPUS } from '../../fuzz/veil-corpus.ts';
import { createForms } from '../../../proxy/veil/forms.ts';
import { recordsOf, VeilScanner } from '../../../proxy/veil/scanner.ts';
import { Veil } from '../../../proxy/veil/veil.ts';
import { cut, oneByteEach, PLACEHOLDER, placeholderOf, textForms, VALUE, veilOf } from './echoes.ts';
import { scan, scannerProperty } from './properties.ts';

function scanText(veil: Veil, text: string): string {
  return scan(veil, [Buffer.from(text)]).bytes.toString();
}

void t.test('every textual form becomes the placeholder, cut at every byte and one byte at a time', async (t) => {
  const veil = veilOf(VALUE);
  for (const [name, form] of Object.entries(textForms(VALUE))) {
    const text = Buffer.from(`{"echo":"${form}"}`);
    const wanted = `{"echo":"${PLACEHOLDER}"}`;
    const chunkings = [oneByteEach(text), ...Array.from({ length: text.length }, (_, at) => cut(text, at))];
    const wrong = chunkings.filter((chunks) => scan(veil, chunks).bytes.toString() !== wanted);
    t.equal(wrong.length, 0, name);
    t.equal(
      scan(veil, oneByteEach(text), true).bytes.toString(),
      `{"echo":"${'*'.repeat(Buffer.byteLength(form))}"}`,
      `${name}, same length`,
    );
  }
});

void t.test('base64 of the value alone becomes base64 of the placeholder', async (t) => {
  for (const value of ['12345678', '123456789', '1234567890', '????????>>>~~~', 'ÿÿÿÿÿ']) {
    const veil = veilOf(value);
    const bytes = Buffer.from(value);
    for (const encoding of ['base64', 'base64url'] as const) {
      const text = bytes.toString(encoding);
      const result = scanText(veil, `"${text}"`).slice(1, -1);
      t.equal(Buffer.from(result, encoding).toString(), PLACEHOLDER, `${value} ${text}`);
      t.equal(
        result.endsWith('='),
        encoding === 'base64' || (!/[-_=]/.test(bytes.toString('base64url')) && bytes.length % 3 === 0),
      );
      const bare = text.replaceAll('=', '');
      t.equal(Buffer.from(scanText(veil, bare), encoding).toString(), PLACEHOLDER, 'unpadded, at the end of the data');
    }
  }
});

void t.test('base64 at any alignment keeps no bit of the value', async (t) => {
  for (const value of ['12345678', '123456789', '1234567890', '~?~?~?>>>?~']) {
    const veil = veilOf(value);
    for (const before of ['', 'u', 'uu', 'uuu', 'user:', 'users:']) {
      for (const after of ['x', 'xx', 'xxx']) {
        for (const encoding of ['base64', 'base64url'] as const) {
          const decoded = decodeStars(scanText(veil, Buffer.from(before + value + after).toString(encoding)), encoding);
          t.notOk(
            [...Buffer.from(value)].some((byte, index) => decoded[before.length + index] === byte),
            `${before}-${after}`,
          );
        }
      }
    }
  }
  // A placeholder of whole groups can stand inside other base64.
  const placeholder = `pf${PLACEHOLDER}`;
  const forms = [createForms(Buffer.from('123456789'), placeholder, 'all')];
  const veil = Veil.compile({ credentialIds: ['vcrd_1'], forms, unopened: [] });
  const result = scanText(veil, Buffer.from('abc123456789xyz').toString('base64'));
  t.equal(Buffer.from(result, 'base64').toString(), `abc${placeholder}xyz`);
});

/** Bytes of which every bit is known; -1 for the others. */
function decodeStars(text: string, encoding: BufferEncoding): number[] {
  const zeros = Buffer.from(text.replaceAll('*', 'A'), encoding);
  const ones = Buffer.from(text.replaceAll('*', encoding === 'base64' ? '/' : '_'), encoding);
  return [...zeros].map((byte, index) =>
    (byte ^ (ones[index] as number)) === 0xff ? -1 : byte & ~(byte ^ (ones[index] as number)),
  );
}

void t.test('characters that do not fit beside the base64 of a value are left alone', async (t) => {
  const value = '12345678';
  const core = Buffer.from(`u${value}u`).toString('base64').slice(2, 12);
  t.equal(scanText(veilOf(value), `.${core}.`), `.${'*'.repeat(10)}.`);
  t.equal(scanText(veilOf(value), core), '*'.repeat(10));
  const whole = Buffer.from(value).toString('base64').slice(0, 10);
  t.equal(scanText(veilOf(value), `${whole}.`), '**********.', 'a core without its tail');
  t.equal(scanText(veilOf(value), whole), '**********', 'also at the end of the data');
  t.equal(scanText(veilOf(value), `${whole}w=`).slice(-1), '=', 'padding that is too short is not taken');
});

void t.test('an occurrence that is cut by what may leave goes on being veiled', async (t) => {
  const after = 'x'.repeat(1000);
  for (const chunks of [oneByteEach(Buffer.from(VALUE + after)), cut(Buffer.from(VALUE + after), 200, 300)]) {
    t.equal(scan(veilOf(VALUE), chunks).bytes.toString(), PLACEHOLDER + after);
    const overwritten = '*'.repeat(Buffer.byteLength(VALUE)) + after;
    t.equal(scan(veilOf(VALUE), chunks, true).bytes.toString(), overwritten);
  }
});

void t.test('a Basic token comes back as the client wrote it', async (t) => {
  const sent = Buffer.from(`x-access-token:${VALUE}`).toString('base64');
  const original = Buffer.from(`x-access-token:${PLACEHOLDER}`).toString('base64');
  const base = veilOf(VALUE, 'another-value');
  const veil = base.withBasicTokens([
    { credentialId: 'vcrd_2', sent: Buffer.from('u:another-value').toString('base64'), original: 'two' },
    { credentialId: 'vcrd_1', sent, original },
  ]);
  const text = Buffer.from(`{"authorization":"Basic ${sent}"}`);
  const wanted = `{"authorization":"Basic ${original}"}`;
  t.equal(scan(veil, [text]).bytes.toString(), wanted);
  t.equal(scan(veil, oneByteEach(text)).bytes.toString(), wanted);
  const cutToken = scanText(veil, sent.slice(1));
  t.equal(cutToken, original.slice(1), 'part of a token is veiled as base64');
  t.equal(base.withBasicTokens([]), base);
  t.equal(
    base.withBasicTokens([{ credentialId: 'vcrd_9', sent, original }]),
    base,
    'of a credential that is not veiled',
  );
  const long = base.withBasicTokens([{ credentialId: 'vcrd_1', sent: 'x'.repeat(5000), original }]);
  t.equal(long.longest, 5000);
  t.equal(scan(long, [text]).bytes.toString().includes(sent), false, 'a token without the value in it changes nothing');
});

void t.test('occurrences that overlap are hidden as one, those that touch stay apart', async (t) => {
  const veil = veilOf('abcdefgh', 'efghijkl');
  t.equal(scanText(veil, '.abcdefghijkl.'), `.${placeholderOf(0)}.`);
  t.equal(scanText(veil, '.efghijklabcdefgh.'), `.${placeholderOf(1)}${placeholderOf(0)}.`);
  const { bytes, counts } = scan(veilOf('aaaaaaaa'), oneByteEach(Buffer.from(`b${'a'.repeat(1000)}b`)));
  t.equal(bytes.toString(), `b${PLACEHOLDER}b`);
  t.strictSame(recordsOf(counts), [{ credentialId: 'vcrd_1', count: 1 }]);
  t.equal(scan(veil, oneByteEach(Buffer.from('.abcdefghijkl.')), true).bytes.toString(), '.************.');
  t.equal(scanText(veilOf('same-value', 'same-value'), 'same-value'), placeholderOf(0), 'the first of two alike');
});

void t.test('values with escape characters in them are found in every reading', async (t) => {
  t.equal(scanText(veilOf('a%25b&amp;c\\\\d'), 'a%2525b&amp;amp;c\\\\\\\\d'), PLACEHOLDER);
  t.equal(scanText(veilOf('\\\\\\\\\\\\\\\\'), `.${'\\'.repeat(16)}.`), `.${PLACEHOLDER}.`);
});

void t.test('escapes that are broken, or of other text, stay', async (t) => {
  const value = 'abc/"é😀xyz';
  const texts = [
    'abc%2',
    'abc%zzdef',
    'abc\\',
    'abc\\x2f',
    'abc\\u00',
    'abc\\u00zz',
    'abc\\ud83d',
    'abc\\ud83dx',
    'abc\\ude00\\ude00',
    'abc\\ud83d\\u0041',
    'abc&',
    'abc&#',
    'abc&#;',
    'abc&#x;',
    'abc&#47',
    'abc&#000047;',
    'abc&#1114112;',
    'abc&sol;',
    'abc&quo',
    'abc%2f%22\\u00e8😀xyz',
    'abc%2f%22\\u00e9\\ud83d\\ude01xyz',
    'abc%2f%22é😀xy',
    'abc%2f%22é😀xyz'.slice(1),
    '%2f%22é😀xyz',
    '%2f',
  ];
  for (const text of texts) t.equal(scanText(veilOf(value), `"${text}"`), `"${text}"`);
  for (const text of texts) t.equal(scanText(veilOf(value), text), text);
});

void t.test('a value over 1 KiB is veiled raw and in base64, one under 8 bytes not at all', async (t) => {
  const long = `-----BEGIN KEY-----\n${'Ab+/'.repeat(400)}\n-----END KEY-----\n`;
  const veil = veilOf(long);
  t.equal(veil.spansLines, true);
  t.equal(scanText(veil, `<${long}>`), `<${PLACEHOLDER}>`);
  t.equal(
    scanText(veil, `<${Buffer.from(long).toString('base64')}>`),
    `<${Buffer.from(PLACEHOLDER).toString('base64')}>`,
  );
  const escaped = JSON.stringify(long);
  t.equal(scanText(veil, escaped), escaped);
  t.throws(() => veilOf('1234567'));
  t.equal(veilOf('12345678').spansLines, false);
});

void t.test('what is held back is the longest form less one byte, whatever the bytes', async (t) => {
  const veil = veilOf(VALUE);
  const scanner = new VeilScanner(veil, { sameLength: false, counts: new Map() });
  let taken = 0;
  for (let size = 1; size < 200; size += 7) {
    scanner.push(Buffer.alloc(size, 0x61));
    taken += size;
    t.equal(scanner.held, Math.min(taken, veil.longest - 1));
  }
  t.equal(scanner.release().length, veil.longest - 1);
  t.equal(scanner.held, 0);
  t.equal(scanner.release().length, 0);
  t.equal(scanner.push(Buffer.from('data: 1\n\nda'), 2).toString(), 'data: 1\n\n');
  t.equal(scanner.held, 2, 'at an end of an event, no more is held than came after it');
  const chunk = Buffer.alloc(10_000, 0x61);
  const whole = new VeilScanner(veil, { sameLength: false, counts: new Map() });
  t.equal(whole.whole(chunk), chunk, 'a body without a hit is not copied');
  t.equal(whole.push(chunk).buffer, chunk.buffer, 'nor is a first chunk');
});

void t.test('chunk boundaries are the same for right and wrong guesses of every length', async (t) => {
  const value = 'sk-ant-0123456789abcdefghij';
  const veil = veilOf(value);
  const boundaries = (guess: string, step: number): number[] => {
    const scanner = new VeilScanner(veil, { sameLength: false, counts: new Map() });
    const body = Buffer.from(`{"echo":"${guess}"}${'-'.repeat(300)}${guess}`);
    const chunks = cut(
      body,
      ...Array.from({ length: Math.floor(body.length / step) }, (_, index) => (index + 1) * step),
    );
    return [...chunks.map((chunk) => scanner.push(chunk).length), scanner.release().length];
  };
  const encoders = [
    (text: string) => text,
    (text: string) => Buffer.from(text).toString('base64'),
    (text: string) => Buffer.from(text).toString('hex'),
    (text: string) => [...text].map((character) => `%${character.charCodeAt(0).toString(16)}`).join(''),
  ];
  let differing = 0;
  for (const encode of encoders) {
    for (let known = 1; known < value.length; known += 1) {
      const right = value.slice(0, known);
      const wrong = right.slice(0, -1) + '#';
      for (const step of [1, 5, 64, 1000]) {
        if (boundaries(encode(right), step).join() !== boundaries(encode(wrong), step).join()) differing += 1;
      }
    }
  }
  t.equal(differing, 0);
  t.not(
    boundaries(value, 64).join(),
    boundaries('#'.repeat(value.length), 64).join(),
    'a whole value makes a difference',
  );
});

void t.test('the stream equals the plain reference for random bodies and chunkings', async (t) => {
  fc.assert(scannerProperty, {
    numRuns: 150,
    examples: CORPUS.flatMap((echo) => [
      [echo, false],
      [echo, true],
    ]),
  });
  t.pass();
});
