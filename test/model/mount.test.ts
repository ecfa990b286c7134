// Mounting: precedence, failures and warnings; the variables of a sandbox; and the names that no credential may take.
import { test } from 'tap';
import { KeyveilError } from '../../model/errors.ts';
import { createHostSet } from '../../model/host-pattern.ts';
import { decideMounts, type MountCredential, type MountInput, type MountSettings } from '../../model/mount.ts';
import type { EnvironmentNetworking } from '../../model/networking.ts';
import {
  CA_BUNDLE_VARIABLES,
  CA_VARIABLES,
  CLIENT_SETTINGS,
  createReservedNameCheck,
  NO_PROXY_VARIABLES,
  PROXY_VARIABLES,
  RESERVED_NAMES,
  RESERVED_PREFIXES,
} from '../../model/reserved-names.ts';
import type { Mount } from '../../model/session.ts';
import { buildEnvironmentVariables } from '../../model/startup-context.ts';

const SETTINGS: MountSettings = {
  interceptionOn: true,
  isReserved: createReservedNameCheck([]),
  passthroughHosts: createHostSet(['pinned.example', '*.relayed.example']),
};
const OPEN: EnvironmentNetworking = { type: 'unrestricted' };

function limitedTo(...allowedHosts: string[]): EnvironmentNetworking {
  return { type: 'limited', allowedHosts, allowPackageManagers: false };
}

function credential(id: string, secretName: string, overrides: Partial<MountCredential> = {}): MountCredential {
  return {
    id: `vcrd_${id}`,
    vaultId: 'vlt_one',
    displayName: null,
    secretName,
    placeholder: `kvph_${id}`,
    injectionLocation: { header: true, body: false },
    networking: { type: 'limited', allowedHosts: ['api.example'] },
    secretVersion: 1,
    rotatedAt: null,
    lastUsedAt: null,
    metadata: {},
    createdAt: 0,
    updatedAt: 0,
    archivedAt: null,
    valueByteLength: 40,
    ...overrides,
  };
}

function inVault(id: string, ...credentials: MountCredential[]): MountInput['vaults'][number] {
  return { id, credentials: credentials.map((each) => ({ ...each, vaultId: id })) };
}

function mount(vaults: MountInput['vaults'], changes: Partial<Omit<MountInput, 'vaults'>> = {}): string[] {
  return decide(vaults, changes).mounts.map(({ secretName, credentialId }) => `${secretName}=${credentialId}`);
}

function decide(vaults: MountInput['vaults'], changes: Partial<Omit<MountInput, 'vaults'>> = {}) {
  return decideMounts({ vaults, networking: OPEN, settings: SETTINGS, ...changes });
}

function warningsOf(allowedHosts: readonly string[], networking: EnvironmentNetworking): readonly string[] {
  const one = credential('a', 'KEY', { networking: { type: 'limited', allowedHosts } });
  return decide([inVault('vlt_one', one)], { networking }).warnings;
}

// ---- mounts

test('each name is mounted once, from the first vault that has it', (t) => {
  const one = inVault('vlt_one', credential('a', 'KEY'), credential('b', 'ONLY_ONE'));
  const two = inVault('vlt_two', credential('c', 'KEY'), credential('d', 'ONLY_TWO'));
  t.strictSame(mount([one, two]), ['KEY=vcrd_a', 'ONLY_ONE=vcrd_b', 'ONLY_TWO=vcrd_d']);
  t.strictSame(mount([two, one]), ['KEY=vcrd_c', 'ONLY_TWO=vcrd_d', 'ONLY_ONE=vcrd_b']);
  t.strictSame(decide([inVault('vlt_empty'), two]).mounts[0], {
    secretName: 'KEY',
    placeholder: 'kvph_c',
    vaultId: 'vlt_two',
    credentialId: 'vcrd_c',
  });
  t.strictSame(mount([inVault('vlt_one', credential('a', 'KEY'), credential('b', 'key'))]), [
    'KEY=vcrd_a',
    'key=vcrd_b',
  ]);
  t.strictSame(decide([]), { mounts: [], warnings: [] });
  t.end();
});

test('with interception off an active credential fails the mount, and no credential does not', (t) => {
  const settings = { ...SETTINGS, interceptionOn: false };
  t.throws(() => decide([inVault('vlt_empty'), inVault('vlt_one', credential('a', 'KEY'))], { settings }), {
    code: 'mitm_disabled',
    status: 400,
    param: 'vault_ids',
    message: /KEYVEIL_MITM=off.*\(KEY\).*KEYVEIL_MITM=on/,
  });
  const broken = credential('b', 'OLD', { placeholder: null });
  t.throws(
    () => decide([inVault('vlt_one', broken)], { settings }),
    { code: 'mitm_disabled' },
    'one that is broken too',
  );
  t.strictSame(decide([inVault('vlt_empty')], { settings }), { mounts: [], warnings: [] });
  t.end();
});

