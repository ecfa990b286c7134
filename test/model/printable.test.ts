// Text that others chose, made safe to print.
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { escapeControls } from '../../model/printable.ts';
import { holds } from '../support/property.ts';

void test('controls, hidden and reordering characters become escapes, everything else stays', async (t) => {
  t.equal(escapeControls('plain Grüße 世界 🎉 "\\'), 'plain Grüße 世界 🎉 "\\');
  t.equal(escapeControls('\u001b[31mred\r\n\t\u0007'), '\\u001b[31mred\\u000d\\u000a\\u0009\\u0007');
  t.equal(
    escapeControls('\u009b31m\u007f'),
    '\\u009b31m\\u007f',
    'C1 controls too: 0x9b begins a sequence as ESC [ does',
  );
  t.equal(escapeControls('\u202egpj.exe\u200b\u2066\ufeff'), '\\u202egpj.exe\\u200b\\u2066\\ufeff');
  t.equal(escapeControls('\ud800x'), '\ufffdx', 'a lone surrogate is no character');
});

test('controls, hidden characters and lone surrogates are escaped, and all else stays', (t) => {
  const escaped: readonly (readonly [string, string])[] = [
    ['\u001b[2J', '\\u001b[2J'],
    ['a\r\nb\tc\u0000', 'a\\u000d\\u000ab\\u0009c\\u0000'],
    ['\u007f\u0080\u009b', '\\u007f\\u0080\\u009b'],
    ['safe\u202egnp.exe', 'safe\\u202egnp.exe'],
    ['\u2066\u2069\u200e\u061c\u2028\u2029', '\\u2066\\u2069\\u200e\\u061c\\u2028\\u2029'],
    ['a\u00ad\u200b\u2060\ufeff\u3164b', 'a\\u00ad\\u200b\\u2060\\ufeff\\u3164b'],
    ['tag\u{e0041}', 'tag\\udb40\\udc41'],
    ['\u{e0100}', '\\udb40\\udd00'],
    ['a\ud800b\udc00', 'a\ufffdb\ufffd'],
  ];
  for (const [text, expected] of escaped) t.equal(escapeControls(text), expected);
  for (const text of ['', 'plain ~ text', 'Schlüssel', '日本語', '🔑', '❤️', '\\u001b', 'e\u0301', 'שלום'])
    t.equal(escapeControls(text), text);
  t.end();
});

test('property: escaped text is printable, and JSON that is escaped is still the same JSON', (t) => {
  const text = fc.string({ unit: 'binary' });
  holds(
    t,
    fc.property(text, (value) => {
      const printable = escapeControls(value);
      assert.doesNotMatch(printable, /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
      assert.equal(escapeControls(printable), printable);
      assert.equal(JSON.parse(escapeControls(JSON.stringify(value))), value);
    }),
    2000,
  );
  t.end();
});
