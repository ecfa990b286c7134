// Text that others chose, made safe to print.
import { test } from 'tap';
import { escapeControls } from '../../model/printable.ts';

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
