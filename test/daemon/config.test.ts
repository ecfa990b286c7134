// The configuration: every variable, valid and invalid; where values come from; what refuses the start.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createLeafKey, mintLeaf } from '../../ca/leaf.ts';
import { createRoot } from '../../ca/root-material.ts';
import { formatConfigurationPage } from '../../daemon/config-docs.ts';
import { SETTINGS, type SettingName } from '../../daemon/config-schema.ts';
import { knownFlags, knownVariables, resolveSetting } from '../../daemon/config-source.ts';
import { loadClientConfig, loadConfig, type LoadOptions } from '../../daemon/config.ts';
import { StartError } from '../../model/errors.ts';
import { Secret } from '../../model/secret.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const TOKEN = 'k'.repeat(32);

function load(env: Record<string, string> = {}, options: LoadOptions = {}) {
  return loadConfig({ env, flags: {}, cwd: '/srv', execArgv: [], ...options });
}

function failureOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof StartError) return error.message;
    throw error;
  }
  return 'no error';
}

interface Case {
  readonly valid: readonly (readonly [text: string, value: unknown])[];
  readonly invalid: readonly string[];
}

const SWITCH: Case = {
  valid: [
    ['on', true],
    ['off', false],
  ],
  invalid: ['', 'ON', 'true', '1', 'on '],
};
const PATH: Case = { valid: [['/x/y', '/x/y']], invalid: ['', 'a\0b'] };
const hosts = (text: string, patterns: string[]) => [text, patterns] as const;
const HOSTS: Case = {
  valid: [hosts('', []), hosts('A.Example.com., *.b.example', ['a.example.com', '*.b.example'])],
  invalid: ['*', 'a,,b', 'http://a', 'a:443', 'a b', '[::1]'],
};
const count = (min: number, max: number): Case => ({
  valid: [
    [String(min), min],
    [String(max), max],
  ],
  invalid: ['', '-1', '1.5', '1e3', String(max + 1), ...(min > 0 ? [String(min - 1)] : [])],
});

