// The OpenAPI document: complete, consistent, and good enough for a generated client; the docs page; lists in the docs.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Validator } from '@seriousme/openapi-schema-validator';
import openapiTypescript, { astToString } from 'openapi-typescript';
import t, { test } from 'tap';
import ts from 'typescript';
import { renderDocsPage } from '../../admin-api/docs-page.ts';
import { CredentialWarning } from '../../admin-api/schemas/credentials.ts';
import { errorTypeOf, statusOf, type ErrorCode } from '../../model/errors.ts';
import { PACKAGE_MANAGER_HOSTS } from '../../model/networking.ts';
import { RESERVED_NAMES, RESERVED_PREFIXES } from '../../model/reserved-names.ts';
import { startAdminApi } from '../support/admin-api.ts';

const api = await startAdminApi(t);
const root = join(import.meta.dirname, '..', '..');
const document = (await api.call('GET', '/openapi.json', { token: null })).body;

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly security?: unknown[];
  readonly parameters?: {
    readonly name: string;
    readonly in: string;
    readonly required: boolean;
    readonly schema: object;
  }[];
  readonly requestBody?: { readonly content: Record<string, { schema: object }> };
  readonly responses: Record<
    string,
    { readonly description: string; readonly content: Record<string, { schema: object }> }
  >;
}

const operations = Object.entries(document.paths as Record<string, Record<string, Operation>>).flatMap(
  ([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
);

function readDoc(name: string): string {
  return readFileSync(join(root, 'docs', name), 'utf8');
}

function referencesIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, child]) => (key === '$ref' ? [String(child)] : referencesIn(child)));
}

/** The codes that a response's description names. */
function codesOf(operation: Operation): ErrorCode[] {
  return Object.entries(operation.responses)
    .filter(([status]) => status !== '200')
    .flatMap(([, response]) => (response.description.split(': ')[1] ?? '').split(', ') as ErrorCode[]);
}

test('the document is OpenAPI 3.1 and describes every route and every error', (t) => {
  t.equal(document.openapi, '3.1.0');
  t.match(document.info, { title: String, version: '0.0.0-test', license: { identifier: 'Apache-2.0' } });
  t.strictSame(Object.keys(document.components.securitySchemes).sort(), ['apiKey', 'bearer']);
  t.equal(operations.length, 40);
  t.equal(new Set(operations.map(({ operation }) => operation.operationId)).size, operations.length);
  for (const { path, method, operation } of operations) {
    const name = `${method} ${path}`;
    const inPath = [...path.matchAll(/\{([a-z_]+)\}/g)].map((match) => match[1]);
    const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path');
    t.strictSame(
      declared.map((parameter) => parameter.name).sort(),
      inPath.sort(),
      `${name} declares its path parameters`,
    );
    t.ok(declared.every((parameter) => parameter.required));
    t.ok(operation.summary.length > 5);
    const statuses = Object.keys(operation.responses);
    const isPublic = operation.security?.length === 0;
    for (const status of isPublic ? ['200', '500', '503'] : ['200', '401', '403', '421', '429', '500', '503']) {
      t.ok(statuses.includes(status), `${name} has ${status}`);
    }
    if (operation.requestBody !== undefined)
      t.ok(statuses.includes('415') && statuses.includes('413'), `${name} has 413 and 415`);
    if (inPath.length > 0) t.ok(statuses.includes('404'), `${name} has 404`);
    for (const [status, response] of Object.entries(operation.responses)) {
      if (status === '200') continue;
      t.strictSame(response.content['application/json']?.schema, { $ref: '#/components/schemas/Error' });
      t.ok(response.description.startsWith(`${errorTypeOf(Number(status))}: `));
    }
    for (const code of codesOf(operation)) t.type(statusOf(code), 'number', `${code} is a code`);
  }
  t.end();
});

test('the document validates against the schema of OpenAPI 3.1', async (t) => {
  const validate = async (value: Record<string, unknown>): Promise<{ valid: boolean; errors?: unknown }> =>
    new Validator().validate(structuredClone(value));
  t.same(await validate(document), { valid: true });
  t.equal((await validate({ ...document, paths: { vaults: {} } })).valid, false, 'a wrong one does not');
});

test('every reference leads somewhere, and no schema is left over', (t) => {
  const references = new Set(referencesIn(document));
  const schemas = Object.keys(document.components.schemas).map((name) => `#/components/schemas/${name}`);
  t.strictSame([...references].sort(), schemas.sort());
  t.notMatch(JSON.stringify(document), /"\$(?:id|schema)"|Infinity|9007199254740991/);
  t.end();
});

test('a generated client compiles', async (t) => {
  const types = astToString(await openapiTypescript(document));
  const use = `
    type Body<P extends keyof paths> = paths[P] extends { post: { requestBody?: { content: { 'application/json': infer B } } } } ? B : never;
    type Answer<P extends keyof paths> = paths[P] extends { get: { responses: { 200: { content: { 'application/json': infer A } } } } } ? A : never;
    export const create: Body<'/v1/vaults/{vault_id}/credentials'> = {
      auth: { type: 'environment_variable', secret_name: 'A', secret_value: 'b', networking: { type: 'limited', allowed_hosts: ['a.example'] } },
    };
    export const names = (page: Answer<'/v1/vaults'>): string[] => page.data.map((vault) => vault.display_name);
    export const next = (page: Answer<'/v1/audit_events'>): string | null => page.next_page;
    // @ts-expect-error a vault needs a name
    export const wrong: Body<'/v1/vaults'> = {};
    export const codes: components['schemas']['Error']['error']['code'] = 'secret_name_taken';
  `;
  const fileName = join(root, 'test', 'admin-api', 'generated-client.ts');
  const options: ts.CompilerOptions = {
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    lib: ['lib.es5.d.ts'],
    types: [],
    target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.ESNext,
  };
  const host = ts.createCompilerHost(options);
  const readFile = host.getSourceFile.bind(host);
  host.getSourceFile = (name, target) =>
    name === fileName ? ts.createSourceFile(name, types + use, target) : readFile(name, target);
  const found = ts.getPreEmitDiagnostics(ts.createProgram([fileName], options, host));
  t.strictSame(
    found.map((diagnostic) => ts.flattenDiagnosticMessageText(diagnostic.messageText, '\n')),
    [],
  );
});

