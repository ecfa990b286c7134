// Every rule of every field, its valid and its invalid side: status, type, code and param of the answer.
import t, { test, type Test } from 'tap';
import { authWith, startAdminApi, type Answer } from '../support/admin-api.ts';

const api = await startAdminApi(t);
const { call, clock } = api;

const SECRET = 'ntn_real_value_0123456789';

async function createVault(): Promise<string> {
  return (await call('POST', '/v1/vaults', { body: { display_name: 'v' } })).body.id as string;
}

/** What is wrong: the code, the param, and, where it is not 400, the status. */
type Fault = readonly [code: string, param: string | undefined, status?: number];

const TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  404: 'not_found_error',
  409: 'conflict_error',
};

/** Checks an answer against what is expected: null for a good one. */
function check(t: Test, answer: Answer, row: { readonly name: string; readonly fault: Fault | null }): void {
  if (row.fault === null) {
    t.equal(answer.status, 200, `${row.name}: ${answer.text.slice(0, 200)}`);
    return;
  }
  const [code, param, status = 400] = row.fault;
  t.match(
    { status: answer.status, ...answer.body, id: answer.headers.get('request-id') },
    {
      status,
      type: 'error',
      error: { type: TYPES[status], code, message: String },
      request_id: answer.headers.get('request-id'),
    },
    row.name,
  );
  t.equal(answer.body.error?.param, param, `${row.name}: param`);
  t.notOk(answer.text.includes(SECRET), `${row.name}: no secret in the answer`);
  t.equal(answer.headers.get('x-should-retry'), status === 409 ? 'false' : null);
}

type Row = readonly [name: string, body: unknown, fault: Fault | null];

/** Sends each row's body to a path. */
async function runRows(t: Test, path: string | (() => Promise<string>), rows: readonly Row[]): Promise<void> {
  for (const [name, body, fault] of rows) {
    const url = typeof path === 'string' ? path : await path();
    check(t, await call('POST', url, { body }), { name, fault });
  }
}

const pairs = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, 'v']));

const METADATA_ROWS: readonly Row[] = [
  ['16 pairs', { metadata: pairs(16) }, null],
  ['17 pairs', { metadata: pairs(17) }, ['invalid_field', 'metadata']],
  ['a key of 64 characters', { metadata: { ['k'.repeat(64)]: 'v' } }, null],
  ['a key of 65 characters', { metadata: { ['k'.repeat(65)]: 'v' } }, ['invalid_field', 'metadata']],
  ['an empty key', { metadata: { '': 'v' } }, ['invalid_field', 'metadata']],
  ['a value of 512 characters', { metadata: { k: '😀'.repeat(512) } }, null],
  ['a value of 513 characters', { metadata: { k: 'v'.repeat(513) } }, ['invalid_field', 'metadata.k']],
  ['an empty value', { metadata: { k: '' } }, null],
  ['a value that is a number', { metadata: { k: 1 } }, ['invalid_field', 'metadata.k']],
  ['metadata that is null', { metadata: null }, ['invalid_field', 'metadata']],
  ['metadata that is a list', { metadata: [] }, ['invalid_field', 'metadata']],
];

const withFields = (rows: readonly Row[], fields: object): Row[] =>
  rows.map(([name, body, fault]) => [name, { ...fields, ...(body as object) }, fault]);

test('fields of a new vault', async (t) => {
  await runRows(t, '/v1/vaults', [
    ['a name of 1 character', { display_name: 'x' }, null],
    ['a name of 255 characters', { display_name: '😀'.repeat(255) }, null],
    ['a name of 256 characters', { display_name: 'x'.repeat(256) }, ['invalid_field', 'display_name']],
    ['an empty name', { display_name: '' }, ['invalid_field', 'display_name']],
    ['no name', {}, ['missing_field', 'display_name']],
    ['a name that is null', { display_name: null }, ['invalid_field', 'display_name']],
    ['a name that is a number', { display_name: 7 }, ['invalid_field', 'display_name']],
    ['half a surrogate pair', '{"display_name":"\\ud800"}', ['invalid_field', 'display_name']],
    ['an unknown field', { display_name: 'x', colour: 'red', size: 1 }, ['unknown_field', 'colour']],
    ['a body that is a list', [], ['invalid_request', undefined]],
    ['a body that is null', 'null', ['invalid_request', undefined]],
    ['no body', undefined, ['invalid_request', undefined]],
    ['an empty body', '', ['invalid_request', undefined]],
    ...withFields(METADATA_ROWS, { display_name: 'x' }),
  ]);
});