const CASES: Readonly<Record<SettingName, Case>> = {
  dataDir: PATH,
  masterKey: {
    valid: [
      [KEY, 32],
      [KEY.replace('=', ''), 32],
    ],
    invalid: ['', 'abc', KEY.slice(4), `${KEY}AAAA`, KEY.replace('B', '_')],
  },
  masterKeysPrevious: { valid: [[`${KEY},${KEY}`, 2]], invalid: [`${KEY},`, 'x'] },
  logLevel: {
    valid: [
      ['debug', 'debug'],
      ['silent', 'silent'],
    ],
    invalid: ['', 'trace', 'INFO'],
  },
  workers: count(1, 64),
  drainSeconds: count(0, 3600),
  adminListen: {
    valid: [
      ['127.0.0.1:0', { host: '127.0.0.1', port: 0 }],
      ['[::1]:7081', { host: '::1', port: 7081 }],
      ['localhost:1', { host: 'localhost', port: 1 }],
    ],
    invalid: ['', '7081', ':7081', '127.0.0.1', '127.0.0.1:65536', '::1:80', '127.0.0.1:x', 'http://127.0.0.1:1'],
  },
  adminToken: { valid: [[TOKEN, 32]], invalid: ['', 'k'.repeat(31), `${TOKEN} x`, `${TOKEN}é`] },
  adminHosts: HOSTS,
  adminTlsCertFile: PATH,
  adminTlsKeyFile: PATH,
  adminInsecure: SWITCH,
  metricsPublic: SWITCH,
  proxyListen: { valid: [['0.0.0.0:7080', { host: '0.0.0.0', port: 7080 }]], invalid: ['', '0.0.0.0'] },
  advertisedProxyUrl: {
    valid: [
      ['http://keyveil:7080', 'http://keyveil:7080'],
      ['https://k.example/', 'https://k.example'],
    ],
    invalid: ['', 'keyveil:7080', 'ftp://x', 'http://u:p@x', 'http://x/path', 'http://x?q'],
  },
  proxyTlsCertFile: PATH,
  proxyTlsKeyFile: PATH,
  interceptionOn: SWITCH,
  passthroughHosts: HOSTS,
  sessionTtlSeconds: count(1, 315_360_000),
  reservedNames: {
    valid: [
      ['', []],
      ['A,_b', ['A', '_b']],
    ],
    invalid: ['1A', 'A-B', 'A,,B'],
  },
  defaultNetworking: {
    valid: [
      ['unrestricted', { type: 'unrestricted' }],
      ['none', { type: 'limited', allowedHosts: [], allowPackageManagers: false }],
      ['a.example', { type: 'limited', allowedHosts: ['a.example'], allowPackageManagers: false }],
    ],
    invalid: ['', ' ', '*', 'a b'],
  },
  allowedPorts: {
    valid: [
      ['*', 'every'],
      ['443, 8443', new Set([443, 8443])],
    ],
    invalid: ['', '0', '65536', '443;80', '443,'],
  },
  allowedPrivateCidrs: {
    valid: [
      ['', 0],
      ['10.0.0.0/8,fd00::/8', 2],
    ],
    invalid: ['10.0.0.1/8', '10.0.0.0', '10.0.0.0/33', 'x'],
  },
  upstreamOverrides: {
    valid: [
      ['', []],
      ['Api.example.com:443=10.0.0.5:9443', [['api.example.com:443', { host: '10.0.0.5', port: 9443 }]]],
    ],
    invalid: ['a.example=b.example', 'a:1', 'a:1=b:2=c:3', 'a:1=b:2,a:1=c:3', 'a:0=b:1'],
  },
  upstreamCaFile: PATH,
  upstreamProxy: {
    valid: [
      ['http://proxy.example:3128', { scheme: 'http', host: 'proxy.example', port: 3128, authorization: null }],
      [
        'https://us%40er:p%3Aw@proxy.example',
        {
          scheme: 'https',
          host: 'proxy.example',
          port: 443,
          authorization: `Basic ${Buffer.from('us@er:p:w').toString('base64')}`,
        },
      ],
    ],
    invalid: ['', 'proxy.example:3128', 'socks5://x:1', 'http://x:1/path', 'http://hunter2:%zz@x:1'],
  },
  upstreamNoProxy: HOSTS,
  bodyBufferBytes: {
    valid: [
      ['1024', 1024],
      ['4MiB', 4 << 20],
      ['1 kib', 1024],
    ],
    invalid: ['', '1023', '1MB', '-1', '1.5MiB', 'x'],
  },
  bodyMemoryBytes: { valid: [['64KiB', 65_536]], invalid: ['1KiB'] },
  spoolBytes: {
    valid: [
      ['0', 0],
      ['4GiB', 4 * 2 ** 30],
    ],
    invalid: ['9999999TiB'],
  },
  swapGrowthBytes: { valid: [['1MiB', 1 << 20]], invalid: ['0'] },
  veilOn: SWITCH,
  veilIdleMs: count(1, 10_000),
  auditRetentionDays: count(1, 36_500),
  auditBytesMax: { valid: [['1GiB', 2 ** 30]], invalid: ['1KiB'] },
  sessionRequestsMax: { valid: [['256', 256]], invalid: ['', '0', 'off'] },
  sessionRequestsPerSecond: {
    valid: [
      ['off', null],
      ['100', 100],
    ],
    invalid: ['', '0', 'none'],
  },
  denialLimit: {
    valid: [
      ['off', null],
      ['20', 20],
    ],
    invalid: ['', '0', 'none'],
  },
  url: { valid: [['https://k.example:7081/', 'https://k.example:7081']], invalid: ['k.example', ''] },
};