test('every credential that can’t be mounted is named on its own line, shadowed and reserved ones too', (t) => {
  const vaults = [
    inVault('vlt_one', credential('a', 'KEY'), credential('b', 'OLD', { injectionLocation: null })),
    inVault('vlt_two', credential('c', 'KEY', { placeholder: null }), credential('d', 'FINE')),
    inVault('vlt_three', credential('e', 'PATH', { placeholder: null, injectionLocation: null })),
  ];
  const line = (id: string, name: string, vault: string): string =>
    `Credential vcrd_${id} (${name}) in vault ${vault} has no placeholder or injection location and cannot be ` +
    'mounted. Archive it and create it again.';
  const error = t.throws(() => decide(vaults), { code: 'credential_not_mountable', status: 400, param: 'vault_ids' });
  t.ok(error instanceof KeyveilError);
  t.strictSame((error as Error).message.split('\n'), [
    line('b', 'OLD', 'vlt_one'),
    line('c', 'KEY', 'vlt_two'),
    line('e', 'PATH', 'vlt_three'),
  ]);
  t.end();
});

test('a name that became reserved is left out with a warning', (t) => {
  const settings = { ...SETTINGS, isReserved: createReservedNameCheck(['my_name']) };
  const vaults = [
    inVault('vlt_one', credential('a', 'MY_NAME'), credential('b', 'https_proxy'), credential('c', 'KEY')),
  ];
  const { mounts, warnings } = decide(vaults, { settings });
  t.strictSame(
    mounts.map(({ secretName }) => secretName),
    ['KEY'],
  );
  t.strictSame(warnings, [
    'name_reserved: MY_NAME (vcrd_a) is a reserved name now and was not mounted.',
    'name_reserved: https_proxy (vcrd_b) is a reserved name now and was not mounted.',
  ]);
  t.end();
});

test('an unrestricted credential in an unrestricted environment is warned of, and in a limited one not', (t) => {
  const vaults = [inVault('vlt_one', credential('a', 'KEY', { networking: { type: 'unrestricted' } }))];
  t.strictSame(decide(vaults).warnings, [
    'credential_unrestricted: KEY (vcrd_a) and the environment are both unrestricted: the sandbox can send this secret ' +
      'to any host.',
  ]);
  t.strictSame(decide(vaults, { networking: limitedTo('api.example') }).warnings, []);
  t.end();
});

test('each allowed host that the environment does not admit is warned of, also for a shadowed credential', (t) => {
  t.strictSame(warningsOf(['api.example', 'b.example'], OPEN), []);
  t.strictSame(warningsOf(['api.example', '*.b.example'], limitedTo('api.example', '*.b.example')), []);
  t.strictSame(warningsOf(['*.a.b.example'], limitedTo('*.b.example')), []);
  t.strictSame(warningsOf(['api.example', '*.b.example', 'b.example'], limitedTo('*.example.org', '*.b.example')), [
    "credential_host_unreachable: KEY (vcrd_a) allows api.example, which the session's environment does not admit.",
    "credential_host_unreachable: KEY (vcrd_a) allows b.example, which the session's environment does not admit.",
  ]);
  // `x.b.example` on the environment's list admits one host of the wildcard, whatever its name is.
  t.strictSame(warningsOf(['*.b.example'], limitedTo('x.b.example')), [
    "credential_host_unreachable: KEY (vcrd_a) allows *.b.example, which the session's environment admits only in part.",
  ]);
  const vaults = [inVault('vlt_one', credential('a', 'KEY')), inVault('vlt_two', credential('b', 'KEY'))];
  t.equal(decide(vaults, { networking: limitedTo() }).warnings.length, 2);
  const registries = { ...limitedTo(), allowPackageManagers: true } as const;
  t.strictSame(warningsOf(['registry.npmjs.org'], registries), []);
  t.end();
});