test('updates of a vault', async (t) => {
  const id = await createVault();
  await runRows(t, `/v1/vaults/${id}`, [
    ['nothing at all', {}, null],
    ['a new name', { display_name: 'y' }, null],
    ['a name that is null', { display_name: null }, ['invalid_field', 'display_name']],
    ['deleting a key that is not there', { metadata: { none: null } }, null],
    ['16 pairs', { metadata: pairs(16) }, null],
    ['one pair more than there is room for', { metadata: { more: 'm' } }, ['invalid_field', 'metadata']],
    ['one pair for another', { metadata: { more: 'm', k0: null } }, null],
    ['an id', { id: 'vlt_x' }, ['unknown_field', 'id']],
  ]);
  check(t, await call('POST', '/v1/vaults/vlt_none', { body: {} }), {
    name: 'no vault',
    fault: ['not_found', undefined, 404],
  });
  await call('POST', `/v1/vaults/${id}/archive`);
  await runRows(t, `/v1/vaults/${id}`, [['an archived vault', { display_name: 'z' }, ['archived', undefined]]]);
  await runRows(t, `/v1/vaults/${id}/archive`, [
    ['an empty object', {}, null],
    ['an unknown field', { force: true }, ['unknown_field', 'force']],
  ]);
});

const limited = (hosts: unknown) => ({ networking: { type: 'limited', allowed_hosts: hosts } });
const AUTH = 'auth.networking.allowed_hosts';
const seventeen = Array.from({ length: 17 }, (_, index) => `h${index}.example.com`);

