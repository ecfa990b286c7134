// Clients that are command-line programs: curl and wget.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { API, probeProgram, programChecks, type Client, type Column } from './client.ts';
import type { Command, Scene } from './scene.ts';

function curl(flags: readonly string[]) {
  return (column: Column, scene: Scene): Command => {
    const common = ['-sS', '--fail', '--max-time', '60', ...flags];
    const key = scene.placeholder('API_KEY');
    const rest: Record<Exclude<Column, 'websocket'>, string[]> = {
      header: ['-H', `Authorization: Bearer ${key}`, `${API}/echo`],
      body: ['-H', 'Content-Type: application/json', '-d', JSON.stringify({ key }), `${API}/echo`],
      upload: ['-T', scene.upload.path, `${API}/upload`],
      stream: ['-N', `${API}/events`],
    };
    return { file: 'curl', args: [...common, ...rest[column as Exclude<Column, 'websocket'>]] };
  };
}

const columns = ['header', 'body', 'upload', 'stream'] as const;
const probeCurl = () => probeProgram('curl', ['--version'], /^curl (\S+)/);

export const curlHttp1: Client = {
  name: 'curl, HTTP/1.1',
  needs: '',
  probe: probeCurl,
  checks: programChecks({ command: curl(['--http1.1']), columns, http: '1.1' }),
};

export const curlHttp2: Client = {
  name: 'curl, HTTP/2',
  needs: '',
  probe: probeCurl,
  checks: programChecks({ command: curl(['--http2']), columns, http: '2.0' }),
};

export const curlAnyAuth: Client = {
  name: 'curl, login after the challenge',
  needs: '`--proxy-anyauth`, as asked for',
  probe: probeCurl,
  checks: programChecks({ command: curl(['--proxy-anyauth']), columns }),
};

function wgetCommand(column: Column, scene: Scene): Command {
  const key = scene.placeholder('API_KEY');
  const rest: Record<Exclude<Column, 'websocket'>, string[]> = {
    header: [`--header=Authorization: Bearer ${key}`, `${API}/echo`],
    body: ['--header=Content-Type: application/json', `--post-data=${JSON.stringify({ key })}`, `${API}/echo`],
    upload: ['--method=PUT', `--body-file=${scene.upload.path}`, `${API}/upload`],
    stream: [`${API}/events`],
  };
  return {
    file: 'wget',
    args: ['-q', '-O', '-', '--tries=1', '--timeout=60', ...rest[column as Exclude<Column, 'websocket'>]],
    env: { WGETRC: join(scene.directory, 'wgetrc') },
  };
}

export const wget: Client = {
  name: 'wget',
  needs: '`WGETRC` naming a file with `ca_certificate=…/ca-bundle.pem`',
  probe: () => probeProgram('wget', ['--version'], /^GNU Wget (\S+)/),
  prepare: async ({ directory }) => {
    writeFileSync(join(directory, 'wgetrc'), `ca_certificate=${join(directory, 'ca-bundle.pem')}\n`);
  },
  checks: programChecks({ command: wgetCommand, columns, http: '1.1' }),
};
