// Fuzzes the admin API: every route of its document, with bodies and queries that nearly fit, and bodies that are no JSON.
import { startAdminApi, type AdminApi } from '../support/admin-api.ts';
import { below, mutateText, pick, type FuzzTarget, type Random } from './target.ts';

interface Schema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly oneOf?: readonly Schema[];
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
}

interface Operation {
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly schema: Schema }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> };
}

interface Input {
  readonly method: string;
  /** With `{…}` for what is put in when it is sent. */
  readonly path: string;
  /** JSON, or nearly; Latin-1 bytes. */
  readonly body: string | null;
  readonly contentType: string;
}

/** Stands in every secret value that is sent, and must be in no answer and no log line. */
const MARK = 'never-to-be-seen-0987';
const CHECK_EVERY = 25;
const TIMEOUT_MS = 20_000;
// It does not end by itself.
const STREAM = '/v1/audit_events/stream';
const STRINGS = [
  '',
  'a',
  'A_NAME',
  'PATH',
  'api.example.com',
  '*.example.com',
  '*',
  '127.0.0.1',
  '10.0.0.0/8',
  '::/0',
  'unrestricted',
  'limited',
  'environment_variable',
  '__proto__',
  'constructor',
  '\0',
  '\ud800',
  '\u202e\u0007',
  'é\u{1f600}',
  '2026-01-01T00:00:00Z',
  '-1',
  'x'.repeat(300),
  'x'.repeat(40_000),
];
const VALUES = [null, true, false, 0, -1, 1, 1.5, 1e308, 2 ** 53, -0, [], {}, [[]], { a: 1 }, ...STRINGS];
const TOKENS = [
  '"',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  '\\',
  '\\u0000',
  '\\ud800',
  'null',
  '1e999',
  '\xff',
  '\0',
  '__proto__',
];
const TYPES = [
  'application/json',
  'application/json',
  'application/json; charset=utf-8',
  'text/plain',
  '',
  'multipart/form-data; boundary=x',
];

function makeObject({ properties = {}, required = [], additionalProperties }: Schema, random: Random): unknown {
  const entries = Object.entries(properties)
    .filter(([name]) => random() < (required.includes(name) ? 0.97 : 0.6))
    .map(([name, child]) => [name, name === 'secret_value' ? makeSecret(random) : makeValue(child, random)]);
  const isOpen = typeof additionalProperties === 'object';
  while (random() < (isOpen ? 0.5 : 0.04)) {
    entries.push([pick(STRINGS, random), isOpen ? makeValue(additionalProperties, random) : pick(VALUES, random)]);
  }
  return Object.fromEntries(entries) as unknown;
}

function makeSecret(random: Random): unknown {
  return random() < 0.9
    ? `${MARK}${pick(['', '\n', '"\\', '\0', 'é', 'x'.repeat(40_000)], random)}`
    : pick([null, 1, ''], random);
}

/** A value that fits the schema, or one that does not. */
function makeValue(schema: Schema, random: Random): unknown {
  if (random() < 0.06) return pick(VALUES, random);
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices !== undefined) return makeValue(pick(choices, random), random);
  if (schema.enum !== undefined) return pick(schema.enum, random);
  if (schema.const !== undefined) return schema.const;
  switch (schema.type) {
    case 'object':
      return makeObject(schema, random);
    case 'array':
      return Array.from({ length: below(random() < 0.05 ? 400 : 4, random) }, () =>
        makeValue(schema.items ?? {}, random),
      );
    case 'boolean':
      return random() < 0.5;
    case 'integer':
    case 'number':
      return pick([0, 1, 20, 100, 3600, 1e9, -1, 2 ** 53], random);
    case 'string':
      return pick(STRINGS.slice(0, -2), random);
    default:
      return pick(VALUES, random);
  }
}

class AdminTarget implements FuzzTarget {
  readonly #api: AdminApi;
  readonly #close: () => Promise<void>;
  readonly #operations: readonly { method: string; path: string; operation: Operation }[];
  /** Ids of objects that were made, by the name of their path parameter. */
  readonly #ids = new Map<string, string[]>();
  #count = 0;

  constructor(api: AdminApi, operations: AdminTarget['operations'], close: () => Promise<void>) {
    this.#api = api;
    this.#operations = operations;
    this.#close = close;
  }