const AUTH_ROWS: readonly (readonly [name: string, changes: Record<string, unknown>, fault: Fault | null])[] = [
  ['a good one', {}, null],
  ['no type', { type: undefined }, ['missing_field', 'auth.type']],
  ['static_bearer', { type: 'static_bearer', token: SECRET }, ['unsupported_auth_type', 'auth.type']],
  ['mcp_oauth', { type: 'mcp_oauth', access_token: SECRET }, ['unsupported_auth_type', 'auth.type']],
  ['a name of 128 characters', { secret_name: `_${'a'.repeat(127)}` }, null],
  ['a name of 129 characters', { secret_name: `_${'a'.repeat(128)}` }, ['invalid_field', 'auth.secret_name']],
  ['a name that begins with a digit', { secret_name: '1A' }, ['invalid_field', 'auth.secret_name']],
  ['a name with a hyphen', { secret_name: 'A-B' }, ['invalid_field', 'auth.secret_name']],
  ['a name with a line break at its end', { secret_name: 'A\n' }, ['invalid_field', 'auth.secret_name']],
  ['no name', { secret_name: undefined }, ['missing_field', 'auth.secret_name']],
  ['a reserved name', { secret_name: 'PATH' }, ['secret_name_reserved', 'auth.secret_name']],
  ['a reserved name in lower case', { secret_name: 'node_options' }, ['secret_name_reserved', 'auth.secret_name']],
  ['a reserved prefix', { secret_name: 'ld_preload' }, ['secret_name_reserved', 'auth.secret_name']],
  ['a proxy variable', { secret_name: 'https_proxy' }, ['secret_name_reserved', 'auth.secret_name']],
  ['a CA variable', { secret_name: 'SSL_CERT_FILE' }, ['secret_name_reserved', 'auth.secret_name']],
  ["the operator's reserved name", { secret_name: 'operator_reserved' }, ['secret_name_reserved', 'auth.secret_name']],
  ['a name that only looks reserved', { secret_name: 'PATHS' }, null],
  ['no value', { secret_value: undefined }, ['missing_field', 'auth.secret_value']],
  ['an empty value', { secret_value: '' }, ['invalid_field', 'auth.secret_value']],
  ['a value that is null', { secret_value: null }, ['invalid_field', 'auth.secret_value']],
  ['a value that is a number', { secret_value: 12345678 }, ['invalid_field', 'auth.secret_value']],
  ['a value of 32,768 bytes', { secret_value: 'é'.repeat(16_384) }, null],
  ['a value of 32,770 bytes', { secret_value: 'é'.repeat(16_385) }, ['invalid_field', 'auth.secret_value']],
  [
    'a value with NUL',
    { secret_value: `${SECRET}\0`, injection_location: { body: true } },
    ['invalid_field', 'auth.secret_value'],
  ],
  [
    'a value with LF for headers',
    { secret_value: `${SECRET}\n` },
    ['secret_value_not_header_safe', 'auth.secret_value'],
  ],
  [
    'a value with CR for headers',
    { secret_value: `${SECRET}\r` },
    ['secret_value_not_header_safe', 'auth.secret_value'],
  ],
  [
    'a value with DEL for headers',
    { secret_value: `${SECRET}\x7f` },
    ['secret_value_not_header_safe', 'auth.secret_value'],
  ],
  ['a value with LF for bodies', { secret_value: `${SECRET}\n`, injection_location: { body: true } }, null],
  ['no networking', { networking: undefined }, ['missing_field', 'auth.networking']],
  ['networking that is null', { networking: null }, ['invalid_field', 'auth.networking']],
  [
    'networking without type',
    { networking: { allowed_hosts: ['a.example.com'] } },
    ['missing_field', 'auth.networking.type'],
  ],
  ['networking of another type', { networking: { type: 'open' } }, ['invalid_field', 'auth.networking.type']],
  ['unrestricted', { networking: { type: 'unrestricted' } }, null],
  ['unrestricted with hosts', { networking: { type: 'unrestricted', allowed_hosts: [] } }, ['unknown_field', AUTH]],
  ['no hosts', { networking: { type: 'limited' } }, ['missing_field', AUTH]],
  ['an empty list', limited([]), ['invalid_field', AUTH]],
  ['16 hosts', limited(seventeen.slice(1)), null],
  ['17 hosts', limited(seventeen), ['invalid_field', AUTH]],
  ['an IPv4 address', limited(['203.0.113.9']), null],
  ['a wildcard', limited(['*.example.com']), null],
  ['an IDN', limited(['bücher.example']), null],
  ['a private suffix', limited(['*.github.io']), null],
  ['a public suffix', limited(['a.example.com', '*.com']), ['host_too_broad', `${AUTH}.1`]],
  ['a public suffix of two labels', limited(['*.co.uk']), ['host_too_broad', `${AUTH}.0`]],
  ['a public suffix that is an IDN', limited(['*.рф']), ['host_too_broad', `${AUTH}.0`]],
  ['a public suffix by a wildcard rule', limited(['*.foo.ck']), ['host_too_broad', `${AUTH}.0`]],
  ['a top-level name that is in no list', limited(['*.nosuchtld']), ['host_too_broad', `${AUTH}.0`]],
  ['a local name', limited(['*.internal']), null],
  ['a scheme', limited(['https://a.example.com']), ['invalid_field', `${AUTH}.0`]],
  ['a port', limited(['a.example.com:443']), ['invalid_field', `${AUTH}.0`]],
  ['a path', limited(['a.example.com/x']), ['invalid_field', `${AUTH}.0`]],
  ['IPv6', limited(['[2001:db8::1]']), ['invalid_field', `${AUTH}.0`]],
  ['a bare wildcard', limited(['*']), ['invalid_field', `${AUTH}.0`]],
  ['a wildcard in the middle', limited(['a.*.example.com']), ['invalid_field', `${AUTH}.0`]],
  ['a host that is no string', limited([1]), ['invalid_field', `${AUTH}.0`]],
  ['header alone', { injection_location: { header: true } }, null],
  ['body alone', { injection_location: { body: true } }, null],
  ['both', { injection_location: { header: true, body: true } }, null],
  ['neither', { injection_location: {} }, ['invalid_field', 'auth.injection_location']],
  ['both false', { injection_location: { header: false, body: false } }, ['invalid_field', 'auth.injection_location']],
  ['a location that is null', { injection_location: null }, ['invalid_field', 'auth.injection_location']],
  [
    'a header that is null',
    { injection_location: { header: null, body: true } },
    ['invalid_field', 'auth.injection_location.header'],
  ],
  ['another location', { injection_location: { query: true } }, ['unknown_field', 'auth.injection_location.query']],
  ['a prefix', { placeholder_prefix: 'ntn_' }, null],
  ['an empty prefix', { placeholder_prefix: '' }, null],
  ['a prefix of 33 characters', { placeholder_prefix: 'p'.repeat(33) }, ['invalid_field', 'auth.placeholder_prefix']],
  ['a prefix with a space', { placeholder_prefix: 'a b' }, ['invalid_field', 'auth.placeholder_prefix']],
  ['an unknown field', { secret: SECRET }, ['unknown_field', 'auth.secret']],
];

