// Routes of /v1/admin_tokens and /v1/emergency_stop.
import { ADMIN_ONLY, READERS, type AdminApp, type AdminContext } from '../context.ts';
import { toPage, toPageQuery } from '../pages.ts';
import {
  AdminTokenCreate,
  AdminTokenCreated,
  AdminTokenDeleted,
  AdminTokenPage,
  AdminTokenParams,
  adminTokenToWire,
} from '../schemas/admin-tokens.ts';
import { answers, BODY_CODES, LIST_CODES, PageOnlyQuery } from '../schemas/common.ts';

const tags = ['admin tokens'];

export function registerAdminTokenRoutes(app: AdminApp, context: AdminContext): void {
  const { adminTokens } = context.store;

  app.post(
    '/v1/admin_tokens',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'createAdminToken', summary: 'Create a scoped token; shows it once' },
        body: AdminTokenCreate,
        response: answers(AdminTokenCreated, BODY_CODES),
      },
    },
    async (request) => {
      const { name, scope, expires_in } = request.body;
      const expiresAt =
        expires_in === undefined || expires_in === null ? null : context.clock.now() + expires_in * 1000;
      const { adminToken, token } = await adminTokens.create({ name, scope, expiresAt });
      context.recordWrite(request, { action: 'admin_token.create', objectId: adminToken.id });
      return { ...adminTokenToWire(adminToken), token };
    },
  );

  app.get(
    '/v1/admin_tokens',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'listAdminTokens', summary: 'List scoped tokens, newest first; never their text' },
        querystring: PageOnlyQuery,
        response: answers(AdminTokenPage, LIST_CODES),
      },
    },
    async (request) => {
      const page = await adminTokens.list(toPageQuery(request.query));
      return toPage(page, adminTokenToWire);
    },
  );

  app.delete(
    '/v1/admin_tokens/:admin_token_id',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'deleteAdminToken', summary: 'Delete a scoped token: it stops working at once' },
        params: AdminTokenParams,
        response: answers(AdminTokenDeleted, ['not_found']),
      },
    },
    async (request) => {
      const id = request.params.admin_token_id;
      await adminTokens.delete(id);
      context.recordWrite(request, { action: 'admin_token.delete', objectId: id });
      return { id, type: 'admin_token_deleted' as const };
    },
  );
}
