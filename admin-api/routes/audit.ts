// Routes of /v1/audit_events: the list, and the live stream of server-sent events.
import type { FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import { z } from 'zod';
import { KeyveilError } from '../../model/errors.ts';
import { AUDIT_STREAMS_MAX } from '../../model/limits.ts';
import { streamAudit, watchAdmission } from '../audit-stream.ts';
import { READERS, type AdminApp, type AdminContext } from '../context.ts';
import { decodeAuditPage, encodeAuditPage, toPage } from '../pages.ts';
import { AuditListQuery, AuditPage, auditEntryToWire, AuditStreamQuery, toAuditFilters } from '../schemas/audit.ts';
import { answers, LIST_CODES } from '../schemas/common.ts';

const POLL_DEFAULT_MS = 250;
const HEARTBEAT_DEFAULT_MS = 15_000;
const tags = ['audit'];

export function registerAuditRoutes(app: AdminApp, context: AdminContext): void {
  app.get(
    '/v1/audit_events',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'listAuditEvents', summary: 'List audit events, newest first' },
        querystring: AuditListQuery,
        response: answers(AuditPage, LIST_CODES),
      },
    },
    async (request) => {
      const { limit, page, ...filters } = request.query;
      const query = { ...toAuditFilters(filters), limit, after: decodeAuditPage(page) };
      // Who has just done something expects to read of it, not to wait for the log's next batch.
      await context.audit.flush();
      const { items, next } = await context.audit.list(query);
      return toPage({ items, next: encodeAuditPage(next) }, (stored) => auditEntryToWire(stored.entry));
    },
  );

  registerAuditStream(app, context);
}

/** The sequence number after which a client that was cut off goes on; null for a new one. */
function lastEventId(request: FastifyRequest): number | null {
  const text = request.headers['last-event-id'];
  if (text === undefined || text === '') return null;
  if (typeof text === 'string' && /^[0-9]{1,15}$/.test(text)) return Number(text);
  throw new KeyveilError('invalid_field', 'Last-Event-ID must be the id of an event of this stream.', {
    param: 'last-event-id',
  });
}

function registerAuditStream(app: AdminApp, context: AdminContext): void {
  let openStreams = 0;

  app.get(
    '/v1/audit_events/stream',
    {
      config: { access: READERS },
      exposeHeadRoute: false,
      schema: {
        ...{ tags, operationId: 'streamAuditEvents', summary: 'Audit events as they happen, as server-sent events' },
        querystring: AuditStreamQuery,
        response: answers(z.string(), ['invalid_field', 'unknown_field', 'overloaded'], {
          contentType: 'text/event-stream',
          description: 'Events `audit_event` and `admin_event`; Last-Event-ID resumes after an event.',
        }),
      },
    },
    async (request, reply) => {
      const filters = toAuditFilters(request.query);
      const resumeAfter = lastEventId(request);
      if (openStreams >= AUDIT_STREAMS_MAX) {
        throw new KeyveilError('overloaded', `There are ${AUDIT_STREAMS_MAX} open audit streams. Close one first.`);
      }
      const after = resumeAfter ?? (await context.audit.lastSequence());
      const gone = new AbortController();
      const options = {
        audit: context.audit,
        after,
        filters,
        pollMs: context.auditPollMs ?? POLL_DEFAULT_MS,
        heartbeatMs: context.auditHeartbeatMs ?? HEARTBEAT_DEFAULT_MS,
        signal: AbortSignal.any([gone.signal, context.closing]),
        isAdmitted: async () => {
          const identity = await context.identify(request);
          return identity !== null && READERS.includes(identity.scope);
        },
      };
      const stream = Readable.from(streamAudit(options));
      const unwatch = watchAdmission(options, () => reply.raw.destroy());
      openStreams += 1;
      context.connections?.setApart(request.raw.socket, reply.raw);
      stream.once('close', () => (openStreams -= 1));
      reply.raw.once('close', () => {
        unwatch();
        gone.abort();
      });
      return reply.type('text/event-stream').serializer(String).send(stream);
    },
  );
}
