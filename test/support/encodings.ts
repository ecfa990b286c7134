// Every spelling under which bytes could lie somewhere, for searches that must find nothing.
import { textForms } from '../proxy/veil/echoes.ts';

/** The part of a base64 text that depends on the value alone, when `before` bytes of something else precede it. */
function base64Core(bytes: Buffer, before: number): string {
  const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
  const start = [0, 2, 3][before] as number;
  const wholeBits = (before + bytes.length) * 8;
  return text.slice(start, Math.floor(wholeBits / 6));
}

/** Spellings of any bytes by name, as Latin-1 texts: themselves, hex, and base64 at every alignment. */
export function byteForms(bytes: Buffer): Record<string, string> {
  const forms: Record<string, string> = {
    raw: bytes.toString('latin1'),
    hex: bytes.toString('hex'),
    'hex in upper case': bytes.toString('hex').toUpperCase(),
  };
  for (const before of [0, 1, 2]) {
    const core = base64Core(bytes, before);
    forms[`base64 at ${before}`] = core;
    forms[`base64url at ${before}`] = core.replaceAll('+', '-').replaceAll('/', '_');
  }
  return forms;
}

/** Spellings of a text: those of its bytes, percent-encoded, in JSON and in HTML. */
export function valueForms(value: string): Record<string, string> {
  const texts = Object.entries(textForms(value)).map(([name, text]) => [name, Buffer.from(text).toString('latin1')]);
  return { ...Object.fromEntries(texts), ...byteForms(Buffer.from(value)) };
}

/** Names of the spellings that occur in a Latin-1 text. */
export function formsIn(text: string, forms: Readonly<Record<string, string>>): string[] {
  return Object.entries(forms).flatMap(([name, form]) => (text.includes(form) ? [name] : []));
}