test('auth of a new credential', async (t) => {
  let vaultId = '';
  for (const [index, [name, changes, fault]] of AUTH_ROWS.entries()) {
    if (index % 15 === 0) vaultId = await createVault();
    const auth = authWith({ secret_name: `NAME_${index}`, ...changes });
    check(t, await call('POST', `/v1/vaults/${vaultId}/credentials`, { body: { auth } }), { name, fault });
  }
  await runRows(t, async () => `/v1/vaults/${await createVault()}/credentials`, [
    ['no auth', {}, ['missing_field', 'auth']],
    ['auth that is null', { auth: null }, ['invalid_field', 'auth']],
    ['a display_name', { auth: authWith(), display_name: 'd' }, null],
    ['a display_name that is null', { auth: authWith(), display_name: null }, null],
    ['an empty display_name', { auth: authWith(), display_name: '' }, ['invalid_field', 'display_name']],
    ...withFields(METADATA_ROWS, { auth: authWith() }),
  ]);
});

test('an omitted injection_location means the header; a given one says all', async (t) => {
  const path = `/v1/vaults/${await createVault()}/credentials`;
  const rows: readonly [unknown, { header: boolean; body: boolean }][] = [
    [undefined, { header: true, body: false }],
    [{ body: true }, { header: false, body: true }],
    [{ header: true }, { header: true, body: false }],
    [
      { header: true, body: true },
      { header: true, body: true },
    ],
  ];
  for (const [index, [injection_location, expected]] of rows.entries()) {
    const { body } = await call('POST', path, {
      body: { auth: authWith({ secret_name: `N${index}`, injection_location }) },
    });
    t.strictSame(body.auth.injection_location, expected);
  }
});

test('warnings of a credential', async (t) => {
  const path = `/v1/vaults/${await createVault()}/credentials`;
  const rows: readonly [Record<string, unknown>, string[]][] = [
    [{}, []],
    [{ secret_value: '15 bytes of txt' }, ['low_entropy_value']],
    [{ secret_value: '1234567890123456789' }, ['low_entropy_value']],
    [{ secret_value: 'seven b' }, ['low_entropy_value', 'value_not_veiled']],
    [limited(['*.github.io', 'api.github.com']), ['private_suffix_wildcard']],
  ];
  let id = '';
  for (const [index, [changes, expected]] of rows.entries()) {
    const { body } = await call('POST', path, { body: { auth: authWith({ secret_name: `N${index}`, ...changes }) } });
    t.strictSame(body.warnings, expected);
    id = body.id;
  }
  const rotated = await call('POST', `${path}/${id}`, { body: { auth: { secret_value: 'short' } } });
  t.strictSame(rotated.body.warnings, ['low_entropy_value', 'value_not_veiled', 'private_suffix_wildcard']);
});

