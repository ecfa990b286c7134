// Routes that describe the API: /openapi.json and /docs.
import type { AdminApp } from '../context.ts';
import { DOCS_CONTENT_SECURITY_POLICY, renderDocsPage, type ShownDocument } from '../docs-page.ts';
import { finishDocument } from '../openapi.ts';

export function registerDocumentRoutes(scope: AdminApp, root: AdminApp): void {
  // Both are made when first asked for: most daemons are never asked.
  let json: string | undefined;
  let html: string | undefined;
  const document = (): string => (json ??= JSON.stringify(finishDocument(root.swagger())));

  scope.get('/openapi.json', { config: { access: 'public' }, schema: { hide: true } }, async (_request, reply) =>
    reply.type('application/json').serializer(String).send(document()),
  );

  scope.get('/docs', { config: { access: 'public' }, schema: { hide: true } }, async (_request, reply) => {
    html ??= renderDocsPage(JSON.parse(document()) as ShownDocument);
    return reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', DOCS_CONTENT_SECURITY_POLICY)
      .serializer(String)
      .send(html);
  });
}