test('each allowed host that is relayed unread, wholly or in part, is warned of', (t) => {
  const rest = 'relayed unread (KEYVEIL_PASSTHROUGH_HOSTS), so nothing is swapped there.';
  t.strictSame(warningsOf(['pinned.example', 'api.relayed.example', '*.a.relayed.example', 'relayed.example'], OPEN), [
    `credential_host_passthrough: KEY (vcrd_a) allows pinned.example, which is ${rest}`,
    `credential_host_passthrough: KEY (vcrd_a) allows api.relayed.example, which is ${rest}`,
    `credential_host_passthrough: KEY (vcrd_a) allows *.a.relayed.example, which is ${rest}`,
  ]);
  t.strictSame(warningsOf(['*.example'], OPEN), [
    `credential_host_passthrough: KEY (vcrd_a) allows *.example, of which a part is ${rest}`,
  ]);
  t.equal(warningsOf(['pinned.example'], limitedTo()).length, 2, 'both faults of a host are told');
  t.end();
});

const LONG_BYTES = 32_000;
/** As many as can all be looked for in every form. */
const LONG_FIT = 14;

/** Numbers of the credentials that are warned of. */
function rawOnlyOf(patterns: readonly string[][], networking: EnvironmentNetworking = OPEN): number[] {
  const credentials = patterns.map((allowedHosts, index) =>
    credential(String(index + 100), `KEY_${index}`, {
      valueByteLength: LONG_BYTES + index,
      networking: allowedHosts.length === 0 ? { type: 'unrestricted' } : { type: 'limited', allowedHosts },
    }),
  );
  return decide([inVault('vlt_one', ...credentials)], { networking })
    .warnings.filter((warning) => warning.startsWith('veil_raw_only: '))
    .map((warning) =>
      Number(/^veil_raw_only: KEY_(\d+) \(vcrd_1\d\d\) is veiled in its raw form alone /.exec(warning)?.[1]),
    );
}

test('values of one host that are too long together to be veiled in every form are warned of', (t) => {
  const each = (count: number, ...hosts: string[]): string[][] => Array.from({ length: count }, () => hosts);
  t.strictSame(rawOnlyOf(each(LONG_FIT, 'api.example')), []);
  t.strictSame(rawOnlyOf(each(LONG_FIT + 1, 'api.example')), [LONG_FIT]);
  t.strictSame(rawOnlyOf([...each(LONG_FIT, 'api.example'), ...each(LONG_FIT, 'b.example')]), [], 'of two hosts');
  t.strictSame(rawOnlyOf([...each(LONG_FIT, 'a.b.example', 'api.example'), ['*.b.example']]), [LONG_FIT]);
  t.strictSame(rawOnlyOf([...each(LONG_FIT, '*.a.b.example'), ['*.b.example']]), [LONG_FIT]);
  t.strictSame(rawOnlyOf([...each(LONG_FIT, 'b.example'), ['*.b.example']]), [], 'a wildcard leaves its own name out');
  t.strictSame(rawOnlyOf([...each(LONG_FIT, 'api.example'), []], limitedTo('api.example')), [LONG_FIT]);
  t.strictSame(rawOnlyOf(each(LONG_FIT + 2)), [LONG_FIT, LONG_FIT + 1], 'all of them everywhere');
  t.strictSame(rawOnlyOf(each(LONG_FIT + 1, 'api.example'), limitedTo('b.example')), [], 'a host that is not admitted');
  t.end();
});

// ---- variables

const mounted: Mount = { secretName: 'KEY', placeholder: 'kvph_a', vaultId: 'vlt_one', credentialId: 'vcrd_a' };

function variables(mounts: readonly Mount[], token: string | null, caDirectory = '/etc/keyveil') {
  const session = { id: 'sesn_1', caDirectory, mounts };
  return buildEnvironmentVariables({ session, advertisedProxyUrl: 'http://127.0.0.1:7080', token });
}

test('a sandbox gets the proxy, the CA files, the clients’ settings and its placeholders', (t) => {
  const bundle = '/etc/keyveil/ca-bundle.pem';
  const proxy = 'http://sesn_1:t0ken@127.0.0.1:7080';
  t.strictSame(variables([mounted], 't0ken'), {
    HTTPS_PROXY: proxy,
    HTTP_PROXY: proxy,
    ALL_PROXY: proxy,
    https_proxy: proxy,
    http_proxy: proxy,
    all_proxy: proxy,
    NO_PROXY: 'localhost,127.0.0.1,::1',
    no_proxy: 'localhost,127.0.0.1,::1',
    NODE_EXTRA_CA_CERTS: '/etc/keyveil/ca.pem',
    SSL_CERT_FILE: bundle,
    CURL_CA_BUNDLE: bundle,
    REQUESTS_CA_BUNDLE: bundle,
    GIT_SSL_CAINFO: bundle,
    PIP_CERT: bundle,
    AWS_CA_BUNDLE: bundle,
    DENO_CERT: bundle,
    CARGO_HTTP_CAINFO: bundle,
    NPM_CONFIG_CAFILE: bundle,
    GRPC_DEFAULT_SSL_ROOTS_FILE_PATH: bundle,
    NODE_USE_ENV_PROXY: '1',
    GIT_HTTP_PROXY_AUTHMETHOD: 'basic',
    KEY: 'kvph_a',
  });
  t.end();
});