test('answers have the form that the document gives them', async (t) => {
  const required = (name: string) => document.components.schemas[name].required as string[];
  const { body: vault } = await api.call('POST', '/v1/vaults', { body: { display_name: 'v' } });
  t.strictSame(Object.keys(vault), required('Vault'));
  const { body: session } = await api.call('POST', '/v1/sessions', { body: { vault_ids: [vault.id] } });
  t.strictSame(Object.keys(session), required('Session'));
  const { body: environment } = await api.call('POST', '/v1/environments', { body: { name: 'e' } });
  t.strictSame(Object.keys(environment), required('Environment'));
});

test('the docs page shows every call, loads nothing and escapes what it shows', async (t) => {
  const page = await api.call('GET', '/docs', { token: null });
  t.equal(page.status, 200);
  t.equal(page.headers.get('content-type'), 'text/html; charset=utf-8');
  t.match(page.headers.get('content-security-policy'), /^default-src 'none'; .*style-src 'sha256-[^']+'$/);
  for (const { path } of operations) t.ok(page.text.includes(`<code>${path}</code>`), path);
  t.notMatch(page.text, /<script|<img|<link|https?:\/\//);
  const hostile = {
    info: { title: '<b>&"', version: '1' },
    paths: {},
    components: { schemas: { '<i>': '</pre><script>' } },
  };
  t.notMatch(renderDocsPage(hostile), /<b>|<i>|<script>/);
});

test('docs/admin-api.md names every call, code, warning and package registry', (t) => {
  const text = readDoc('admin-api.md');
  for (const { path, method } of operations) {
    const heading = `${method.toUpperCase()} ${path}`;
    t.ok(text.includes(`\`${heading}\``), heading);
  }
  const used = new Set(operations.flatMap(({ operation }) => codesOf(operation)));
  for (const code of ['header_too_large', 'method_not_allowed', 'not_found'] as const) used.add(code);
  const table = [...text.matchAll(/^\| `([a-z_]+)` \| (\d{3}) \|/gm)].map((match) => [match[1], Number(match[2])]);
  t.strictSame(table.sort(), [...used].map((code) => [code, statusOf(code)]).sort(), 'the table of codes');
  for (const warning of CredentialWarning.options) t.ok(text.includes(`\`${warning}\``), warning);
  const registries = /## Package registries\n([^]*?)\n## /.exec(text)?.[1] ?? '';
  t.strictSame(
    [...registries.matchAll(/`([a-z0-9.-]+)`/g)].map((match) => match[1]).sort(),
    [...PACKAGE_MANAGER_HOSTS].sort(),
  );
  t.end();
});

test('docs/vault-runtime.md has the reserved names and the failures of a mount', (t) => {
  const text = readDoc('vault-runtime.md');
  const reserved = /## Reserved names\n([^]*?)\n## /.exec(text)?.[1] ?? '';
  const names = [...reserved.matchAll(/`([A-Z0-9_]+)`/g)]
    .map((match) => match[1] ?? '')
    .filter((name) => name !== 'KEYVEIL_RESERVED_NAMES');
  t.strictSame(names.sort(), [...RESERVED_NAMES, ...RESERVED_PREFIXES].sort());
  const codesOfCall = (id: string) =>
    operations.filter(({ operation }) => operation.operationId === id).flatMap(({ operation }) => codesOf(operation));
  const common = new Set(codesOfCall('createVault'));
  const failures = codesOfCall('createSession').filter((code) => !common.has(code));
  for (const code of failures) t.ok(text.includes(`\`${code}\``), code);
  t.ok(failures.length >= 5);
  t.end();
});

test('the examples of docs/admin-api.md run as they stand', async (t) => {
  const blocks = [...readDoc('admin-api.md').matchAll(/^```sh\n([^]*?)^```/gm)].map((match) => match[1] ?? '').slice(1);
  t.ok(blocks.length >= 38);
  const folder = t.testdir();
  // Of jq, as much as the examples use, so that the test needs nothing but curl.
  const jq = `jq() { cat "\${3:--}" | grep -oE "\\"\${2##*.}\\":\\"[^\\"]+" | sed -n 1p | cut -d '"' -f 4; }`;
  const script = [jq, `KEYVEIL=${api.baseUrl}`, `TOKEN=${api.token}`, ...blocks, 'cp "$SANDBOX/ca.pem" .'].join('\n');
  const child = spawn('bash', ['-euo', 'pipefail', '-x', '-c', script], {
    cwd: folder,
    env: { ...process.env, TMPDIR: folder },
  });
  const output: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => output.push(chunk));
  const [code] = (await once(child, 'close')) as [number | null];
  t.equal(code, 0, Buffer.concat(output).toString().slice(-1500));
  t.equal(readFileSync(join(folder, 'ca.pem'), 'utf8'), 'CA PEM\n');
});