test('updates of a credential', async (t) => {
  const path = `/v1/vaults/${await createVault()}/credentials`;
  const { body } = await call('POST', path, { body: { auth: authWith({ placeholder_prefix: 'ntn_' }) } });
  t.match(body.auth.placeholder, /^ntn_kvph_[0-9A-Za-z]{32}$/);
  const auth = (fields: unknown) => ({ auth: fields });
  await runRows(t, `${path}/${body.id}`, [
    ['nothing', {}, null],
    ['an empty auth', auth({}), null],
    ['the type it has', auth({ type: 'environment_variable' }), null],
    ['another type', auth({ type: 'static_bearer', token: SECRET }), ['unsupported_auth_type', 'auth.type']],
    ['auth that is null', { auth: null }, ['invalid_field', 'auth']],
    ['its own name', auth({ secret_name: 'NOTION_API_KEY' }), ['immutable_field', 'auth.secret_name']],
    ['another name', auth({ secret_name: 'OTHER' }), ['immutable_field', 'auth.secret_name']],
    ['another prefix', auth({ placeholder_prefix: 'x_' }), ['immutable_field', 'auth.placeholder_prefix']],
    ['a value that is null', auth({ secret_value: null }), ['invalid_field', 'auth.secret_value']],
    ['an empty value', auth({ secret_value: '' }), ['invalid_field', 'auth.secret_value']],
    ['networking that is null', auth({ networking: null }), ['invalid_field', 'auth.networking']],
    ['networking in part', auth({ networking: { type: 'limited' } }), ['missing_field', AUTH]],
    ['networking that is too broad', auth(limited(['*.com'])), ['host_too_broad', `${AUTH}.0`]],
    ['a location that is null', auth({ injection_location: null }), ['invalid_field', 'auth.injection_location']],
    ['an empty location', auth({ injection_location: {} }), null],
    [
      'the only location off',
      auth({ injection_location: { header: false } }),
      ['invalid_field', 'auth.injection_location'],
    ],
    [
      'a value with LF for the header it goes to',
      auth({ secret_value: `${SECRET}\n` }),
      ['secret_value_not_header_safe', 'auth.secret_value'],
    ],
    [
      'a value with LF and the header off',
      auth({ secret_value: `${SECRET}\n`, injection_location: { header: false, body: true } }),
      null,
    ],
    [
      'the header on for a value with LF',
      auth({ injection_location: { header: true } }),
      ['secret_value_not_header_safe', 'auth.secret_value'],
    ],
    [
      'the header on with a value that is safe',
      auth({ secret_value: SECRET, injection_location: { header: true } }),
      null,
    ],
    ['an unknown field', auth({ nope: 1 }), ['unknown_field', 'auth.nope']],
    ['a display_name that is null', { display_name: null }, null],
  ]);
  const { body: after } = await call('GET', `${path}/${body.id}`);
  t.match(after.auth, {
    injection_location: { header: true, body: true },
    secret_version: 3,
    placeholder: body.auth.placeholder,
  });

  const elsewhere = `/v1/vaults/${await createVault()}/credentials/${body.id}`;
  for (const method of ['GET', 'DELETE']) {
    check(t, await call(method, elsewhere), {
      name: `${method} under another vault`,
      fault: ['not_found', undefined, 404],
    });
  }
  for (const url of [elsewhere, `${elsewhere}/archive`]) {
    check(t, await call('POST', url, { body: {} }), { name: `POST ${url}`, fault: ['not_found', undefined, 404] });
  }
  await call('POST', `${path}/${body.id}/archive`);
  await runRows(t, `${path}/${body.id}`, [['an archived credential', { display_name: 'z' }, ['archived', undefined]]]);
});

test('names are unique among the active credentials of a vault, and 20 of them fill it', async (t) => {
  const vaultId = await createVault();
  const path = `/v1/vaults/${vaultId}/credentials`;
  const create = (secret_name: string) => call('POST', path, { body: { auth: authWith({ secret_name }) } });
  const first = await create('TAKEN');
  check(t, await create('TAKEN'), { name: 'taken', fault: ['secret_name_taken', 'auth.secret_name', 409] });
  check(t, await create('taken'), { name: 'another case is another name', fault: null });
  await call('POST', `${path}/${first.body.id}/archive`);
  check(t, await create('TAKEN'), { name: 'free again after the archive', fault: null });
  for (let index = 2; index < 20; index += 1) check(t, await create(`N${index}`), { name: `N${index}`, fault: null });
  check(t, await create('ONE_MORE'), { name: 'full', fault: ['vault_full', undefined] });
  await call('POST', `/v1/vaults/${vaultId}/archive`);
  check(t, await create('LATE'), { name: 'an archived vault', fault: ['archived', undefined] });
  check(t, await call('POST', '/v1/vaults/vlt_none/credentials', { body: { auth: authWith() } }), {
    name: 'no vault',
    fault: ['not_found', undefined, 404],
  });
});

