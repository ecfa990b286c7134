// An HTTPS server for git repositories: it demands a Basic login and hands the rest to `git http-backend` (CGI, RFC 3875).
import { execFileSync, spawn } from 'node:child_process';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { startUpstream, type TestUpstream } from './upstream.ts';
import type { TestLeaf } from './test-authority.ts';

interface GitRequest {
  readonly method: string;
  readonly url: string;
  readonly authorization: string | undefined;
  readonly contentEncoding: string | undefined;
  /** Bytes of the body as they arrived. */
  bytes: number;
}

export interface GitServer extends TestUpstream {
  readonly requests: GitRequest[];
}

export interface GitServerOptions {
  readonly leaf: TestLeaf;
  /** Holds the bare repositories. */
  readonly root: string;
  /** `user:password`. */
  readonly login: string;
}

const HEAD_END = '\r\n\r\n';

function backendPath(): string {
  return join(execFileSync('git', ['--exec-path']).toString().trim(), 'git-http-backend');
}

/** CGI's answer: fields with `Status` among them, an empty line, the body. */
function answerFrom(source: NodeJS.ReadableStream, response: ServerResponse): void {
  let held = '';
  const onData = (chunk: Buffer): void => {
    held += chunk.toString('latin1');
    const end = held.indexOf(HEAD_END);
    if (end < 0) return;
    source.off('data', onData);
    for (const line of held.slice(0, end).split('\r\n')) {
      const colon = line.indexOf(':');
      const [name, value] = [line.slice(0, colon), line.slice(colon + 1).trim()];
      if (name.toLowerCase() === 'status') response.statusCode = parseInt(value, 10);
      else response.setHeader(name, value);
    }
    response.write(Buffer.from(held.slice(end + HEAD_END.length), 'latin1'));
    source.pipe(response);
  };
  source.on('data', onData);
}

function runBackend(request: IncomingMessage, response: ServerResponse, root: string): void {
  const { headers, method = '' } = request;
  const { pathname, search } = new URL(request.url ?? '/', 'https://git.test');
  const backend = spawn(backendPath(), {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      PATH: process.env['PATH'],
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_CONFIG_NOSYSTEM: '1',
      REMOTE_USER: 'user',
      REQUEST_METHOD: method,
      PATH_INFO: decodeURIComponent(pathname),
      QUERY_STRING: search.slice(1),
      CONTENT_TYPE: headers['content-type'] ?? '',
      ...(headers['content-length'] === undefined ? {} : { CONTENT_LENGTH: headers['content-length'] }),
      HTTP_CONTENT_ENCODING: headers['content-encoding'] ?? '',
      ...(headers['git-protocol'] === undefined ? {} : { GIT_PROTOCOL: String(headers['git-protocol']) }),
    },
  });
  backend.stdin.on('error', () => undefined);
  request.pipe(backend.stdin);
  answerFrom(backend.stdout, response);
}

export async function startGitServer({ leaf, root, login }: GitServerOptions): Promise<GitServer> {
  const requests: GitRequest[] = [];
  const expected = `Basic ${Buffer.from(login).toString('base64')}`;
  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    const { headers, method = '', url = '' } = request;
    const seen: GitRequest = {
      method,
      url,
      authorization: headers.authorization,
      contentEncoding: headers['content-encoding'],
      bytes: 0,
    };
    requests.push(seen);
    request.on('data', (chunk: Buffer) => (seen.bytes += chunk.length));
    if (headers.authorization !== expected) {
      response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="git"' });
      response.end();
      request.resume();
      return;
    }
    runBackend(request, response, root);
  };
  const upstream = await startUpstream({ leaf, listener });
  return { ...upstream, requests };
}
