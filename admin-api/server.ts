// Builds the admin API: the server with its checks, errors and routes. It does not listen; the daemon does.
import {
  fastify,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerOptions,
} from 'fastify';
import { serializerCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import { KeyveilError } from '../model/errors.ts';
import { createId } from '../model/ids.ts';
import {
  ADMIN_BODY_BYTES_MAX,
  ADMIN_CONNECTIONS_MAX,
  ADMIN_HEADER_BYTES_MAX,
  ADMIN_LINGER_MS,
} from '../model/limits.ts';
import { createMethodTable } from './allowed-methods.ts';
import { hasToken, identify, requireScope, unauthenticated } from './auth.ts';
import { AdminConnections } from './connections.ts';
import { ADMIN_ONLY, type AdminApp, type AdminContext, type AdminServerOptions } from './context.ts';
import { errorHeaders, logFailure, rawErrorResponse, toEnvelope, toKeyveilError } from './errors.ts';
import { createAdminHttpServer } from './http-server.ts';
import { createHostCheck } from './host-check.ts';
import { parseJsonBody } from './json-body.ts';
import { createLoginLimiter } from './login-limiter.ts';
import { describeRoutes } from './openapi.ts';
import { registerAdminTokenRoutes } from './routes/admin-tokens.ts';
import { registerAuditRoutes } from './routes/audit.ts';
import { registerCredentialRoutes } from './routes/credentials.ts';
import { registerDocumentRoutes } from './routes/documents.ts';
import { registerCaRoutes } from './routes/ca.ts';
import { registerEmergencyStopRoutes } from './routes/emergency-stop.ts';
import { registerEnvironmentRoutes } from './routes/environments.ts';
import { registerPublicRoutes } from './routes/public.ts';
import { registerSessionRoutes } from './routes/sessions.ts';
import { registerVaultRoutes } from './routes/vaults.ts';
import { validatorCompiler } from './validation.ts';

export type { AdminServerOptions } from './context.ts';

/** The compilers that are set below, for Fastify loads its own else: a quarter of all modules of a start. */
const SCHEMA_CONTROLLER = {
  compilersFactory: { buildValidator: () => validatorCompiler, buildSerializer: () => serializerCompiler },
} as unknown as NonNullable<FastifyServerOptions['schemaController']>;

function createFastify(options: AdminServerOptions, connections: AdminConnections | null) {
  const { clock, logger } = options;
  return fastify({
    // The project's own logger has closed fields; Fastify's would log objects.
    logger: false,
    schemaController: SCHEMA_CONTROLLER,
    // The factory makes the servers, one for each address of a name such as localhost; this tells how to name them.
    ...(options.tls === undefined ? {} : { https: options.tls }),
    serverFactory: (handler) => createAdminHttpServer(handler, options, connections),
    bodyLimit: ADMIN_BODY_BYTES_MAX,
    requestIdHeader: false,
    genReqId: () => createId('request', clock.now()),
    return503OnClosing: false,
    // A long id is an unknown id; the header limit bounds it.
    routerOptions: { maxParamLength: ADMIN_HEADER_BYTES_MAX },
    frameworkErrors(error, request, reply) {
      void sendError(toKeyveilError(error), request, reply);
    },
    clientErrorHandler(error, socket) {
      if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
      else {
        socket.end(rawErrorResponse(error, clock));
        // Who does not close the other half would keep the connection.
        setTimeout(() => socket.destroy(), ADMIN_LINGER_MS).unref();
      }
      logger.debug({ code: error.code ?? 'unknown' }, 'admin connection sent no valid request');
    },
  }).withTypeProvider<ZodTypeProvider>();
}

function sendError(error: KeyveilError, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return reply
    .code(error.status)
    .headers({ ...errorHeaders(error), 'request-id': request.id })
    .type('application/json')
    .serializer(JSON.stringify)
    .send(toEnvelope(error, request.id));
}

/** Closing, Host, token, scope: every request passes these, those to unknown paths as well. */
function addGate(app: AdminApp, context: AdminContext): void {
  const checkHost = createHostCheck(context.adminHosts);
  const limiter = createLoginLimiter(context.clock);
  app.decorateRequest('identity', null);
  app.addHook('onRequest', async (request, reply) => {
    reply.headers({ 'request-id': request.id, 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' });
    if (context.closing.aborted) throw new KeyveilError('shutting_down', 'Keyveil is shutting down.');
    const { config } = request.routeOptions;
    if (context.trust === 'tcp' && config.anyHost !== true) checkHost(request.raw);
    const access = config.access ?? ADMIN_ONLY;
    if (access === 'public') return;
    const identity = await context.identify(request);
    if (identity !== null) {
      request.identity = identity;
      requireScope(identity, access);
      context.connections?.hold(request.raw.socket, reply.raw);
      return;
    }
    const waitSeconds = hasToken(request.headers) ? limiter.noteFailure(request.ip) : 0;
    if (waitSeconds === 0) throw unauthenticated(request.headers);
    reply.header('retry-after', String(waitSeconds));
    throw new KeyveilError('too_many_failed_logins', `Too many failed logins. Try again in ${waitSeconds} s.`);
  });
}

function addErrorHandling(app: AdminApp, context: AdminContext): void {
  const table = createMethodTable();
  app.addHook('onRoute', (route) => table.add(route.url, [route.method].flat()));
  app.setErrorHandler((thrown, request, reply) => {
    const error = toKeyveilError(thrown);
    logFailure(context.logger, error, request.id);
    return sendError(error, request, reply);
  });
  app.setNotFoundHandler(async (request, reply) => {
    const methods = table.methodsOf(request.url.split('?', 1)[0] ?? '');
    if (methods.length === 0) throw new KeyveilError('not_found', 'There is no such path. GET /docs lists them all.');
    reply.header('allow', methods.join(', '));
    throw new KeyveilError('method_not_allowed', `This path answers ${methods.join(', ')} only.`);
  });
}

function addBodyParser(app: AdminApp): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    /^application\/json\s*(?:;|$)/i,
    { parseAs: 'buffer' },
    async (_request: FastifyRequest, body: Buffer) => parseJsonBody(body),
  );
}

function addRequestLog(app: AdminApp, context: AdminContext): void {
  app.addHook('onResponse', async (request, reply) => {
    context.logger.debug(
      {
        requestId: request.id,
        method: request.method,
        // The pattern, not the path: what a stranger typed stays out of the log.
        path: request.routeOptions.url ?? '-',
        status: reply.statusCode,
        durationMs: Math.round(reply.elapsedTime),
      },
      'admin request',
    );
  });
}

function createContext(
  options: AdminServerOptions,
  parts: Pick<AdminContext, 'closing' | 'connections'>,
): AdminContext {
  return {
    ...options,
    ...parts,
    identify: (request) => identify(request.headers, options),
    recordWrite(request, write) {
      const now = options.clock.now();
      options.audit.recordAdmin({
        id: createId('auditEvent', now),
        createdAt: now,
        actor: request.identity?.actor ?? 'unknown',
        action: write.action,
        objectId: write.objectId,
        requestId: request.id,
      });
    },
  };
}

function registerRoutes(scope: AdminApp, context: AdminContext): void {
  registerPublicRoutes(scope, context);
  registerVaultRoutes(scope, context);
  registerCredentialRoutes(scope, context);
  registerEnvironmentRoutes(scope, context);
  registerSessionRoutes(scope, context);
  registerAuditRoutes(scope, context);
  registerAdminTokenRoutes(scope, context);
  registerEmergencyStopRoutes(scope, context);
  registerCaRoutes(scope, context);
}

/**
 * Builds the admin API, not listening yet. `close()` ends the live streams, waits for open requests, and resolves when
 * the last connection is gone. For TCP and the Unix socket, build it twice, with another `trust`.
 */
export function createAdminServer(options: AdminServerOptions): FastifyInstance {
  const closing = new AbortController();
  const connections =
    options.trust === 'tcp' ? new AdminConnections(options.connectionsMax ?? ADMIN_CONNECTIONS_MAX) : null;
  const context = createContext(options, { closing: closing.signal, connections });
  const app = createFastify(options, connections) as unknown as AdminApp;
  app.setValidatorCompiler(validatorCompiler as Parameters<AdminApp['setValidatorCompiler']>[0]);
  app.setSerializerCompiler(serializerCompiler);
  app.addHook('preClose', async () => closing.abort());
  addGate(app, context);
  addErrorHandling(app, context);
  addBodyParser(app);
  addRequestLog(app, context);
  const describe = () =>
    describeRoutes({
      version: options.version,
      createApp: () => fastify(),
      register: (scope) => registerRoutes(scope, context),
    });
  app.register(async (scope: AdminApp) => {
    registerRoutes(scope, context);
    registerDocumentRoutes(scope, describe);
  });
  return app;
}