test('environments', async (t) => {
  const config = (fields: unknown) => ({ name: 'e', config: fields });
  const networking = (fields: unknown) => config({ type: 'cloud', networking: fields });
  const NET = 'config.networking';
  await runRows(t, '/v1/environments', [
    ['a name alone', { name: 'e' }, null],
    ['no name', {}, ['missing_field', 'name']],
    ['an empty name', { name: '' }, ['invalid_field', 'name']],
    ['a description that is null', { name: 'e', description: null }, null],
    [
      'a description of 2,049 characters',
      { name: 'e', description: 'x'.repeat(2049) },
      ['invalid_field', 'description'],
    ],
    ['config that is null', config(null), null],
    ['a self-hosted one', config({ type: 'self_hosted' }), ['invalid_field', 'config.type']],
    ['unrestricted', networking({ type: 'unrestricted' }), null],
    [
      'unrestricted with hosts',
      networking({ type: 'unrestricted', allowed_hosts: ['a.example'] }),
      ['unknown_field', `${NET}.allowed_hosts`],
    ],
    ['limited to nothing', networking({ type: 'limited' }), null],
    [
      'nulls',
      networking({ type: 'limited', allowed_hosts: null, allow_package_managers: null, allow_mcp_servers: null }),
      null,
    ],
    ['no type', networking({ allowed_hosts: [] }), ['missing_field', `${NET}.type`]],
    ['another type', networking({ type: 'open' }), ['invalid_field', `${NET}.type`]],
    [
      '256 hosts',
      networking({ type: 'limited', allowed_hosts: Array.from({ length: 256 }, (_, i) => `h${i}.example`) }),
      null,
    ],
    [
      '257 hosts',
      networking({ type: 'limited', allowed_hosts: Array.from({ length: 257 }, (_, i) => `h${i}.example`) }),
      ['invalid_field', `${NET}.allowed_hosts`],
    ],
    [
      'a bad host',
      networking({ type: 'limited', allowed_hosts: ['a.example:1'] }),
      ['invalid_field', `${NET}.allowed_hosts.0`],
    ],
    ['a broad wildcard, which guards no secret', networking({ type: 'limited', allowed_hosts: ['*.com'] }), null],
    ['MCP servers off', networking({ type: 'limited', allow_mcp_servers: false }), null],
    [
      'MCP servers',
      networking({ type: 'limited', allow_mcp_servers: true }),
      ['invalid_field', `${NET}.allow_mcp_servers`],
    ],
    ['empty packages', config({ type: 'cloud', packages: { type: 'packages', apt: [], pip: null } }), null],
    ['packages', config({ type: 'cloud', packages: { pip: ['requests'] } }), ['invalid_field', 'config.packages.pip']],
    [
      'packages of another kind',
      config({ type: 'cloud', packages: { brew: [] } }),
      ['unknown_field', 'config.packages.brew'],
    ],
    ['the scope of an organization', { name: 'e', scope: 'organization' }, null],
    ['a scope that is null', { name: 'e', scope: null }, null],
    ['the scope of an account', { name: 'e', scope: 'account' }, ['invalid_field', 'scope']],
    ['private ranges', config({ type: 'cloud', allowed_private_cidrs: ['10.1.0.0/16', 'fd00::/8'] }), null],
    [
      'a range with bits past its prefix',
      config({ type: 'cloud', allowed_private_cidrs: ['10.1.0.1/16'] }),
      ['invalid_field', 'config.allowed_private_cidrs.0'],
    ],
    [
      'an address',
      config({ type: 'cloud', allowed_private_cidrs: ['10.1.0.1'] }),
      ['invalid_field', 'config.allowed_private_cidrs.0'],
    ],
    ...withFields(METADATA_ROWS, { name: 'e' }),
  ]);

  const { body: open } = await call('POST', '/v1/environments', { body: { name: 'open' } });
  await runRows(t, `/v1/environments/${open.id}`, [
    [
      'hosts without the type that they need',
      { config: { networking: { allowed_hosts: ['a.example'] } } },
      ['invalid_field', 'config.networking.type'],
    ],
    ['a name that is null', { name: null }, ['invalid_field', 'name']],
    [
      'MCP servers',
      { config: { networking: { allow_mcp_servers: true } } },
      ['invalid_field', 'config.networking.allow_mcp_servers'],
    ],
    ['limited', { config: { networking: { type: 'limited', allowed_hosts: ['a.example'] } } }, null],
    ['package managers alone', { config: { networking: { allow_package_managers: true } } }, null],
    ['private ranges alone', { config: { allowed_private_cidrs: ['10.0.0.0/8'] } }, null],
  ]);
  t.strictSame((await call('GET', `/v1/environments/${open.id}`)).body.config, {
    type: 'cloud',
    networking: {
      type: 'limited',
      allowed_hosts: ['a.example'],
      allow_package_managers: true,
      allow_mcp_servers: false,
    },
    packages: { type: 'packages', apt: [], cargo: [], gem: [], go: [], npm: [], pip: [] },
    allowed_private_cidrs: ['10.0.0.0/8'],
  });

  const session = await call('POST', '/v1/sessions', { body: { vault_ids: [], environment_id: open.id } });
  check(t, await call('DELETE', `/v1/environments/${open.id}`), {
    name: 'in use',
    fault: ['environment_in_use', undefined, 409],
  });
  await call('POST', `/v1/environments/${open.id}/archive`);
  t.equal((await call('GET', `/v1/sessions/${session.body.id}`)).body.status, 'active', 'running sessions keep it');
  await runRows(t, '/v1/sessions', [
    ['an archived environment', { vault_ids: [], environment_id: open.id }, ['environment_archived', 'environment_id']],
  ]);
  await runRows(t, `/v1/environments/${open.id}`, [
    ['an archived environment', { name: 'x' }, ['archived', undefined]],
  ]);
  await call('POST', `/v1/sessions/${session.body.id}/archive`);
  check(t, await call('DELETE', `/v1/environments/${open.id}`), { name: 'no longer in use', fault: null });
});

