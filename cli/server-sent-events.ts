// Reads a stream of server-sent events (WHATWG HTML, section 9.2).
import type { Readable } from 'node:stream';

export interface ServerSentEvent {
  readonly id: string | null;
  readonly data: string;
}

const LINE_CHARACTERS_MAX = 4 * 1024 * 1024;

/** Events in order; ends with the stream, also when it breaks off: an event without its empty line is dropped. */
export async function* readEvents(stream: Readable): AsyncGenerator<ServerSentEvent> {
  let rest = '';
  let id: string | null = null;
  let data: string[] = [];
  const decoder = new TextDecoder();
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split(/\r?\n/);
      rest = lines.pop() ?? '';
      if (rest.length > LINE_CHARACTERS_MAX) throw new RangeError('a line of the event stream is too long');
      for (const line of lines) {
        if (line === '') {
          if (data.length > 0) yield { id, data: data.join('\n') };
          data = [];
        } else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
        else if (line.startsWith('id:')) id = line.slice(3).trim();
      }
    }
  } catch (error) {
    // A daemon that stops resets its streams; whoever follows connects again.
    if ((error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
  }
}
