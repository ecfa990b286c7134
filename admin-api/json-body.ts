// Parsing of request bodies: strict UTF-8, strict JSON, no prototype tricks, and no word of the input in an error.
import { KeyveilError } from '../model/errors.ts';

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });

// V8's message quotes the input; only the number is taken out of it.
function describePlace(error: unknown): string {
  const position = error instanceof SyntaxError ? /\bat position (\d+)/.exec(error.message)?.[1] : undefined;
  return position === undefined ? '' : ` (at character ${Number(position) + 1})`;
}

function refusePrototypes(key: string, value: unknown): unknown {
  if (key === '__proto__') throw new KeyveilError('invalid_json', 'The body must not hold a key named __proto__.');
  return value;
}

/** Parses a body; undefined when it is empty. Throws `invalid_json`. */
export function parseJsonBody(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined;
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    throw new KeyveilError('invalid_json', 'The body is not valid UTF-8.');
  }
  try {
    // The reviver walks the whole value, so it is used only where its one finding is possible.
    return text.includes('__proto__') || text.includes('\\u') ? JSON.parse(text, refusePrototypes) : JSON.parse(text);
  } catch (error) {
    if (error instanceof KeyveilError) throw error;
    throw new KeyveilError('invalid_json', `The body is not valid JSON${describePlace(error)}.`);
  }
}
