// What may be told of an error: class, code and frames; a message only when it is one of ours.
import { KeyveilError, StartError } from '../model/errors.ts';

const MESSAGE_CHARACTERS_MAX = 1024;
const FRAMES_MAX = 12;
const CAUSES_MAX = 4;

// The head of a stack repeats the message, which may quote input; what follows it are frames of code.
function framesOf(error: Error): string[] {
  const stack = typeof error.stack === 'string' ? error.stack : '';
  const head = error.message === '' ? -1 : stack.indexOf(error.message);
  const body = head < 0 ? stack : stack.slice(head + error.message.length);
  const frames = body
    .split('\n')
    .filter((line) => /^ {4}at \S.*(?::[0-9]+:[0-9]+\)?|<anonymous>\)?|\(native\))$/.test(line));
  return frames.slice(0, FRAMES_MAX).map((line) => line.trim());
}

function wordOf(value: unknown): string | undefined {
  return typeof value === 'string' && /^[\w$.-]{1,64}$/.test(value) ? value : undefined;
}

/** An error as the log shows it: class, code and frames; a message only when it is one of ours, which never quote secrets. */
export function describeError(error: unknown, depth = 0): Record<string, unknown> {
  if (!(error instanceof Error)) return { name: `thrown ${typeof error}` };
  const code = wordOf((error as NodeJS.ErrnoException).code);
  const isOurs = error instanceof KeyveilError || error instanceof StartError;
  return {
    name: wordOf(error.name) ?? 'Error',
    ...(code === undefined ? {} : { code }),
    ...(isOurs ? { message: error.message.slice(0, MESSAGE_CHARACTERS_MAX) } : {}),
    frames: framesOf(error),
    ...(error.cause === undefined || depth >= CAUSES_MAX ? {} : { cause: describeError(error.cause, depth + 1) }),
  };
}
