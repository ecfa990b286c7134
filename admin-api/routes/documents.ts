// Routes that describe the API: /openapi.json and /docs.
import type { AdminApp } from '../context.ts';
import { DOCS_CONTENT_SECURITY_POLICY, renderDocsPage, type ShownDocument } from '../docs-page.ts';
import type { Document } from '../openapi.ts';

export function registerDocumentRoutes(scope: AdminApp, describe: () => Promise<Document>): void {
  // Both are made when first asked for: most daemons are never asked.
  let json: Promise<string> | undefined;
  let html: string | undefined;
  const document = (): Promise<string> => (json ??= describe().then((described) => JSON.stringify(described)));

  scope.get('/openapi.json', { config: { access: 'public' }, schema: { hide: true } }, async (_request, reply) =>
    reply
      .type('application/json')
      .serializer(String)
      .send(await document()),
  );

  scope.get('/docs', { config: { access: 'public' }, schema: { hide: true } }, async (_request, reply) => {
    html ??= renderDocsPage(JSON.parse(await document()) as ShownDocument);
    return reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', DOCS_CONTENT_SECURITY_POLICY)
      .serializer(String)
      .send(html);
  });
}