test('without the token the variables that hold it are left out, and no others', (t) => {
  const shown = variables([mounted], null);
  const whole = variables([mounted], 't0ken');
  t.strictSame(
    Object.keys(whole).filter((name) => !(name in shown)),
    [...PROXY_VARIABLES],
  );
  t.notMatch(JSON.stringify(shown), /sesn_1/);
  t.end();
});

test('a mount never overwrites a variable of the platform, and __proto__ is a name like any other', (t) => {
  const mounts = ['HTTPS_PROXY', 'no_proxy', 'NODE_USE_ENV_PROXY', 'SSL_CERT_FILE', '__proto__', 'constructor'].map(
    (secretName) => ({ ...mounted, secretName }),
  );
  const built = variables(mounts, 't0ken');
  t.strictSame(
    Object.entries(built).filter(([, value]) => value === 'kvph_a'),
    [
      ['__proto__', 'kvph_a'],
      ['constructor', 'kvph_a'],
    ],
  );
  t.end();
});

test('the proxy’s address keeps its scheme and port, and the CA directory loses its last slash', (t) => {
  const session = { id: 'sesn_1', caDirectory: '/ca//', mounts: [] };
  const build = (advertisedProxyUrl: string) => buildEnvironmentVariables({ session, advertisedProxyUrl, token: 't' });
  t.equal(build('https://proxy.internal:8443/').HTTPS_PROXY, 'https://sesn_1:t@proxy.internal:8443');
  t.equal(build('http://[::1]:7080').https_proxy, 'http://sesn_1:t@[::1]:7080');
  t.equal(build('http://host').NODE_EXTRA_CA_CERTS, '/ca/ca.pem');
  t.equal(variables([], 't', '/').SSL_CERT_FILE, '/ca-bundle.pem');
  t.end();
});

// ---- reserved names

test('documented names, their prefixes, and every variable that the platform sets are reserved in any case', (t) => {
  const isReserved = createReservedNameCheck([]);
  const documented = ['PATH', 'HOME', 'SHELL', 'USER', 'TMPDIR', 'IFS', 'ENV', 'BASH_ENV', 'NODE_OPTIONS', 'PYTHONPATH']
    .concat(['PYTHONSTARTUP', 'PERL5OPT', 'RUBYOPT', 'JAVA_TOOL_OPTIONS', 'GIT_SSH_COMMAND'])
    .concat(['LD_PRELOAD', 'LD_', 'DYLD_INSERT_LIBRARIES', 'KEYVEIL_MASTER_KEY', 'KEYVEIL_'])
    .concat(Object.keys(variables([], 't')), RESERVED_NAMES, RESERVED_PREFIXES);
  for (const name of documented)
    for (const spelling of [name, name.toLowerCase(), name.charAt(0).toLowerCase() + name.slice(1)])
      t.ok(isReserved(spelling), spelling);
  for (const name of ['NOTION_API_KEY', 'PATHS', 'MY_PATH', 'LD', 'OLD_KEY', 'KEYVEIL', 'XLD_PRELOAD', 'GITHUB_TOKEN'])
    t.notOk(isReserved(name), name);
  t.end();
});

test('the operator’s names are reserved too, in any case', (t) => {
  const isReserved = createReservedNameCheck(['Deploy_Key', 'OTHER']);
  for (const name of ['DEPLOY_KEY', 'deploy_key', 'Deploy_Key', 'other', 'PATH']) t.ok(isReserved(name), name);
  t.notOk(isReserved('DEPLOY_KEYS'));
  t.end();
});

test('the list of reserved names holds each name once, in upper case', (t) => {
  t.equal(new Set(RESERVED_NAMES).size, RESERVED_NAMES.length);
  for (const name of RESERVED_NAMES) t.equal(name, name.toUpperCase());
  const set = [...PROXY_VARIABLES, ...NO_PROXY_VARIABLES, ...CA_VARIABLES, ...CA_BUNDLE_VARIABLES];
  for (const name of [...set, ...Object.keys(CLIENT_SETTINGS)]) t.ok(RESERVED_NAMES.includes(name.toUpperCase()), name);
  t.end();
});