  get operations(): readonly { method: string; path: string; operation: Operation }[] {
    return this.#operations;
  }

  make(random: Random): Input {
    const { method, path, operation } = pick(this.#operations, random);
    const query = (operation.parameters ?? [])
      .filter((parameter) => parameter.in === 'query' && random() < 0.5)
      .map(
        ({ name, schema }) =>
          `${name}=${encodeURIComponent(String(makeValue(schema, random)).replace(/[\ud800-\udfff]/g, ''))}`,
      );
    const filled = path.replace(/\{[a-z_]+\}/g, (name) =>
      random() < 0.9 ? name : encodeURIComponent(pick(['x', '%', '..', 'ü'], random)),
    );
    const schema = Object.values(operation.requestBody?.content ?? {})[0]?.schema;
    const hasBody = method !== 'get' && (schema !== undefined || random() < 0.2);
    const value = makeValue(schema ?? {}, random);
    // Ids in bodies stand for objects that there are.
    const text = JSON.stringify(value).replaceAll(
      /"(vault|environment)_ids?":\s*(\["?[^\]]*\]|"[^"]*")/g,
      (whole, kind) =>
        random() < 0.8
          ? kind === 'vault'
            ? '"vault_ids":["{vault_id}"]'
            : '"environment_id":"{environment_id}"'
          : whole,
    );
    const body = Buffer.from(text).toString('latin1');
    return {
      method,
      path: query.length === 0 ? filled : `${filled}?${query.join('&')}`,
      body: hasBody ? (random() < 0.25 ? mutateText(body, TOKENS, random) : body) : null,
      contentType: random() < 0.9 ? 'application/json' : pick(TYPES, random),
    };
  }

  async attempt(input: unknown): Promise<string | null> {
    const { method, path, body, contentType } = input as Input;
    const known = (text: string): string =>
      text.replaceAll(/\{([a-z_]+_id)\}/g, (whole, name: string) => this.#ids.get(name)?.at(-1) ?? whole);
    const response = await fetch(this.#api.baseUrl + encodeURI(known(path)).replaceAll('%25', '%'), {
      method: method.toUpperCase(),
      headers: {
        'x-api-key': this.#api.token,
        ...(body === null || contentType === '' ? {} : { 'content-type': contentType }),
      },
      body: body === null ? null : Buffer.from(known(body), 'latin1'),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await response.text();
    const lines = (this.#api.logLines as string[]).splice(0);
    if (response.status >= 500) return `answered ${response.status} ${text}\n${lines.join('\n')}`;
    if (text.includes(MARK)) return `a secret value was answered: ${text}`;
    if (lines.some((line) => line.includes(MARK))) return `a secret value was logged: ${lines.join('\n')}`;
    if (response.status === 200 && method === 'post') this.#learn(path, text);
    this.#count += 1;
    return this.#count % CHECK_EVERY === 0 ? this.#checkServing() : null;
  }

  #learn(path: string, text: string): void {
    const { id, type } = JSON.parse(text) as { id?: unknown; type?: string };
    if (typeof id !== 'string' || type === undefined || !path.endsWith('s')) return;
    const name = `${type}_id`;
    const ids = this.#ids.get(name) ?? [];
    ids.push(id);
    this.#ids.set(name, ids.slice(-50));
  }

  async #checkServing(): Promise<string | null> {
    const { status, text } = await this.#api.call('POST', '/v1/vaults', { body: { display_name: 'check' } });
    return status === 200 ? null : `a valid request was answered ${status} ${text}`;
  }

  close(): Promise<void> {
    return this.#close();
  }
}

export async function openAdminTarget(): Promise<FuzzTarget> {
  const closers: (() => unknown)[] = [];
  const api = await startAdminApi({ teardown: (close: () => unknown) => closers.push(close) });
  const { paths } = (await api.call('GET', '/openapi.json', { token: null })).body as {
    paths: Record<string, Record<string, Operation>>;
  };
  const operations = Object.entries(paths)
    .filter(([path]) => path !== STREAM)
    .flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ method, path, operation })));
  return new AdminTarget(api, operations, async () => {
    for (const close of closers) await close();
  });
}