test('fields of a new session', async (t) => {
  const vaultId = await createVault();
  const archivedVault = await createVault();
  await call('POST', `/v1/vaults/${archivedVault}/archive`);
  const fifty = await Promise.all(Array.from({ length: 51 }, createVault));
  const make = (fields: object) => ({ vault_ids: [], ...fields });
  await runRows(t, '/v1/sessions', [
    ['no vaults', make({}), null],
    ['vault_ids left out', {}, ['missing_field', 'vault_ids']],
    ['50 vaults', { vault_ids: fifty.slice(1) }, null],
    ['51 vaults', { vault_ids: fifty }, ['invalid_field', 'vault_ids']],
    ['a vault twice', { vault_ids: [vaultId, vaultId] }, ['invalid_field', 'vault_ids.1']],
    ['an unknown vault', { vault_ids: ['vlt_none'] }, ['not_found', 'vault_ids.0', 404]],
    ['an unknown vault behind a known one', { vault_ids: [vaultId, 'vlt_none'] }, ['not_found', 'vault_ids.1', 404]],
    ['an archived vault', { vault_ids: [archivedVault] }, ['vault_archived', 'vault_ids.0']],
    ['an unknown environment', make({ environment_id: 'env_none' }), ['not_found', 'environment_id', 404]],
    ['an environment that is null', make({ environment_id: null }), null],
    ['a title', make({ title: 't' }), null],
    ['a title that is null', make({ title: null }), null],
    ['a title of 256 characters', make({ title: 'x'.repeat(256) }), ['invalid_field', 'title']],
    ['no end', make({ expires_in: null }), null],
    ['an end in one second', make({ expires_in: 1 }), null],
    ['an end now', make({ expires_in: 0 }), ['invalid_field', 'expires_in']],
    ['an end in half a second', make({ expires_in: 1.5 }), ['invalid_field', 'expires_in']],
    ['an end in a century', make({ expires_in: 3_155_760_000 }), ['invalid_field', 'expires_in']],
    ['a directory', make({ ca_directory: '/run/my ca' }), null],
    ['a relative directory', make({ ca_directory: 'run/ca' }), ['invalid_field', 'ca_directory']],
    ['a directory with a quote', make({ ca_directory: "/run/'ca" }), ['invalid_field', 'ca_directory']],
    ['a directory with a line break', make({ ca_directory: '/run/ca\nX=1' }), ['invalid_field', 'ca_directory']],
    ['a directory with a command', make({ ca_directory: '/run/$(id)' }), ['invalid_field', 'ca_directory']],
    ['a denial limit', make({ denial_limit: 5 }), null],
    ['a denial limit of 0', make({ denial_limit: 0 }), ['invalid_field', 'denial_limit']],
    ['an unknown field', make({ vaults: [] }), ['unknown_field', 'vaults']],
    ...withFields(METADATA_ROWS, { vault_ids: [] }),
  ]);

  const { body } = await call('POST', '/v1/sessions', { body: { vault_ids: [] } });
  await runRows(t, `/v1/sessions/${body.id}`, [
    ['a title', { title: 'new' }, null],
    ['a title that is null', { title: null }, null],
    ['other vaults', { vault_ids: [vaultId] }, ['immutable_field', 'vault_ids']],
    ['another environment', { environment_id: null }, ['immutable_field', 'environment_id']],
    ['an end', { expires_in: 60 }, null],
    ['an unknown field', { status: 'active' }, ['unknown_field', 'status']],
  ]);
  t.equal((await call('GET', `/v1/sessions/${body.id}`)).body.expires_at, new Date(clock.now() + 60_000).toISOString());
  await runRows(t, `/v1/sessions/${body.id}/resume`, [['not suspended', {}, ['session_not_suspended', undefined]]]);
  await call('POST', `/v1/sessions/${body.id}/archive`);
  await runRows(t, `/v1/sessions/${body.id}`, [['an archived session', { title: 'x' }, ['archived', undefined]]]);
  for (const step of ['rotate_token', 'resume']) {
    await runRows(t, `/v1/sessions/${body.id}/${step}`, [[`${step} when archived`, {}, ['archived', undefined]]]);
  }
});

