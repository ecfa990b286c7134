// Routes that need no token: health, and the certificates that clients must trust; and the metrics.
import { z } from 'zod';
import { KeyveilError } from '../../model/errors.ts';
import { READERS, type AdminApp, type AdminContext } from '../context.ts';
import { answers } from '../schemas/common.ts';

const Health = z.object({ status: z.literal('ok') }).meta({ id: 'Health' });
const PEM = 'application/x-pem-file';

export function registerPublicRoutes(app: AdminApp, context: AdminContext): void {
  registerHealthRoutes(app, context);

  app.get(
    '/v1/ca.pem',
    {
      config: { access: 'public' },
      schema: {
        ...{ tags: ['certificates'], operationId: 'getCa', summary: 'The certificate of the CA, PEM' },
        response: answers(z.string(), ['admin_host_refused'], { contentType: PEM, isPublic: true }),
      },
    },
    async (_request, reply) => reply.type(PEM).serializer(String).send(context.ca.caPem()),
  );

  app.get(
    '/v1/ca-bundle.pem',
    {
      config: { access: 'public' },
      schema: {
        ...{ tags: ['certificates'], operationId: 'getCaBundle', summary: 'The public roots and the CA, PEM' },
        response: answers(z.string(), ['admin_host_refused'], { contentType: PEM, isPublic: true }),
      },
    },
    async (_request, reply) => reply.type(PEM).serializer(String).send(context.ca.bundlePem()),
  );
}

function registerHealthRoutes(app: AdminApp, context: AdminContext): void {
  app.get(
    '/healthz',
    {
      config: { access: 'public', anyHost: true },
      schema: {
        ...{ tags: ['health'], operationId: 'getHealth', summary: 'Whether the process is alive' },
        response: answers(Health, [], { isPublic: true }),
      },
    },
    async () => ({ status: 'ok' as const }),
  );

  app.get(
    '/readyz',
    {
      config: { access: 'public', anyHost: true },
      schema: {
        ...{ tags: ['health'], operationId: 'getReadiness', summary: 'Whether store, key and proxy are ready' },
        response: answers(Health, ['store_unavailable'], { isPublic: true }),
      },
    },
    async () => {
      if (!context.isProxyListening()) {
        throw new KeyveilError('store_unavailable', 'The proxy does not listen yet, or no longer.');
      }
      try {
        await context.store.check();
      } catch (error) {
        const message = 'The store does not answer, or its key does not fit. The log has more under this request id.';
        throw new KeyveilError('store_unavailable', message, { cause: error });
      }
      return { status: 'ok' as const };
    },
  );

  app.get(
    '/metrics',
    {
      config: { access: context.metricsPublic ? 'public' : READERS },
      schema: {
        ...{ tags: ['health'], operationId: 'getMetrics', summary: 'Metrics in the text format of Prometheus' },
        response: answers(z.string(), [], { contentType: 'text/plain', isPublic: context.metricsPublic }),
      },
    },
    async (_request, reply) =>
      reply
        .type(context.metricsContentType)
        .serializer(String)
        .send(await context.metricsText()),
  );
}