/** What a test compares: domain types in plain form. */
function plain(value: unknown): unknown {
  if (value instanceof Secret) return value.byteLength;
  if (value instanceof Map) return [...value];
  if (Array.isArray(value)) return value.length > 0 && typeof value[0] !== 'string' ? value.length : value;
  if (typeof value !== 'object' || value === null) return value;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- several domain types are looked into
  const fields = value as Record<string, any>;
  if ('patterns' in fields) return fields['patterns'];
  if ('authority' in fields) {
    const { scheme, authority, authorization } = fields;
    return { scheme, ...authority, authorization: authorization?.reveal().toString() ?? null };
  }
  return value;
}

void t.test(
  'every setting takes what is valid and refuses what is not, in one line with its name and an example',
  async (t) => {
    for (const [name, cases] of Object.entries(CASES) as [SettingName, Case][]) {
      const { variable, example } = SETTINGS[name];
      const resolve = (text: string) => resolveSetting(name, { env: { [variable]: text }, flags: {}, cwd: '/srv' });
      for (const [text, expected] of cases.valid) {
        const empty = name === 'allowedPrivateCidrs' && text === '' ? [] : expected;
        t.same(plain(resolve(text)), empty, `${variable}=${text}`);
      }
      for (const text of cases.invalid) {
        const message = failureOf(() => resolve(text));
        t.ok(message.startsWith(`${variable} `), `${variable}=${text} is refused by name: ${message}`);
        t.ok(message.includes(`${variable}=${example}`), `${variable}=${text} is answered with an example`);
        t.notMatch(message, /[\r\n]|hunter2/, 'it is one line and quotes no password');
      }
      if (!example.startsWith('$(')) t.doesNotThrow(() => resolve(example), `the example of ${variable} is valid`);
    }
  },
);

void t.test('defaults apply, and the data directory is absolute', async (t) => {
  const config = load();
  t.equal(config.dataDir, '/srv/data');
  t.same(config.proxyListen, { host: '127.0.0.1', port: 7080 });
  t.same(config.adminListen, { host: '127.0.0.1', port: 7081 });
  t.same(config.allowedPorts, new Set([80, 443, 8080, 8443]));
  t.same(
    [config.interceptionOn, config.veilOn, config.adminInsecure, config.metricsPublic],
    [true, true, false, false],
  );
  t.same(
    [config.adminToken, config.masterKey, config.adminTls, config.proxyTls, config.upstreamCaPem],
    [null, null, null, null, null],
  );
  t.same(config.warnings, []);
});

void t.test('a flag goes before the environment, and an error names the flag', async (t) => {
  const env = { KEYVEIL_PROXY_LISTEN: '127.0.0.1:1' };
  t.equal(load(env, { flags: { 'proxy-listen': '127.0.0.1:2' } }).proxyListen.port, 2);
  t.equal(load(env).proxyListen.port, 1);
  t.equal(
    failureOf(() => load(env, { flags: { 'proxy-listen': 'x' } })),
    '--proxy-listen must be host:port, not "x" (for example --proxy-listen=0.0.0.0:7080)',
  );
});

void t.test('a secret comes from its file before its variable, and never from a flag of its own', async (t) => {
  const folder = t.testdir({ token: `${'f'.repeat(40)}\n`, short: 'hunter2' });
  const env = { KEYVEIL_ADMIN_TOKEN: TOKEN, KEYVEIL_ADMIN_TOKEN_FILE: join(folder, 'token') };
  t.equal(load(env).adminToken?.reveal().toString(), 'f'.repeat(40), 'without its line end');
  t.equal(
    load({ KEYVEIL_ADMIN_TOKEN_FILE: 'token' }, { cwd: folder }).adminToken?.byteLength,
    40,
    'relative to the working directory',
  );
  t.equal(load({}, { flags: { 'admin-token-file': join(folder, 'token') } }).adminToken?.byteLength, 40);
  const short = failureOf(() => load({ KEYVEIL_ADMIN_TOKEN_FILE: join(folder, 'short') }));
  t.match(short, /^The content of .*short \(KEYVEIL_ADMIN_TOKEN_FILE\) must have at least 32 characters/);
  t.notMatch(short, 'hunter2');
  t.match(
    failureOf(() => load({ KEYVEIL_MASTER_KEY_FILE: '/nowhere/key' })),
    /^KEYVEIL_MASTER_KEY_FILE names the file \/nowhere\/key.*ENOENT/,
  );
  t.notOk(
    knownFlags().includes('admin-token') ||
      knownFlags().includes('master-key') ||
      knownFlags().includes('upstream-proxy'),
  );
});

