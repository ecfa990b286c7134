// What every program here is started with: column, base URL, file to upload.
import process from 'node:process';

export const [, , column = '', base = '', path = ''] = process.argv;
export const key = process.env.API_KEY ?? '';
export const proxy = process.env.HTTPS_PROXY ?? '';
export const authorization = `Bearer ${key}`;

/** Prints each line of a stream of bytes as it comes. */
export async function printLines(stream) {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of stream) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) console.log(line);
  }
}

/** Sends the key by a WebSocket of the browser's kind and prints the answer. */
export function talk(webSocket) {
  webSocket.addEventListener('open', () => webSocket.send(`key=${key}`));
  webSocket.addEventListener('message', ({ data }) => {
    console.log(data);
    webSocket.close();
  });
  webSocket.addEventListener('error', (event) => {
    console.error(event.error ?? event.message ?? 'the WebSocket failed');
    process.exitCode = 1;
  });
}
