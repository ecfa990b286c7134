// The /docs page: one static HTML page that is rendered from the OpenAPI document, with no script and nothing from outside.
import { createHash } from 'node:crypto';

const STYLE = `
:root{color-scheme:light dark;--line:#8884;--soft:#8882;--accent:#2563eb}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--soft);padding:.75rem;border-radius:6px;overflow:auto;max-height:30rem}
h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.25rem .75rem}
summary{cursor:pointer;padding:.25rem 0}
.method{display:inline-block;min-width:4.5rem;font-weight:700;color:var(--accent)}
table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top}
`;

/** Lets the page show its own style and load nothing at all. */
export const DOCS_CONTENT_SECURITY_POLICY =
  "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
  `style-src 'sha256-${createHash('sha256').update(STYLE, 'utf8').digest('base64')}'`;

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? character);
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description?: string;
}

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema?: unknown }>>;
}

interface Operation {
  readonly tags?: readonly string[];
  readonly summary?: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Content;
  readonly responses?: Readonly<Record<string, Content & { readonly description?: string }>>;
}

/** As much of an OpenAPI document as the page shows. */
export interface ShownDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description?: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, unknown>> };
}

function renderSchema(schema: unknown): string {
  return `<pre>${escapeHtml(JSON.stringify(schema, null, 2))}</pre>`;
}

function renderParameters(parameters: readonly Parameter[]): string {
  if (parameters.length === 0) return '';
  const rows = parameters.map(
    (parameter) =>
      `<tr><td><code>${escapeHtml(parameter.name)}</code></td><td>${escapeHtml(parameter.in)}` +
      `${parameter.required === true ? ', required' : ''}</td><td>${escapeHtml(parameter.description ?? '')}</td></tr>`,
  );
  return `<table><tr><th>Parameter</th><th>In</th><th></th></tr>${rows.join('')}</table>`;
}

function renderOperation(path: string, method: string, operation: Operation): string {
  const body = Object.values(operation.requestBody?.content ?? {})[0]?.schema;
  const responses = Object.entries(operation.responses ?? {}).map(
    ([status, { description = '' }]) => `<tr><td>${escapeHtml(status)}</td><td>${escapeHtml(description)}</td></tr>`,
  );
  const good = Object.values(operation.responses?.['200']?.content ?? {})[0]?.schema;
  return [
    `<details><summary><span class="method">${method.toUpperCase()}</span><code>${escapeHtml(path)}</code> `,
    `${escapeHtml(operation.summary ?? '')}</summary>`,
    `<p>${escapeHtml(operation.description ?? 'No token needed.')}</p>`,
    renderParameters(operation.parameters ?? []),
    body === undefined ? '' : `<h4>Body</h4>${renderSchema(body)}`,
    good === undefined ? '' : `<h4>Answer</h4>${renderSchema(good)}`,
    `<table><tr><th>Status</th><th></th></tr>${responses.join('')}</table></details>`,
  ].join('');
}

function operationsByTag(document: ShownDocument): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? 'other';
      groups.set(tag, [...(groups.get(tag) ?? []), renderOperation(path, method, operation)]);
    }
  }
  return groups;
}

/** Renders the page, HTML in UTF-8. */
export function renderDocsPage(document: ShownDocument): string {
  const { info } = document;
  const sections = [...operationsByTag(document)].map(
    ([tag, operations]) => `<h2>${escapeHtml(tag)}</h2>${operations.join('')}`,
  );
  const schemas = Object.entries(document.components.schemas).map(
    ([name, schema]) => `<details><summary><code>${escapeHtml(name)}</code></summary>${renderSchema(schema)}</details>`,
  );
  return [
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escapeHtml(info.title)}</title>`,
    `<meta name="viewport" content="width=device-width"><style>${STYLE}</style></head><body>`,
    `<h1>${escapeHtml(info.title)} <small>${escapeHtml(info.version)}</small></h1>`,
    `<p>${escapeHtml(info.description ?? '')} <a href="openapi.json">openapi.json</a></p>`,
    sections.join(''),
    `<h2>schemas</h2>${schemas.join('')}</body></html>`,
  ].join('');
}