void t.test('an unknown variable is refused with the nearest name; those of Kubernetes are not ours', async (t) => {
  t.equal(
    failureOf(() => load({ KEYVEIL_PROXY_LISTN: 'x' })),
    'KEYVEIL_PROXY_LISTN is not a variable of Keyveil: did you mean KEYVEIL_PROXY_LISTEN?',
  );
  t.match(
    failureOf(() => load({ KEYVEIL_QQQQQQQQQQQQQQQQQQ: 'x' })),
    /docs\/configuration\.md/,
  );
  t.doesNotThrow(() =>
    load({
      KEYVEIL_SERVICE_HOST: '10.0.0.1',
      KEYVEIL_SERVICE_PORT: '7080',
      KEYVEIL_SERVICE_PORT_PROXY: '7080',
      KEYVEIL_PORT: 'tcp://10.0.0.1:7080',
      KEYVEIL_PORT_7080_TCP: 'tcp://10.0.0.1:7080',
      KEYVEIL_PORT_7080_TCP_ADDR: '10.0.0.1',
      PATH: '/bin',
    }),
  );
  for (const name of ['KEYVEIL_PORT', 'KEYVEIL_PROXY_PORT', 'KEYVEIL_ADMIN_PORT']) {
    t.equal(
      failureOf(() => load({ [name]: '9999' })),
      `${name} is not a variable of Keyveil: ports are set by KEYVEIL_PROXY_LISTEN and KEYVEIL_ADMIN_LISTEN`,
    );
    t.doesNotThrow(() => load({ [name]: 'udp://10.0.0.1:7080' }), `a service of that name: ${name}`);
  }
  t.equal(new Set(knownVariables()).size, knownVariables().length, 'no variable stands in the table twice');
});

void t.test('a runtime that would undo a guarantee refuses the start', async (t) => {
  for (const [env, execArgv, expected] of [
    [{ NODE_TLS_REJECT_UNAUTHORIZED: '0' }, [], /^NODE_TLS_REJECT_UNAUTHORIZED=0/],
    [{ SSLKEYLOGFILE: '/tmp/keys' }, [], /^SSLKEYLOGFILE/],
    [{ NODE_OPTIONS: '--max-old-space-size=99 --tls-keylog=/tmp/keys' }, [], /^--tls-keylog/],
    [{ NODE_OPTIONS: '"--tls-keylog" /tmp/keys' }, [], /^--tls-keylog/],
    [{}, ['--tls-keylog=/tmp/keys'], /^--tls-keylog/],
    [{ NODE_OPTIONS: '--insecure-http-parser' }, [], /^--insecure-http-parser/],
    [{}, ['--insecure_http_parser'], /^--insecure-http-parser/],
    [{}, ['--trace-tls'], /^--trace-tls/],
    [{ NODE_DEBUG: 'stream' }, [], /^NODE_DEBUG makes/],
    [{ NODE_DEBUG_NATIVE: 'tls' }, [], /^NODE_DEBUG_NATIVE makes/],
    [{}, ['--inspect'], /^--inspect .*inspector/],
    [{ NODE_OPTIONS: '--inspect=127.0.0.1:0' }, [], /^--inspect .*inspector/],
    [{}, ['--inspect-brk=9229'], /^--inspect-brk /],
    [{}, ['--inspect_wait'], /^--inspect-wait /],
    [{ NODE_OPTIONS: '--report-on-fatalerror' }, [], /^--report-on-fatalerror .*environment/],
    [{}, ['--report-on-signal'], /^--report-on-signal /],
    [{}, ['--report_uncaught_exception'], /^--report-uncaught-exception /],
    [{}, ['--heapsnapshot-signal=SIGUSR2'], /^--heapsnapshot-signal .*heap snapshot/],
    [{ NODE_OPTIONS: '--heapsnapshot-near-heap-limit=2' }, [], /^--heapsnapshot-near-heap-limit /],
  ] as const) {
    t.match(
      failureOf(() => load(env, { execArgv })),
      expected,
    );
  }
  t.doesNotThrow(() => load({ NODE_TLS_REJECT_UNAUTHORIZED: '1', NODE_OPTIONS: '--enable-source-maps' }));
  t.doesNotThrow(() => load({ NODE_DEBUG: '' }, { execArgv: ['--no-report-on-signal', '--cpu-prof'] }));
});

