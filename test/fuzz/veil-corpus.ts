// Echoes that are worth trying every time: each stands for a way in which forms can overlap, mix or be cut.
import type { EchoCase } from '../proxy/veil/arbitraries.ts';

function echo(values: readonly string[], text: string, ...cuts: readonly number[]): EchoCase {
  const body = Buffer.from(text);
  const offsets = [0, ...cuts, body.length];
  return {
    values,
    body,
    chunks: offsets.slice(1).map((end, index) => Buffer.from(body.subarray(offsets[index], end))),
  };
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');

export const CORPUS: readonly EchoCase[] = [
  echo(['aaaaaaaa'], 'a'.repeat(40), 3, 9, 30),
  echo(['abababab'], `b${'ab'.repeat(9)}${'%61b'.repeat(9)}`),
  echo(['abcdefgh', 'efghijkl'], 'abcdefghijkl efghijklabcdefgh'),
  echo(['same-value', 'same-value'], 'same-value'),
  echo(['abcdefgh', 'abcdefghij'], 'abcdefghij'),
  echo(['%25%25%25'], '%25%25%25 %2525%2525%2525 %25%25%2525%25'),
  echo(['\\\\\\\\\\\\\\\\'], '\\'.repeat(40), 5),
  echo(['&amp;&amp;'], '&amp;&amp; &amp;amp;&amp;amp; &#38;amp;&amp;amp;'),
  echo(['a+b c+d e'], 'a+b c+d e a+b+c+d+e a%2Bb+c%2bd%20e'),
  echo(['12345678'], `${base64('12345678')}${base64('x12345678')}${base64('xx12345678y')}`, 7, 20),
  echo(['123456789'], `${base64('123456789')}${base64('123456789')}`),
  echo(['MTIzNDU2Nzg'], `${base64('12345678')} ${base64(base64('12345678'))}`),
  echo(['deadbeefdeadbeef'], Buffer.from('deadbeefdeadbeef').toString('hex').repeat(2)),
  echo(['line one\nline two\n'], 'line one\nline two\n line one\\nline two\\n', 9),
  echo(['\u{1F600}\u{1F601}\u{1F602}'], '\u{1F600}\\ud83d\\ude01&#x1F602; \\uD83D\\uDE00&#128513;%F0%9F%98%82', 4, 30),
  echo(['kvph_00010001000100010001000100010001', 'other-value'], 'other-value kvph_00010001000100010001000100010001'),
];