test('admin tokens and the emergency stop', async (t) => {
  await runRows(t, '/v1/admin_tokens', [
    ['an admin', { name: 'a', scope: 'admin' }, null],
    ['a broker with an end', { name: 'b', scope: 'broker', expires_in: 60 }, null],
    ['an auditor without an end', { name: 'c', scope: 'auditor', expires_in: null }, null],
    ['no name', { scope: 'admin' }, ['missing_field', 'name']],
    ['no scope', { name: 'a' }, ['missing_field', 'scope']],
    ['another scope', { name: 'a', scope: 'root' }, ['invalid_field', 'scope']],
    ['an end in the past', { name: 'a', scope: 'admin', expires_in: -1 }, ['invalid_field', 'expires_in']],
  ]);
  await runRows(t, '/v1/emergency_stop', [
    ['a stop', { active: true, reason: 'incident 7' }, null],
    ['no word of active', { reason: 'x' }, ['missing_field', 'active']],
    ['active that is no boolean', { active: 'yes' }, ['invalid_field', 'active']],
  ]);
  t.strictSame((await call('GET', '/v1/emergency_stop')).body, {
    type: 'emergency_stop',
    active: true,
    reason: 'incident 7',
  });
  await runRows(t, '/v1/emergency_stop', [['lifting it', { active: false }, null]]);
  t.strictSame((await call('GET', '/v1/emergency_stop')).body, { type: 'emergency_stop', active: false, reason: null });
  check(t, await call('DELETE', '/v1/admin_tokens/adtk_none'), {
    name: 'no token',
    fault: ['not_found', undefined, 404],
  });
});

test('query parameters of lists', async (t) => {
  const lists = [
    '/v1/vaults',
    `/v1/vaults/${await createVault()}/credentials`,
    '/v1/environments',
    '/v1/sessions',
    '/v1/admin_tokens',
    '/v1/audit_events',
  ];
  for (const list of lists) {
    const rows: readonly [string, Fault | null][] = [
      ['', null],
      ['?beta=true', null],
      ['?limit=1', null],
      ['?limit=100', null],
      ['?limit=0', ['invalid_field', 'limit']],
      ['?limit=101', ['invalid_field', 'limit']],
      ['?limit=1e1', ['invalid_field', 'limit']],
      ['?limit=1&limit=2', ['invalid_field', 'limit']],
      ['?page=nonsense', ['invalid_page', 'page']],
      ['?order=asc', ['unknown_field', 'order']],
    ];
    for (const [query, fault] of rows) check(t, await call('GET', list + query), { name: list + query, fault });
  }
  check(t, await call('GET', '/v1/vaults?include_archived=true'), { name: 'include_archived', fault: null });
  check(t, await call('GET', '/v1/vaults?include_archived=1'), {
    name: 'include_archived=1',
    fault: ['invalid_field', 'include_archived'],
  });
  check(t, await call('GET', '/v1/vaults/vlt_none/credentials'), {
    name: 'no vault',
    fault: ['not_found', undefined, 404],
  });
  const { body } = await call('GET', '/v1/vaults?limit=1');
  check(t, await call('GET', `/v1/sessions?page=${body.next_page}`), {
    name: "another list's page",
    fault: ['invalid_page', 'page'],
  });
});