void t.test('an admin API beyond loopback needs TLS or the explicit word; a proxy beyond loopback warns', async (t) => {
  t.match(
    failureOf(() => load({ KEYVEIL_ADMIN_LISTEN: '0.0.0.0:7081' })),
    /KEYVEIL_ADMIN_LISTEN=0\.0\.0\.0:7081.*KEYVEIL_ADMIN_INSECURE=on/,
  );
  t.match(
    failureOf(() => load({ KEYVEIL_ADMIN_LISTEN: '[2001:db8::1]:7081' })),
    /\[2001:db8::1\]:7081/,
  );
  for (const listen of ['localhost:7081', '[::1]:7081', '127.9.9.9:7081'])
    t.doesNotThrow(() => load({ KEYVEIL_ADMIN_LISTEN: listen }));
  t.match(load({ KEYVEIL_ADMIN_LISTEN: '0.0.0.0:7081', KEYVEIL_ADMIN_INSECURE: 'on' }).warnings, [
    /admin API listens on 0\.0\.0\.0:7081/,
  ]);
  t.match(load({ KEYVEIL_PROXY_LISTEN: '0.0.0.0:7080' }).warnings, [
    /session tokens cross that network in clear/,
    /KEYVEIL_ADVERTISED_PROXY_URL/,
  ]);
  t.match(
    failureOf(() => load({ KEYVEIL_PROXY_LISTEN: '127.0.0.1:7081' })),
    /both 127\.0\.0\.1:7081/,
  );
  t.match(
    failureOf(() => load({ KEYVEIL_BODY_BUFFER_BYTES: '65MiB' })),
    /^KEYVEIL_BODY_BUFFER_BYTES .* KEYVEIL_BODY_MEMORY_BYTES/,
  );
});

void t.test('TLS files and roots are read, checked against each other, and named when they are wrong', async (t) => {
  const folder = t.testdir({ junk: 'junk' });
  const at = (name: string) => join(folder, name);
  const issuer = createRoot('Test CA', Date.now()).issuer;
  for (const name of ['a', 'b']) {
    const key = createLeafKey();
    writeFileSync(at(`${name}.key`), key.privateKeyPem);
    writeFileSync(at(`${name}.crt`), mintLeaf('localhost', { issuer, key, now: Date.now() }).certificatePem);
  }
  const tls = (cert: string, key: string) => ({
    KEYVEIL_ADMIN_TLS_CERT_FILE: at(cert),
    KEYVEIL_ADMIN_TLS_KEY_FILE: at(key),
  });
  const config = load({ ...tls('a.crt', 'a.key'), KEYVEIL_ADMIN_LISTEN: '0.0.0.0:7081' });
  t.equal(config.adminTls?.certPem, readFileSync(at('a.crt'), 'utf8'));
  t.equal(config.adminTls?.keyPem.reveal().toString(), readFileSync(at('a.key'), 'utf8'));
  t.match(
    failureOf(() => load(tls('a.crt', 'b.key'))),
    /^KEYVEIL_ADMIN_TLS_CERT_FILE and KEYVEIL_ADMIN_TLS_KEY_FILE are not/,
  );
  t.match(
    failureOf(() => load(tls('junk', 'a.key'))),
    /are not a PEM certificate and its key/,
  );
  t.match(
    failureOf(() => load(tls('a.crt', 'none'))),
    /^KEYVEIL_ADMIN_TLS_KEY_FILE names the file .*ENOENT/,
  );
  t.match(
    failureOf(() => load({ KEYVEIL_PROXY_TLS_CERT_FILE: at('a.crt') })),
    /^KEYVEIL_PROXY_TLS_CERT_FILE is set without KEYVEIL_PROXY_TLS_KEY_FILE/,
  );
  t.match(
    failureOf(() => load({ KEYVEIL_PROXY_TLS_KEY_FILE: at('a.key') })),
    /^KEYVEIL_PROXY_TLS_KEY_FILE is set without/,
  );
  const proxyTls = { KEYVEIL_PROXY_TLS_CERT_FILE: at('a.crt'), KEYVEIL_PROXY_TLS_KEY_FILE: at('a.key') };
  t.same(
    load({ ...proxyTls, KEYVEIL_PROXY_LISTEN: '10.0.0.1:7080' }).warnings,
    [],
    'with TLS the proxy warns of nothing',
  );
  writeFileSync(at('roots'), `# words\n${readFileSync(at('a.crt'), 'utf8')}${readFileSync(at('b.crt'), 'utf8')}`);
  t.equal(load({ KEYVEIL_UPSTREAM_CA_FILE: at('roots') }).upstreamCaPem?.match(/BEGIN CERTIFICATE/g)?.length, 2);
  t.match(
    failureOf(() => load({ KEYVEIL_UPSTREAM_CA_FILE: at('junk') })),
    /^KEYVEIL_UPSTREAM_CA_FILE names the file .*certificates in PEM/,
  );
});

void t.test('no printed form of a configuration holds a secret', async (t) => {
  const { inspect } = await import('node:util');
  const config = load({
    KEYVEIL_ADMIN_TOKEN: `${TOKEN}hunter2`,
    KEYVEIL_MASTER_KEY: KEY,
    KEYVEIL_UPSTREAM_PROXY: 'http://u:hunter2@p.example:1',
  });
  for (const text of [inspect(config, { depth: 9, showHidden: true }), JSON.stringify(config)]) {
    t.notMatch(text, /hunter2/);
    t.notOk(text.includes(KEY) || text.includes(Buffer.from('u:hunter2').toString('base64')));
  }
});

void t.test('the commands read only what they need', async (t) => {
  const client = loadClientConfig({
    env: { KEYVEIL_URL: 'http://127.0.0.1:9', KEYVEIL_PROXY_LISTEN: 'junk' },
    flags: { 'data-dir': 'd' },
    cwd: '/srv',
  });
  t.same({ ...client }, { dataDir: '/srv/d', url: 'http://127.0.0.1:9', adminToken: null, adminTokenOrigin: null });
});

void t.test('docs/configuration.md is what the schema says', async (t) => {
  t.equal(readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8'), formatConfigurationPage());
});

void t.test("the size of the runtime's thread pool is known where it was set", async (t) => {
  const sizeOf = (text: string): number | null => load({ UV_THREADPOOL_SIZE: text }).threadPoolSize;
  t.strictSame(['32', '0', '5000', 'many', ''].map(sizeOf), [32, 1, 1024, null, null]);
});

void t.test('files of certificates are complained of by the flag that named them', async (t) => {
  for (const flags of [
    { 'upstream-ca-file': '/none' },
    { 'admin-tls-cert-file': '/none', 'admin-tls-key-file': '/none' },
    { 'proxy-tls-cert-file': '/none' },
    { 'upstream-ca-file': import.meta.filename },
  ]) {
    const [flag = ''] = Object.keys(flags);
    t.throws(() => loadConfig({ env: {}, flags, cwd: '/', execArgv: [] }), {
      name: 'StartError',
      message: new RegExp(`^--${flag} `),
    });
  }
});
